"""Committed offsets: the table itself, and the requests about them as conversations with a shard."""

from typing import Any

import pytest

from ottla.groupcoord.classic.members import GroupMetadataKey
from ottla.groupcoord.effects import OFFSETS_PER_CALL, PIECE, RECORDS_PER_CALL
from ottla.groupcoord.offsets.manager import AskCommitted, DeleteGroup, ForgetTopics, OffsetMetadataManager
from ottla.groupcoord.offsets.table import OffsetCommitKey, Offsets, offset_tombstone
from ottla.groupcoord.tests.conversation import (
    GROUP,
    SESSION_MS,
    TOPIC_ID,
    Asked,
    Conversation,
    offset_record,
    subscription,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponsePartitions

RETENTION_MS = 7 * 24 * 3600 * 1000
CHECK_MS = 600_000
OTHER_TOPIC_ID = b"x" * 16


def fetched(offsets: Offsets, *, require_stable: bool = False, partition: int = 0) -> OffsetFetchResponsePartitions:
    asked = OffsetFetchRequestTopics(name="topic", partition_indexes=[partition])
    answer = offsets.fetch(OffsetFetchRequestGroup(group_id=GROUP, topics=[asked]), require_stable=require_stable)
    return answer.topics[0].partitions[0]


def new_offsets() -> Offsets:
    return Offsets(metadata_max=4096, retention_ms=RETENTION_MS)


# ---------------------------------------------------------------------- commit


def test_nobody_commits_to_a_group_without_members() -> None:
    talk = Conversation()
    assert talk.commit(17) is ErrorCode.NONE
    assert talk.committed() == 17 and talk.state() == "Empty"
    assert talk.commit(18, group="") is ErrorCode.NONE
    assert talk.committed(group="") == 18


def test_group_with_members_takes_commits_of_its_members_only() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    assert talk.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit(1, joined=joined, member_id="who") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit(1, joined=joined, generation_id_or_member_epoch=2) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(1, joined=joined, generation_id_or_member_epoch=-1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(1, group_instance_id="who") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.committed() == -1
    assert talk.commit(1, joined=joined) is ErrorCode.NONE
    assert talk.committed() == 1


def test_commits_go_on_while_members_join_again_but_not_before_the_assignment() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    first = talk.join(joins[0].response.member_id)
    assert talk.commit(1, joined=joins[1]) is ErrorCode.NONE
    talk.join(joins[1].response.member_id)
    assert talk.commit(2, joined=joins[1]) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(2, joined=first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.committed() == 1


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_generation_of_an_unknown_group_is_refused(version: int, error: ErrorCode) -> None:
    talk = Conversation()
    assert talk.commit(generation_id_or_member_epoch=3, member_id="who", version=version) is error


def test_metadata_is_limited_in_utf16_units() -> None:
    talk = Conversation(offset_metadata_max_bytes=4)
    assert talk.commit(1, metadata="abcd") is ErrorCode.NONE
    assert talk.commit(2, metadata="abcde") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert talk.commit(3, metadata="😀😀") is ErrorCode.NONE
    assert talk.commit(4, metadata="😀😀a") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert talk.committed() == 3


def test_null_metadata_is_kept_as_empty() -> None:
    talk = Conversation()
    talk.commit(1, metadata=None)
    asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    assert talk.shard.read(asked, now_ms=0).topics[0].partitions[0].metadata == ""


def test_commit_that_cannot_be_written_changes_nothing() -> None:
    talk = Conversation()
    talk.commit(1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.commit(2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.committed() == 1


# ---------------------------------------------------------------------- fetch


def test_partition_without_a_commit_is_minus_one_without_an_error() -> None:
    partition = fetched(new_offsets())
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (-1, -1, "")
    assert partition.error_code == ErrorCode.NONE


def test_all_offsets_of_a_group_can_be_asked_for() -> None:
    talk = Conversation()
    talk.commit(1, topic="a", partition=3)
    talk.commit(2, topic="b")
    talk.commit(3, group="other")
    answer = talk.shard.read(OffsetFetchRequestGroup(group_id=GROUP, topics=None), now_ms=0)
    assert [(t.name, [(p.partition_index, p.committed_offset) for p in t.partitions]) for t in answer.topics] == [
        ("a", [(3, 1)]),
        ("b", [(0, 2)]),
    ]


def test_offset_of_an_earlier_topic_of_the_same_name_is_not_shown_by_id() -> None:
    talk = Conversation()
    talk.commit(1)
    assert talk.committed(topic_id=TOPIC_ID) == talk.committed() == 1
    assert talk.committed(topic_id=OTHER_TOPIC_ID) == -1


# ---------------------------------------------------------------------- transactions of a log that Kafka wrote


def test_offset_of_an_open_transaction_does_not_count_yet() -> None:
    offsets = new_offsets()
    offsets.replay(offset_record(1), 10)
    offsets.replay(offset_record(2), 11, producer_id=7)
    assert fetched(offsets).committed_offset == 1
    unstable = fetched(offsets, require_stable=True)
    assert (unstable.error_code, unstable.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched(offsets, require_stable=True, partition=1).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("committed", "offset"), [(True, 2), (False, 1)])
def test_end_of_a_transaction_decides_about_its_offsets(committed: bool, offset: int) -> None:
    offsets = new_offsets()
    offsets.replay(offset_record(1), 10)
    offsets.replay(offset_record(2), 11, producer_id=7)
    offsets.replay_marker(8, committed=True)
    offsets.replay_marker(7, committed=committed)
    assert fetched(offsets, require_stable=True).committed_offset == offset


def test_later_plain_commit_outlives_the_end_of_a_transaction() -> None:
    offsets = new_offsets()
    offsets.replay(offset_record(2), 11, producer_id=7)
    offsets.replay(offset_record(3), 12)
    offsets.replay_marker(7, committed=True)
    assert fetched(offsets).committed_offset == 3


def test_tombstone_ends_pending_offsets_too() -> None:
    offsets = new_offsets()
    offsets.replay(offset_record(2), 11, producer_id=7)
    assert offsets.has(GROUP, "topic", 0) and offsets.has_pending(GROUP)
    assert list(offsets.all_places_of(GROUP)) == [(GROUP, "topic", 0)]
    offsets.replay(offset_tombstone(GROUP, "topic", 0), 12)
    offsets.replay_marker(7, committed=True)
    assert fetched(offsets).committed_offset == -1 and not offsets.has_pending(GROUP)


# ---------------------------------------------------------------------- delete


def test_offsets_of_topics_not_read_at_present_can_be_deleted() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1, protocols={"range": subscription("topic")})
    talk.commit(1, joined=joined)
    talk.commit(2, joined=joined, topic="other")
    kept = talk.delete_offset("topic")
    assert kept.response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert talk.delete_offset("other").response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (talk.committed(), talk.committed(topic="other")) == (1, -1)


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\0\0\0\1", b"x" * 2_000_000])
def test_group_whose_subscription_cannot_be_read_counts_as_reading_everything(metadata: bytes) -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1, protocols={"range": metadata})
    talk.commit(1, joined=joined)
    refused = talk.delete_offset("topic")
    assert refused.response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    talk = Conversation()
    newer = b"\0\x09" + subscription("topic")[2:] + b"whatever comes then"
    (joined,) = talk.stable_group(1, protocols={"range": newer})
    talk.commit(2, joined=joined, topic="other")
    assert talk.delete_offset("other").response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_other_protocols_can_be_deleted_only_without_members() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1, protocol_type="connect")
    talk.commit(1, joined=joined)
    assert talk.delete_offset("topic").error is ErrorCode.NON_EMPTY_GROUP
    talk.advance(SESSION_MS)
    assert talk.delete_offset("topic").error is ErrorCode.NONE
    assert talk.committed() == -1


def test_deleting_offsets_of_an_unknown_group_is_an_error() -> None:
    assert Conversation().delete_offset("topic").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_topic_takes_its_offsets_along() -> None:
    talk = Conversation()
    for partition in range(3):
        talk.commit(1, partition=partition)
    talk.commit(2, topic="other")
    talk.commit(3, topic="again")
    deleted = talk.ask(ForgetTopics({"topic": TOPIC_ID, "again": OTHER_TOPIC_ID}), 0)
    assert deleted.response == 4, "so many were looked at"
    assert (talk.committed(), talk.committed(topic="other"), talk.committed(topic="again")) == (-1, 2, 3)
    assert talk.ask(ForgetTopics({"topic": TOPIC_ID}), 0).response == 0


# ---------------------------------------------------------------------- expiry


def test_offsets_without_a_group_expire_after_their_commit() -> None:
    talk = Conversation()
    talk.commit(1, topic="old")
    talk.advance(RETENTION_MS // 2)
    talk.commit(2, topic="new")
    talk.advance(RETENTION_MS // 2 + CHECK_MS)
    assert (talk.committed(topic="old"), talk.committed(topic="new")) == (-1, 2)
    talk.advance(RETENTION_MS)
    assert talk.committed(topic="new") == -1 and talk.state() == "Dead"


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    talk = Conversation(offsets_retention_minutes=100)
    (joined,) = talk.stable_group(1)
    talk.commit(1, joined=joined)
    for _ in range(1000):
        talk.advance(SESSION_MS - 1)
        talk.heartbeat(joined)
    talk.advance(SESSION_MS + 99 * 60_000)
    assert talk.state() == "Empty" and talk.committed() == 1
    talk.advance(60_000 + CHECK_MS)
    assert talk.state() == "Dead" and talk.committed() == -1
    talk.restart()
    assert talk.state() == "Dead" and talk.committed() == -1


def test_stable_group_loses_only_offsets_it_no_longer_reads() -> None:
    talk = Conversation(offsets_retention_minutes=10)
    (joined,) = talk.stable_group(1, protocols={"range": subscription("topic")})
    talk.commit(1, joined=joined)
    talk.commit(2, joined=joined, topic="other")
    for _ in range(150):
        talk.advance(SESSION_MS - 1)
        talk.heartbeat(joined)
    assert (talk.committed(), talk.committed(topic="other")) == (1, -1)


def test_stable_group_of_another_protocol_loses_nothing() -> None:
    talk = Conversation(offsets_retention_minutes=10)
    (joined,) = talk.stable_group(1, protocol_type="connect")
    talk.commit(1, joined=joined)
    for _ in range(150):
        talk.advance(SESSION_MS - 1)
        talk.heartbeat(joined)
    assert talk.committed() == 1


def test_retention_asked_for_by_an_old_client_counts() -> None:
    talk = Conversation()
    assert talk.commit(1, retention_ms=1_000, version=4) is ErrorCode.NONE
    talk.commit(2, topic="other")
    talk.advance(CHECK_MS)
    assert (talk.committed(), talk.committed(topic="other")) == (-1, 2)


def test_group_without_offsets_and_members_is_gone_after_a_check() -> None:
    talk = Conversation()
    talk.stable_group(1)
    talk.advance(SESSION_MS)
    assert talk.state() == "Empty"
    talk.advance(2 * CHECK_MS)
    assert talk.state() == "Dead"


def test_check_goes_through_many_groups_a_few_at_a_time() -> None:
    talk = Conversation(offsets_retention_minutes=1)
    for number in range(1_000):
        talk.commit(1, group=str(number))
    talk.now_ms += CHECK_MS
    outcome = talk.shard.expire(**talk.times())
    assert 0 < len(outcome.records) <= 300
    talk._carry_out(outcome)
    talk.advance(100)
    assert all(talk.state(str(number)) == "Dead" for number in range(1_000))


# ---------------------------------------------------------------------- groups with very many offsets


def with_many_offsets(**partitions: int) -> Conversation:
    """A group with so many offsets of each topic."""
    talk = Conversation()
    for topic, count in partitions.items():
        for partition in range(count):
            talk.shard.replay(offset_record(7, topic=topic, partition=partition), partition)
    return talk


def test_expiry_looks_at_a_bounded_number_of_offsets_of_one_group() -> None:
    count = 2 * OFFSETS_PER_CALL + 1
    talk = with_many_offsets(topic=count)
    looks = 0
    part: Any = next(each for each in talk.shard._managers if isinstance(each, OffsetMetadataManager))
    is_expired = part._is_expired

    def counted(*arguments: Any) -> bool:
        nonlocal looks
        looks += 1
        return is_expired(*arguments)

    part._is_expired = counted
    talk.now_ms = CHECK_MS
    steps = []
    while talk.shard.next_deadline_ms() <= CHECK_MS + 10:
        talk.now_ms, looks = talk.shard.next_deadline_ms(), 0
        talk._carry_out(talk.shard.expire(**talk.times()))
        steps.append(looks)
    assert steps == [OFFSETS_PER_CALL, OFFSETS_PER_CALL, 1, 0], "the last looks whether offsets have come meanwhile"
    assert talk.state() == "Empty" and talk.committed() == 7


def test_a_large_group_expires_in_steps_and_goes_with_its_last_offset() -> None:
    talk = with_many_offsets(topic=RECORDS_PER_CALL + 1, other=RECORDS_PER_CALL)
    talk.now_ms = RETENTION_MS + CHECK_MS
    written = []
    while talk.state() != "Dead":
        talk.now_ms, before = max(talk.now_ms, talk.shard.next_deadline_ms()), len(talk.log)
        talk._carry_out(talk.shard.expire(**talk.times()))
        written.append(len(talk.log) - before)
    assert written == [RECORDS_PER_CALL, RECORDS_PER_CALL, 1, 1], "the last is the end of the group"
    assert not talk.shard.read(AskCommitted(GROUP), now_ms=talk.now_ms)


@pytest.mark.parametrize("is_old", [False, True])
def test_an_offset_that_comes_during_its_groups_expiry_keeps_the_group(is_old: bool) -> None:
    talk = with_many_offsets(topic=RECORDS_PER_CALL + 1)
    talk.now_ms = RETENTION_MS + CHECK_MS
    talk._carry_out(talk.shard.expire(**talk.times()))
    # An offset that was deleted already, or one of a topic that the walk has not seen.
    talk.commit(8, topic="topic" if is_old else "new")
    talk.advance(CHECK_MS - 1)
    assert talk.state() == "Empty"
    assert sum(map(len, talk.shard.read(AskCommitted(GROUP), now_ms=talk.now_ms).values())) == 1


def test_a_group_that_is_replaced_during_its_expiry_is_left_alone() -> None:
    talk = with_many_offsets(topic=RECORDS_PER_CALL + 1)
    talk.now_ms = RETENTION_MS + CHECK_MS
    talk._carry_out(talk.shard.expire(**talk.times()))
    assert talk.delete_group() is ErrorCode.NONE
    talk.commit(8)
    talk.advance(CHECK_MS - 1)
    assert talk.committed() == 8


def test_a_large_group_is_deleted_in_steps_its_own_tombstone_last() -> None:
    count = 3 * PIECE
    talk = with_many_offsets(topic=count)
    asked = Asked(2, "client")
    outcome = talk.shard.handle(DeleteGroup(GROUP), asked, **talk.times())
    rest = talk.shard.unfinished()
    assert rest is not None and not outcome.records
    steps = 0
    try:
        while True:
            assert next(rest) == []
            steps += 1
    except StopIteration as end:
        whole = end.value
    assert steps == 2, "the first was taken at once"
    assert len(whole.records) == count + 1 and whole.is_cuttable
    assert [type(each.key) for each in whole.records[-2:]] == [OffsetCommitKey, GroupMetadataKey]
    talk._carry_out(whole)
    assert asked.error is ErrorCode.NONE and talk.state() == "Dead" and talk.committed() == -1


def test_offsets_of_a_later_topic_are_passed_over_in_bounded_steps() -> None:
    count = OFFSETS_PER_CALL + 5
    talk = Conversation()
    for partition in range(count):
        talk.commit(7, partition=partition, topic_id=TOPIC_ID if partition >= count - 3 else OTHER_TOPIC_ID)
    request = ForgetTopics({"topic": TOPIC_ID})
    assert [talk.ask(request, 0).response for _ in range(3)] == [OFFSETS_PER_CALL, 5, 0]
    assert talk.committed(partition=count - 1) == -1 and talk.committed(partition=count - 4) == 7
