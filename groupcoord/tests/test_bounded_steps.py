"""No step of a coordinator grows with one group: whatever is asked and due, others have their turn after a bounded work.

Each kind of shard is tried with one group of 10,000 members, 10,000 partitions and 100,000 offsets. Lines of code are counted
between two turns of the event loop, so the tests say the same on any machine. What a shard registers is what has to be tried: a
new request or deadline without a place in these stories fails.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.classic.manager import ClassicGroupManager
from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.manager import ConsumerGroupManager
from ottla.groupcoord.offsets.manager import AskCommitted, CountOffsets, OffsetMetadataManager
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.coordinator_shard import TransactionEnd
from ottla.groupcoord.tests.consumer.test_consumer_migration import assignment, words
from ottla.groupcoord.tests.conversation import GROUP, START_MS
from ottla.groupcoord.tests.large_groups import (
    MEMBERS,
    OFFSETS,
    PARTITIONS,
    LargeGroups,
    Measured,
    names_of,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

pytestmark = pytest.mark.thorough

ALL = range(PARTITIONS)


@pytest.fixture
def measured() -> Measured:
    return Measured()


def check(measured: Measured, wanted: set[str]) -> None:
    """Everything was tried, and nothing took a step that is too long."""
    assert measured.handled == wanted | measured.handled, f"not tried: {wanted - measured.handled}"
    assert not measured.too_long, measured.report()


# ---------------------------------------------------------------------- offsets


def offsets(group: str = GROUP) -> list[OffsetRecord]:
    return [
        OffsetRecord(
            OffsetCommitKey(group=group, topic=f"t{number // PARTITIONS}", partition=number % PARTITIONS),
            OffsetCommitValue(offset=7, metadata="", commit_timestamp=START_MS),
        )
        for number in range(OFFSETS)
    ]


async def test_offsets(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = LargeGroups(measured)
    await talk.begin(nursery, offsets())
    service, groups = talk.groups.offsets, talk.groups

    committed = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=8, committed_metadata="") for each in ALL
    ]
    topics = [OffsetCommitRequestTopic(name="t0", partitions=committed)]
    commit = OffsetCommitRequest(group_id=GROUP, member_id="", topics=topics)
    await talk.asked("OffsetCommit", lambda: service.offset_commit(commit, api_version=9))

    in_transaction = [
        TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=9, committed_metadata="") for each in ALL
    ]
    txn_commit = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=GROUP,
        producer_id=7,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t1", partitions=in_transaction)],
    )
    transactional = talk.groups.transactional_offsets
    await talk.asked("TxnOffsetCommit", lambda: transactional.txn_offset_commit(txn_commit, api_version=5))
    end = TransactionEnd(7, 0, 0, committed=True, transaction_version=2)
    await talk.asked("marker", lambda: talk.groups.end_transaction(talk.groups.partition_for(GROUP), end))
    await talk.wait("settling", 1)

    named = [OffsetFetchRequestTopics(name="t1", partition_indexes=list(ALL))]
    for is_stable in (False, True):
        for asked in (named, None):
            fetch = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=asked)], require_stable=is_stable
            )
            await talk.asked("OffsetFetch", lambda fetch=fetch: service.offset_fetch(fetch, api_version=9))
    with talk.counting("committed"):
        assert sum(len(each) for each in groups.committed(GROUP).values()) == OFFSETS
        assert len(list(groups.all_committed())) == 1
        assert talk.shard.read(CountOffsets(GROUP), now_ms=0) == OFFSETS
        assert talk.shard.read(AskCommitted(GROUP), now_ms=0)

    partitions = [OffsetDeleteRequestPartition(partition_index=each) for each in ALL]
    delete = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t2", partitions=partitions)])
    await talk.asked("OffsetDelete", lambda: service.offset_delete(delete))
    await talk.asked("deleted topic", lambda: talk.groups.on_topics_deleted({"t3": bytes(16)}))
    await talk.wait("retention, none expired", 601)
    await talk.asked("DeleteGroups", lambda: groups.delete_groups(DeleteGroupsRequest(groups_names=[GROUP])))
    check(measured, names_of(talk.part(OffsetMetadataManager)))


async def test_expiry_of_offsets(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = LargeGroups(measured, offsets_retention_minutes=1)
    await talk.begin(nursery, offsets())
    await talk.wait("retention", 601)
    assert not talk.shard.group_count
    check(measured, {"retention"})


# ---------------------------------------------------------------------- classic groups


def classic_group(*, rebalance_ms: int = 60_000) -> GroupMetadataRecord:
    members = [
        MemberMetadata(
            member_id=f"m{number}",
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout=rebalance_ms,
            session_timeout=45_000,
            subscription=words("t0")["range"],
            assignment=assignment(t0={number}),
        )
        for number in range(MEMBERS)
    ]
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m0", members=members)
    return GroupMetadataRecord(GroupMetadataKey(group=GROUP), value)


def join(talk: LargeGroups, number: int, *, rebalance_ms: int = 60_000) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        member_id=f"m{number}",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=words("t0")["range"])],
    )
    return talk.groups.classic.join_group(request, api_version=9, client_id="client", client_host="/127.0.0.1")


def sync(talk: LargeGroups, number: int, generation_id: int, *, leads: bool = False) -> Any:
    given = [
        SyncGroupRequestAssignment(member_id=f"m{each}", assignment=b"a") for each in range(MEMBERS if leads else 0)
    ]
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation_id,
        member_id=f"m{number}",
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    return talk.groups.classic.sync_group(request, api_version=5)


def beat_all(talk: LargeGroups, generation_id: int) -> None:
    for number in range(MEMBERS):
        request = HeartbeatRequest(group_id=GROUP, generation_id=generation_id, member_id=f"m{number}")
        talk.groups.classic.heartbeat(request)


async def test_classic_groups(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = LargeGroups(measured)
    await talk.begin(nursery, [classic_group()])
    classic, groups = talk.groups.classic, talk.groups
    with talk.counting("Heartbeat"):
        classic.heartbeat(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m0"))
    await talk.asked(
        "DescribeGroups", lambda: classic.describe_groups(DescribeGroupsRequest(groups=[GROUP]), api_version=6)
    )
    with talk.counting("AskLastRebalance"):
        groups.last_rebalance(GROUP)
    await talk.asked("ListGroups", lambda: groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[])))

    async def rebalance(name: str, generation_id: int) -> int:
        joins = [join(talk, number) for number in range(MEMBERS - 1)]
        await talk.asked(name, lambda: join(talk, MEMBERS - 1))
        joined = [await finished(each) for each in joins]
        assert joined[0].generation_id == generation_id
        return generation_id

    await rebalance("JoinGroup, the last", 2)
    syncs = [sync(talk, number, 2) for number in range(1, MEMBERS)]
    await talk.asked("SyncGroup, the leader's", lambda: sync(talk, 0, 2, leads=True))
    assert [(await finished(each)).error_code for each in syncs] == [ErrorCode.NONE] * (MEMBERS - 1)

    # Of a rebalance half of the members hear nothing.
    joins = [join(talk, number) for number in range(MEMBERS // 2)]
    for _ in range(3):
        beat_all(talk, 2)
        await talk.wait("join", 25)
    joined = [await finished(each) for each in joins]
    assert joined[0].generation_id == 3 and len(joined[0].members) == MEMBERS // 2
    # Nobody but the leader asks for the assignment.
    for _ in range(3):
        beat_all(talk, 3)
        await talk.wait("sync", 25)

    talk = LargeGroups(measured)
    await talk.begin(nursery, [classic_group()])
    leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=f"m{each}") for each in range(MEMBERS)])
    await talk.asked("LeaveGroup", lambda: talk.groups.classic.leave_group(leave, api_version=5))
    talk = LargeGroups(measured)
    await talk.begin(nursery, [classic_group()])
    await talk.wait("session", 50)
    check(measured, names_of(talk.part(ClassicGroupManager)))


# ---------------------------------------------------------------------- consumer groups


def beat(talk: LargeGroups, member_id: str, epoch: int, **details: Any) -> Any:
    given = (
        {"rebalance_timeout_ms": 20_000, "topic_partitions": [], "subscribed_topic_names": ["t0", "t1"]}
        if not epoch
        else {}
    )
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **(given | details)
    )
    return talk.groups.consumer.heartbeat(request, api_version=1, client_id="client", client_host="/127.0.0.1")


async def test_consumer_groups_of_members_of_both_protocols(
    measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    talk = LargeGroups(measured)
    await talk.begin(nursery, [classic_group(rebalance_ms=20_000)])
    came = await talk.asked("a classic group becomes a consumer group", lambda: beat(talk, "new", 0))
    assert not came.error_code
    await talk.wait("an assignment", 2)
    classic = talk.groups.classic
    heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m1")
    with talk.counting("Heartbeat of a classic member"):
        assert classic.heartbeat(heartbeat).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = await talk.asked("JoinGroup of a classic member", lambda: join(talk, 1))
    synced = await talk.asked("SyncGroup of a classic member", lambda: sync(talk, 1, joined.generation_id))
    assert not synced.error_code
    await finished(join(talk, 2, rebalance_ms=20_000))
    describe = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    described = await talk.asked(
        "ConsumerGroupDescribe", lambda: talk.groups.consumer.describe(describe, operations=lambda group_id: 0)
    )
    assert len(described.groups[0].members) == MEMBERS + 1
    await talk.asked(
        "a pattern", lambda: beat(talk, "pattern", 0, subscribed_topic_regex="t[01]", subscribed_topic_names=None)
    )
    await talk.wait("a pattern and an assignment", 5)
    with talk.counting("AskLastRebalance"):
        assert talk.groups.last_rebalance(GROUP)
    for number in range(3, MEMBERS // 2):
        classic.heartbeat(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=f"m{number}"))
    leaving = [MemberIdentity(member_id=f"m{each}") for each in range(MEMBERS // 2, MEMBERS)]
    leave = LeaveGroupRequest(group_id=GROUP, members=leaving)
    await talk.asked("LeaveGroup", lambda: classic.leave_group(leave, api_version=5))
    await talk.wait("members that do not join, and do not sync", 30)

    # The last member of the newer protocol goes.
    talk = LargeGroups(measured)
    await talk.begin(nursery, [classic_group()])
    await finished(beat(talk, "new", 0))
    await talk.wait("an assignment", 2)
    assert talk.shard._groups[GROUP].group_type == "consumer"
    await talk.asked("a consumer group becomes a classic group", lambda: beat(talk, "new", -1))
    assert talk.shard._groups[GROUP].group_type == "classic"
    part = talk.part(ConsumerGroupManager)
    check(measured, names_of(part) - {"consumer-session", "consumer-revocation"})


def consumer_group(talk: LargeGroups) -> list[Any]:
    """Members that have a partition each of two topics."""
    written: list[Any] = [records.group_record(GROUP, 1, 0), records.target_epoch_record(GROUP, 1, 1)]
    ids = [talk.images.image(name).topic_id for name in ("t0", "t1")]
    for number in range(MEMBERS):
        member_id = f"m{number}"
        words_of_member = records.ConsumerGroupMemberMetadataValue(
            client_id="client",
            client_host="/127.0.0.1",
            subscribed_topic_names=["t0", "t1"],
            rebalance_timeout_ms=20_000,
        )
        current = records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1,
            previous_member_epoch=1,
            state=0,
            assigned_partitions=[
                records.AssignedTopicPartitions(topic_id=each, partitions=[number], assignment_epochs=[1])
                for each in ids
            ],
            partitions_pending_revocation=[],
        )
        written += [
            records.member_record(GROUP, member_id, words_of_member),
            records.target_record(GROUP, member_id, {each: frozenset([number]) for each in ids}),
            records.current_record(GROUP, member_id, current),
        ]
    return written


async def test_consumer_groups(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = LargeGroups(measured)
    await talk.begin(nursery, consumer_group(talk))
    group: Any = talk.shard._groups[GROUP]
    await talk.asked("a heartbeat", lambda: beat(talk, "m0", 1))
    await talk.asked("a newcomer", lambda: beat(talk, "new", 0))
    while group.assignment_epoch < group.group_epoch:
        await talk.wait("an assignment", 2)
        await talk.asked("a heartbeat", lambda: beat(talk, "m0", group.members["m0"].epoch))
    (loser,) = [each for each in group.members if len(group.targets[each]) < 2 and each != "new"]
    for _ in range(2):
        await talk.asked(
            "a member that has to give up a partition", lambda: beat(talk, loser, group.members[loser].epoch)
        )
        await talk.wait("revocation", 11)
    assert loser not in group.members
    await talk.asked("a member that leaves", lambda: beat(talk, "m7", -1))
    talk.images.put("t0", PARTITIONS + 1)
    await talk.asked("a partition more", lambda: beat(talk, "m8", 1))
    await talk.wait("sessions", 60)
    assert not group.members
    await talk.asked("DeleteGroups", lambda: talk.groups.delete_groups(DeleteGroupsRequest(groups_names=[GROUP])))
    check(measured, {"ConsumerGroupHeartbeatRequest", "AssignmentComputed", "consumer-session", "consumer-revocation"})
