"""Consumer groups: heartbeats, assignments, sessions, deadlines, and the offsets that members commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.groupcoord import shard
from ottla.groupcoord.consumer import rebalancing
from ottla.groupcoord.consumer.member import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.modern import group as modern_group
from ottla.groupcoord.offsets.manager import RETENTION
from ottla.groupcoord.tests.consumer_conversation import (
    INTERVAL_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ConsumerConversation,
    all_partitions,
    snapshot,
)
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.topic_images import TopicImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import OffsetFetchRequestGroup


@pytest.fixture
def talk() -> ConsumerConversation:
    return ConsumerConversation()


# ---------------------------------------------------------------------- coming


def test_the_first_member_gets_all_partitions_with_its_first_answer(talk: ConsumerConversation) -> None:
    came = talk.come("a")
    assert (came.error, came.response.member_id, came.response.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert talk.told(came) == {"topic": {0, 1}}
    assert came.response.heartbeat_interval_ms == 5000
    assert talk.group().state_name == "Stable"
    assert talk.record_keys() == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_an_ordinary_heartbeat_writes_nothing_and_tells_no_assignment(talk: ConsumerConversation) -> None:
    talk.come("a")
    written = len(talk.log)
    stayed = talk.heartbeat("a", 2)
    assert (stayed.error, stayed.response.member_epoch, talk.told(stayed)) == (ErrorCode.NONE, 2, None)
    assert len(talk.log) == written


def test_a_full_request_is_answered_with_the_assignment(talk: ConsumerConversation) -> None:
    talk.come("a")
    asked = talk.heartbeat(
        "a", 2, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=["topic"], owned={"topic": {0, 1}}
    )
    assert talk.told(asked) == {"topic": {0, 1}}


def test_a_second_member_waits_until_the_first_has_given_up_a_partition(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    came = talk.come("b")
    assert (came.response.member_epoch, talk.told(came)) == (3, {}), "all partitions are still with the first"
    assert talk.group().members["b"].state is UNRELEASED_PARTITIONS
    asked = talk.heartbeat("a", 2)
    kept = talk.told(asked)
    assert kept is not None and len(kept["topic"]) == 1 and asked.response.member_epoch == 2
    assert talk.group().members["a"].state is UNREVOKED_PARTITIONS
    assert talk.told(talk.heartbeat("b", 3)) is None
    assert talk.told(talk.heartbeat("a", 2, owned={"topic": {0, 1}})) is None, "it has not given it up yet"
    given_up = talk.heartbeat("a", 2, owned=kept)
    assert given_up.response.member_epoch == 3
    got = talk.told(talk.heartbeat("b", 3))
    assert got is not None and all_partitions(kept, got) == [("topic", 0), ("topic", 1)]
    assert talk.group().state_name == "Stable"


def test_members_that_come_together_cost_one_assignment(talk: ConsumerConversation) -> None:
    talk.images.put("topic", 4)
    talk.come("a")
    for member_id in "bcd":
        assert talk.told(talk.come(member_id)) == {}
    assert talk.group().state_name == "Assigning" and talk.group().assignment_epoch == 2
    assert talk.heartbeat("a", 2).response.member_epoch == 2
    talk.advance(INTERVAL_MS)
    talk.settle()
    assert talk.group().assignment_epoch == talk.group().group_epoch == 5
    assert [len(talk.owned(each)["topic"]) for each in "abcd"] == [1, 1, 1, 1]


def test_without_an_interval_every_change_is_assigned_at_once() -> None:
    talk = ConsumerConversation(settings=GroupSettings(consumer_assignment_interval_ms=0))
    talk.come("a")
    talk.come("b")
    assert talk.group().assignment_epoch == talk.group().group_epoch == 3


def test_settings_of_a_group_count_from_the_next_heartbeat_on(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.settings = GroupSettings(consumer_heartbeat_interval_ms=7000, consumer_session_timeout_ms=50_000)
    assert talk.heartbeat("a", 2).response.heartbeat_interval_ms == 7000
    talk.advance(50_000 - 1)
    assert "a" in talk.group().members
    talk.advance(1)
    assert talk.group().is_empty


def test_a_member_of_version_0_gets_its_id_from_the_broker(talk: ConsumerConversation) -> None:
    came = talk.come("", version=0)
    assert came.response.member_id in talk.group().members and came.response.member_id


def test_a_group_has_room_for_so_many_members() -> None:
    talk = ConsumerConversation(group_consumer_max_size=1)
    talk.come("a", instance_id="i")
    assert talk.come("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.come("a", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    talk.go("a", -2, instance_id="i")
    assert talk.come("c", instance_id="i").error is ErrorCode.NONE, "a static member has its place"


# ---------------------------------------------------------------------- epochs


def test_a_member_at_another_epoch_is_fenced(talk: ConsumerConversation) -> None:
    talk.come("a")
    assert talk.heartbeat("a", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.heartbeat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.heartbeat("b", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat("a", 2, group="nobody").error is ErrorCode.GROUP_ID_NOT_FOUND
    again = talk.come("a")
    assert (again.response.member_epoch, talk.told(again)) == (2, {"topic": {0, 1}}), "who is fenced begins anew"


def test_a_member_whose_answer_was_lost_goes_on_with_what_it_has(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.settle()
    assert talk.group().members["a"].epoch == 3
    assert talk.heartbeat("a", 2).error is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it has"
    too_much = talk.heartbeat("a", 2, owned={"topic": {0, 1}})
    assert too_much.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.heartbeat("a", 2, owned=talk.owned("a")).response.member_epoch == 3


# ---------------------------------------------------------------------- subscriptions and topics


def test_a_changed_subscription_takes_away_at_once_what_is_not_read_any_more(talk: ConsumerConversation) -> None:
    talk.come("a", "topic", "other")
    assert talk.owned("a") == {"topic": {0, 1}, "other": {0}}
    changed = talk.heartbeat("a", 2, subscribed_topic_names=["other"])
    assert talk.told(changed) == {"other": {0}} and changed.response.member_epoch == 2
    talk.advance(INTERVAL_MS)
    assert talk.heartbeat("a", 2, owned={"other": {0}}).response.member_epoch == 3
    assert talk.group().subscriptions.by_name.by_key == {"other": 1}


def test_new_partitions_and_deleted_topics_are_noticed_with_the_next_heartbeat(talk: ConsumerConversation) -> None:
    talk.come("a", "topic", "later")
    talk.advance(INTERVAL_MS)
    talk.images.put("topic", 3)
    assert talk.told(talk.heartbeat("a", 2)) == {"topic": {0, 1, 2}}
    talk.advance(INTERVAL_MS)
    talk.images.put("later", 1)
    assert talk.told(talk.heartbeat("a", 3)) == {"topic": {0, 1, 2}, "later": {0}}
    talk.advance(INTERVAL_MS)
    talk.images.remove("topic")
    assert talk.told(talk.heartbeat("a", 4)) == {"later": {0}}


def test_a_change_of_another_topic_begins_no_epoch(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.images.put("unrelated", 3)
    assert talk.heartbeat("a", 2).response.member_epoch == 2
    assert talk.group().group_epoch == 2 and talk.group().has_seen(talk.images)


def test_replicas_on_other_racks_begin_an_epoch(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.images.put("topic", 2, racks=("left", "right"))
    assert talk.heartbeat("a", 2).response.member_epoch == 3


def test_most_members_choose_the_assignor(talk: ConsumerConversation) -> None:
    talk.images.put("topic", 4)
    talk.images.put("other", 4)
    talk.come("a", "topic", "other", server_assignor="range")
    assert talk.described().assignor_name == "range"
    talk.advance(INTERVAL_MS)
    talk.come("b", "topic", "other", server_assignor="range")
    talk.settle()
    assert talk.owned("a") == {"topic": {0, 1}, "other": {0, 1}}
    epoch = talk.group().group_epoch
    talk.heartbeat("a", talk.group().members["a"].epoch, server_assignor="uniform")
    talk.heartbeat("b", talk.group().members["b"].epoch, server_assignor="uniform")
    assert talk.group().group_epoch == epoch + 1 and talk.described().assignor_name == "uniform"


# ---------------------------------------------------------------------- leaving


def test_what_a_member_leaves_behind_goes_to_the_others(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.settle()
    left = talk.go("b")
    assert (left.error, left.response.member_id, left.response.member_epoch) == (ErrorCode.NONE, "b", -1)
    talk.settle()
    assert talk.owned("a") == {"topic": {0, 1}}
    assert talk.heartbeat("b", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.go("a")
    assert talk.group().state_name == "Empty"
    assert talk.group().assignment_epoch == talk.group().group_epoch
    assert talk.told(talk.come("c")) == {"topic": {0, 1}}, "the first of an empty group does not wait for the interval"


def test_a_silent_member_is_out_when_its_session_ends(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat("a", 2).error is ErrorCode.NONE
    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert "a" in talk.group().members
    talk.advance(1)
    assert talk.group().is_empty and talk.heartbeat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_up_is_out_after_its_rebalance_timeout(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.heartbeat("a", 2)
    talk.advance(REBALANCE_TIMEOUT_MS - 1)
    assert talk.heartbeat("a", 2, owned={"topic": {0, 1}}).error is ErrorCode.NONE
    talk.advance(1)
    assert talk.heartbeat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.settle()
    assert talk.owned("b") == {"topic": {0, 1}}


def test_the_time_to_give_up_goes_on_if_the_log_refuses_that_a_member_has(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    kept = talk.told(talk.heartbeat("a", 2))
    talk.advance(1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.heartbeat("a", 2, owned=kept).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.refuse_appends = ErrorCode.NONE
    talk.advance(REBALANCE_TIMEOUT_MS - 2)
    assert talk.heartbeat("a", 2, owned={"topic": {0, 1}}).error is ErrorCode.NONE
    talk.advance(1)
    assert talk.heartbeat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_has_given_up_in_time_stays(talk: ConsumerConversation) -> None:
    talk.come("a")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    kept = talk.told(talk.heartbeat("a", 2))
    talk.heartbeat("a", 2, owned=kept)
    talk.advance(REBALANCE_TIMEOUT_MS)
    assert talk.heartbeat("a", 3).error is ErrorCode.NONE


# ---------------------------------------------------------------------- static members


def test_a_static_member_comes_back_to_what_it_had(talk: ConsumerConversation) -> None:
    talk.come("a", instance_id="i")
    talk.advance(INTERVAL_MS)
    talk.come("b", instance_id="j")
    talk.settle()
    before, epoch = talk.owned("a"), talk.group().group_epoch
    assert talk.come("c", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    left = talk.go("a", -2, instance_id="i")
    assert left.response.member_epoch == -2
    came = talk.come("c", instance_id="i")
    assert talk.told(came) == before and came.response.member_epoch == epoch
    assert talk.group().group_epoch == epoch, "nobody else hears of it"
    assert talk.heartbeat("a", epoch, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.heartbeat("a", epoch).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat("x", epoch, instance_id="nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_out_when_its_session_ends(talk: ConsumerConversation) -> None:
    talk.come("a", instance_id="i")
    talk.go("a", -2, instance_id="i")
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.group().is_empty and not talk.group().static_members


def test_a_static_member_may_leave_for_good(talk: ConsumerConversation) -> None:
    talk.come("a", instance_id="i")
    assert talk.go("b", -1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.go("a", -1, instance_id="i").error is ErrorCode.NONE
    assert talk.come("b", instance_id="i").error is ErrorCode.NONE


# ---------------------------------------------------------------------- how it looks, and its end


def test_a_group_is_described_and_listed(talk: ConsumerConversation) -> None:
    talk.come("a", rack_id="left")
    group = talk.described()
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        ErrorCode.NONE, "Stable", 2, 2, "uniform",
    )  # fmt: skip
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.member_type) == ("a", "left", 2, 1)
    assert member.subscribed_topic_names == ["topic"] and member.subscribed_topic_regex == ""
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("topic", [0, 1])
    assert member.target_assignment == member.assignment
    (listed,) = talk.listed()
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("consumer", "Stable", "consumer")
    assert talk.described("nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_can_be_deleted(talk: ConsumerConversation) -> None:
    talk.come("a")
    assert talk.delete_group() is ErrorCode.NON_EMPTY_GROUP
    talk.go("a")
    assert talk.delete_group() is ErrorCode.NONE
    assert talk.listed() == []
    talk.restart()
    assert talk.listed() == []


def test_a_restart_changes_nothing_but_that_sessions_begin_anew(talk: ConsumerConversation) -> None:
    talk.come("a", instance_id="i")
    talk.advance(INTERVAL_MS)
    talk.come("b")
    talk.heartbeat("a", 2, instance_id="i")
    before = snapshot(talk)
    talk.restart()
    assert snapshot(talk) == before
    talk.advance(SESSION_TIMEOUT_MS - REBALANCE_TIMEOUT_MS)
    talk.advance(REBALANCE_TIMEOUT_MS - 1)
    assert "a" not in talk.group().members, "its rebalance timeout began anew"
    assert "b" in talk.group().members


# ---------------------------------------------------------------------- a log that refuses


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_what_the_log_refuses_has_not_happened(talk: ConsumerConversation, error: ErrorCode) -> None:
    talk.refuse_appends = error
    assert talk.come("a").error is error
    assert talk.listed() == []
    talk.refuse_appends = ErrorCode.NONE
    talk.come("a", instance_id="i")
    talk.advance(INTERVAL_MS)
    before = snapshot(talk)
    talk.refuse_appends = error
    assert talk.come("b").error is error
    assert talk.heartbeat("a", 2, instance_id="i", subscribed_topic_names=["other"]).error is error
    assert talk.go("a", -2, instance_id="i").error is error
    assert talk.go("a", -1, instance_id="i").error is error
    assert snapshot(talk) == before
    talk.refuse_appends = ErrorCode.NONE
    assert talk.heartbeat("a", 2, instance_id="i").error is ErrorCode.NONE
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.group().is_empty, "the session goes on"


def test_an_assignment_for_an_epoch_that_was_taken_back_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalancing, "SIZE_AT_ONCE", 0)
    talk = ConsumerConversation()
    talk.come("a")
    talk.settle()
    talk.advance(INTERVAL_MS)
    talk.holds_jobs = True
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.come("b").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.refuse_appends = ErrorCode.NONE
    # Somebody else makes the epoch that was to be that of the refused one.
    talk.come("c")
    talk.do_jobs()
    talk.holds_jobs = False
    talk.settle()
    assert all_partitions(talk.owned("a"), talk.owned("c")) == [("topic", 0), ("topic", 1)]


def test_members_that_read_the_same_topics_come_and_go_without_a_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[int] = []
    hash_of_topics = modern_group.hash_of_topics

    def counted(images: Iterable[TopicImage | None]) -> int:
        found = list(images)
        hashed.append(len(found))
        return hash_of_topics(found)

    monkeypatch.setattr(modern_group, "hash_of_topics", counted)
    talk = ConsumerConversation()
    for number in range(20):
        talk.come(f"m{number}", "topic", "other")
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.group().is_empty
    assert hashed == [2, 0]
    talk.images.put("topic", 3)
    talk.come("a", "topic")
    talk.images.put("topic", 4)
    talk.stay("a")
    assert hashed == [2, 0, 1, 1], "other topics, and topics that have changed, are looked at"


@pytest.mark.parametrize("topics", [10, 1_000])
def test_sessions_end_a_few_at_a_time_where_many_topics_are_read(monkeypatch: pytest.MonkeyPatch, topics: int) -> None:
    monkeypatch.setattr(shard, "WORK_PER_CALL", 1_000)
    talk = ConsumerConversation()
    for number in range(30):
        talk.come(f"m{number}", *[f"{number}-{each}" for each in range(topics // 10)])
    talk.now_ms += SESSION_TIMEOUT_MS
    outcome = talk.shard.expire(**talk.times())
    left = len(talk.group().members)
    assert left == (0 if topics == 10 else 29)
    talk._carry_out(outcome)
    talk.advance(0)
    assert talk.group().is_empty


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
