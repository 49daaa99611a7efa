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

from ottla.groupcoord.groups.classic.part import ClassicGroups
from ottla.groupcoord.groups.classic.records import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.groupcoord.groups.offsets.part import AskCommitted, CountOffsets, OffsetsPart
from ottla.groupcoord.groups.offsets.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.transaction_end import TransactionEnd
from ottla.groupcoord.tests.conversation import GROUP, START_MS, subscription
from ottla.groupcoord.tests.large_groups import (
    MEMBERS,
    OFFSETS,
    PARTITIONS,
    LargeGroups,
    Measured,
    names_of,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

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


async def test_offsets(
    measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    talk = LargeGroups(measured)
    await talk.begin(nursery, offsets())
    service, administration = talk.groups.offsets, talk.groups.administration

    committed = [OffsetCommitRequestPartition(partition_index=each, committed_offset=8, committed_metadata="") for each in ALL]
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
        assert sum(len(each) for each in administration.committed(GROUP).values()) == OFFSETS
        assert len(list(administration.all_committed())) == 1
        assert talk.shard.read(CountOffsets(GROUP), now_ms=0) == OFFSETS
        assert talk.shard.read(AskCommitted(GROUP), now_ms=0)

    partitions = [OffsetDeleteRequestPartition(partition_index=each) for each in ALL]
    delete = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t2", partitions=partitions)])
    await talk.asked("OffsetDelete", lambda: service.offset_delete(delete))
    await talk.asked("deleted topic", lambda: talk.groups.on_topics_deleted({"t3": bytes(16)}))
    await talk.wait("retention, none expired", 601)
    await talk.asked("DeleteGroups", lambda: administration.delete_groups(DeleteGroupsRequest(groups_names=[GROUP])))
    check(measured, names_of(talk.part(OffsetsPart)))


async def test_expiry_of_offsets(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = LargeGroups(measured, offsets_retention_minutes=1)
    await talk.begin(nursery, offsets())
    await talk.wait("retention", 601)
    assert not talk.shard.group_count
    check(measured, {"retention"})


# ---------------------------------------------------------------------- classic groups


def classic_group() -> GroupMetadataRecord:
    members = [
        MemberMetadata(
            member_id=f"m{number}",
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout=60_000,
            session_timeout=45_000,
            subscription=subscription("t0"),
            assignment=b"assignment",
        )
        for number in range(MEMBERS)
    ]
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m0", members=members)
    return GroupMetadataRecord(GroupMetadataKey(group=GROUP), value)


def join(talk: LargeGroups, number: int) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        member_id=f"m{number}",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t0"))],
    )
    return talk.groups.classic.join_group(request, api_version=9, client_id="client", client_host="/127.0.0.1")


def sync(talk: LargeGroups, number: int, generation_id: int, *, leads: bool = False) -> Any:
    given = [SyncGroupRequestAssignment(member_id=f"m{each}", assignment=b"a") for each in range(MEMBERS if leads else 0)]
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
    classic, administration = talk.groups.classic, talk.groups.administration
    with talk.counting("Heartbeat"):
        classic.heartbeat(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m0"))
    await talk.asked("DescribeGroups", lambda: classic.describe_groups(DescribeGroupsRequest(groups=[GROUP]), api_version=6))
    with talk.counting("AskLastRebalance"):
        administration.last_rebalance(GROUP)
    await talk.asked("ListGroups", lambda: administration.list_groups(ListGroupsRequest(states_filter=[], types_filter=[])))

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
    check(measured, names_of(talk.part(ClassicGroups)))
