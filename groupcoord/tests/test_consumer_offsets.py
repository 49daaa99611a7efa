"""Offsets of consumer groups: who may commit and fetch them, and when they go."""

from typing import Any

import pytest

from ottla.groupcoord.offsets.part import RETENTION
from ottla.groupcoord.tests.consumer_conversation import INTERVAL_MS, ConsumerConversation
from ottla.groupcoord.tests.conversation import GROUP
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup


@pytest.fixture
def talk() -> ConsumerConversation:
    return ConsumerConversation()


def commit(talk: ConsumerConversation, member_id: str, epoch: int, partition: int = 0, **details: Any) -> ErrorCode:
    return talk.commit(
        5,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        partition=partition,
        topic_id=talk.topic_id("topic"),
        **({"version": 9} | details),
    )


def fetch(talk: ConsumerConversation, member_id: str | None, epoch: int) -> ErrorCode:
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    return ErrorCode(talk.shard.read(request, now_ms=talk.now_ms).error_code)


def moved(talk: ConsumerConversation) -> int:
    """Let "a" go on from epoch 2 to 3 with one of two partitions. Returns the one that it has kept."""
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.settle()
    (kept,) = talk.owned("a")["topic"]
    return kept


def test_members_commit_and_fetch_with_their_epoch(talk: ConsumerConversation) -> None:
    talk.come("a")
    assert commit(talk, "a", 2) is ErrorCode.NONE and talk.committed() == 5
    assert commit(talk, "a", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(talk, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(talk, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID, "it would overwrite what members commit"
    assert commit(talk, "a", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert fetch(talk, "a", 2) is ErrorCode.NONE
    assert fetch(talk, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(talk, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(talk, None, -1) is ErrorCode.NONE, "administrators do not say who they are"


def test_a_commit_of_an_older_epoch_counts_for_what_the_member_has_had_since_then(talk: ConsumerConversation) -> None:
    kept = moved(talk)
    assert talk.group().members["a"].epoch == 3
    assert commit(talk, "a", 2, kept) is ErrorCode.NONE
    assert commit(talk, "a", 2, 1 - kept) is ErrorCode.STALE_MEMBER_EPOCH, "another one has it now"
    assert commit(talk, "a", 1, kept) is ErrorCode.STALE_MEMBER_EPOCH, "it did not have it yet"


def test_what_has_to_be_given_up_can_still_be_committed(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.heartbeat("a", 2)
    for partition in (0, 1):
        assert commit(talk, "a", 2, partition) is ErrorCode.NONE


def test_anybody_commits_to_an_empty_group(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.go("a")
    assert commit(talk, "", -1) is ErrorCode.NONE
    assert commit(talk, "a", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_stay_and_others_go(talk: ConsumerConversation) -> None:
    talk.come("a")
    commit(talk, "a", 2)
    talk.commit(5, member_id="a", generation_id_or_member_epoch=2, topic="other")
    deadline = talk.config.offsets_retention_minutes * 60_000 + talk.config.offsets_retention_check_interval_ms
    while talk.now_ms < deadline:
        talk.advance(40_000)
        talk.stay("a")
    assert (talk.committed(), talk.committed(topic="other")) == (5, -1)
    assert (
        talk.delete_offset("topic").response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    )


def test_an_empty_group_goes_with_its_last_offset(talk: ConsumerConversation) -> None:
    talk.come("a")
    commit(talk, "a", 2)
    talk.go("a")
    talk.advance(talk.config.offsets_retention_check_interval_ms)
    assert [each.group_id for each in talk.listed()] == [GROUP]
    talk.advance(talk.config.offsets_retention_minutes * 60_000 + talk.config.offsets_retention_check_interval_ms)
    assert talk.listed() == [] and talk.committed() == -1
    assert talk.shard._effects.timers.deadline_ms(RETENTION) is not None
    talk.restart()
    assert talk.listed() == []
