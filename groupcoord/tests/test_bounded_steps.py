"""No step of a coordinator grows with one group: whatever is asked and due, others have their turn after a bounded work.

Each kind of shard is tried with one group of 10,000 members, 10,000 partitions and 100,000 offsets. Lines of code are counted
between two turns of the event loop, so the tests say the same on any machine. What a shard registers is what has to be tried: a
new request or deadline without a place in these stories fails.
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ottla.groupcoord.groups.offsets.part import AskCommitted, CountOffsets, OffsetsPart
from ottla.groupcoord.groups.offsets.records import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.runtime.transaction_end import TransactionEnd
from ottla.groupcoord.tests.conversation import GROUP, START_MS
from ottla.groupcoord.tests.large_groups import (
    OFFSETS,
    PARTITIONS,
    LargeGroups,
    Measured,
    names_of,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
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
