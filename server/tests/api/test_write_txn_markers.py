"""Transactions end in the partitions of a broker: what each partition answers, and what consumers see then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.service import GroupTypes
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.tests.logs import NOW_MS, idempotent
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.replication.partition.partition import Partition
from ottla.server.api.handlers.fetch import fetch
from ottla.server.api.handlers.offsets import offset_fetch
from ottla.server.api.handlers.transactions import write_txn_markers
from ottla.server.api.produce import markers
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.time_slice import TimeSlice

PRODUCER = 7


def end(
    *places: tuple[str, int], commit: bool = True, producer_id: int = PRODUCER, epoch: int = 0, coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:  # fmt: skip
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in places],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def ask(broker: AdministeredBroker, *ends: WritableTxnMarker) -> Any:
    return write_txn_markers(WriteTxnMarkersRequest(markers=list(ends)), broker.context(2))


def results(response: Any) -> dict[tuple[int, str, int], ErrorCode]:
    assert isinstance(response, WriteTxnMarkersResponse)
    return {
        (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code)
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def codes(response: Any) -> list[ErrorCode]:
    return list(results(response).values())


def write(partition: Partition, sequence: int = 0, *, producer_id: int = PRODUCER, epoch: int = 0) -> None:
    """A record within a transaction."""
    records = idempotent(sequence, producer_id=producer_id, epoch=epoch, is_transactional=True)
    partition.append_as_leader(records, required_acks=1, now_ms=NOW_MS, guard=NOT_REQUIRED)


async def with_topic(tmp_path: Path) -> AdministeredBroker:
    broker = await opened(tmp_path)
    await create(broker, creatable("t", 3))
    return broker


def with_followers(partition: Partition) -> None:
    epoch = partition.partition_epoch + 1
    leader_epoch = partition.leader_epoch
    isr = (1, 2)
    partition.make_leader(leader_epoch=leader_epoch, partition_epoch=epoch, replicas=isr, isr=isr, now_ms=NOW_MS)


async def test_a_transaction_ends_in_every_partition_it_names(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    partitions = [broker.partition("t", index) for index in range(3)]
    for partition in partitions:
        write(partition)
    assert [each.last_stable_offset for each in partitions] == [0, 0, 0]
    response = ask(broker, end(("t", 0), ("t", 2)))
    assert results(response) == {(PRODUCER, "t", 0): ErrorCode.NONE, (PRODUCER, "t", 2): ErrorCode.NONE}
    assert [each.last_stable_offset for each in partitions] == [2, 0, 2]
    assert [each.log_end_offset for each in partitions] == [2, 1, 2]


async def test_each_partition_answers_for_itself(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    write(broker.partition("t", 0), epoch=3)
    write(broker.partition("t", 1))
    assert codes(ask(broker, end(("t", 1), coordinator_epoch=4))) == [ErrorCode.NONE]
    followed = broker.partition("t", 2)
    followed.make_follower(leader_id=2, leader_epoch=9, partition_epoch=9, replicas=(1, 2))
    response = ask(broker, end(("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), coordinator_epoch=3))
    assert codes(response) == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.partition("t", 0).last_stable_offset == 0


async def test_a_replica_on_a_failed_disk_is_as_good_as_none(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    broker.partition("t", 0).log.log_directory.take_offline(OSError("broken"))
    assert codes(ask(broker, end(("t", 0)))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, 0, ErrorCode.NONE),
        (1, 0, ErrorCode.NONE),
        (2, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 1, ErrorCode.NONE),
        (3, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (-1, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_the_transaction_version_says_which_epoch_ends_a_transaction(
    tmp_path: Path, version: int, epoch: int, code: ErrorCode
) -> None:
    broker = await with_topic(tmp_path)
    write(broker.partition("t", 0))
    assert codes(ask(broker, end(("t", 0), epoch=epoch, version=version))) == [code]
    assert broker.partition("t", 0).log_end_offset == (1 if code else 2)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (PRODUCER, -1), (-1, -1)])
async def test_a_marker_without_a_producer_is_not_written(tmp_path: Path, producer_id: int, epoch: int) -> None:
    broker = await with_topic(tmp_path)
    response = ask(broker, end(("t", 0), ("u", 0), producer_id=producer_id, epoch=epoch))
    assert codes(response) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.partition("t", 0).log_end_offset == 0


async def test_a_partition_that_is_named_twice_gets_one_marker(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    write(broker.partition("t", 0))
    assert codes(ask(broker, end(("t", 0), ("t", 0)))) == [ErrorCode.NONE]
    assert broker.partition("t", 0).log_end_offset == 2


async def test_results_stand_together_by_producer(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    response = ask(broker, end(("t", 0)), end(("t", 1), producer_id=8), end(("t", 0), ("t", 2), epoch=1))
    assert [marker.producer_id for marker in response.markers] == [PRODUCER, 8]
    assert set(codes(response)) == {ErrorCode.NONE}
    # The answer to the later one counts where a producer's transactions both end in a partition.
    assert codes(ask(broker, end(("t", 0), epoch=2), end(("t", 0), epoch=1))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert ask(broker).markers == []


async def test_the_answer_waits_for_the_replicas(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    partitions = [broker.partition("t", index) for index in (0, 1)]
    for partition in partitions:
        with_followers(partition)
    pending = ask(broker, end(("t", 0), ("t", 1), ("t", 2)))
    partitions[0].on_follower_fetch(2, 1, 0, now_ms=NOW_MS)
    assert not pending.is_ready
    partitions[1].on_follower_fetch(2, 1, 0, now_ms=NOW_MS)
    assert pending.is_ready
    assert codes(pending.response()) == [ErrorCode.NONE] * 3
    assert not len(broker.replicas.produce_purgatory)


async def test_a_marker_without_enough_replicas_is_not_written(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    partition = broker.partition("t", 0)
    with_followers(partition)
    partition.min_isr = 3
    assert codes(ask(broker, end(("t", 0)))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert partition.log_end_offset == 0


async def test_the_time_for_the_replicas_is_limited(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    broker = await with_topic(tmp_path)
    for index in (0, 1):
        with_followers(broker.partition("t", index))
    pending = ask(broker, end(("t", 0), ("t", 1)))
    broker.partition("t", 1).on_follower_fetch(2, 1, 0, now_ms=NOW_MS)
    ready = trio.Event()
    pending.on_ready = ready.set
    began = trio.current_time()
    await ready.wait()
    assert trio.current_time() - began == pytest.approx(30, abs=0.1)
    assert codes(pending.response()) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert not len(broker.replicas.produce_purgatory)


async def test_who_leaves_waits_for_nothing(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    with_followers(broker.partition("t", 0))
    ask(broker, end(("t", 0))).abandon()
    assert not len(broker.replicas.produce_purgatory)


async def test_very_many_markers_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await with_topic(tmp_path)
    turns = []

    async def yield_if_over(self: TimeSlice) -> None:
        turns.append(None)
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(TimeSlice, "yield_if_over", yield_if_over)
    monkeypatch.setattr(markers, "MARKERS_AT_ONCE", 2)
    with_followers(broker.partition("t", 0))
    pending = await ask(broker, end(("t", 0), ("t", 1), ("t", 2)))
    assert len(turns) == 3
    broker.partition("t", 0).on_follower_fetch(2, 1, 0, now_ms=NOW_MS)
    assert codes(pending.response()) == [ErrorCode.NONE] * 3
    with trio.CancelScope() as scope:
        scope.cancel()
        await ask(broker, end(("t", 0), ("t", 1), ("t", 2)))
    assert scope.cancelled_caught
    assert not len(broker.replicas.produce_purgatory)


# ---------------------------------------------------------------------- what consumers see


async def fetched(broker: AdministeredBroker, *, committed: bool, version: int = 12) -> Any:
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=int(committed),
        topics=[
            FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)])
        ],
    )
    response: Any = fetch(request, broker.context(version))
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", [4, 12])
async def test_readers_of_committed_records_hear_what_was_aborted(tmp_path: Path, version: int) -> None:
    broker = await with_topic(tmp_path)
    partition = broker.partition("t", 0)
    write(partition)
    write(partition, producer_id=8)
    told = await fetched(broker, committed=True, version=version)
    assert (told.last_stable_offset, told.high_watermark, told.aborted_transactions) == (0, 2, [])
    ask(broker, end(("t", 0), commit=False))
    told = await fetched(broker, committed=True, version=version)
    assert (told.last_stable_offset, told.high_watermark) == (1, 3)
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions] == [(PRODUCER, 0)]
    ask(broker, end(("t", 0), producer_id=8))
    told = await fetched(broker, committed=True, version=version)
    assert (told.last_stable_offset, told.high_watermark) == (4, 4)
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions] == [(PRODUCER, 0)]
    assert (await fetched(broker, committed=False, version=version)).aborted_transactions is None


async def test_a_marker_wakes_who_waits_for_committed_records(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    write(broker.partition("t", 0))
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1,
        isolation_level=1,
        topics=[
            FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)])
        ],
    )
    pending: Any = fetch(request, broker.context(12))
    assert not pending.is_ready
    ask(broker, end(("t", 0)))
    assert pending.is_ready
    assert pending.response().responses[0].partitions[0].last_stable_offset == 2


# ---------------------------------------------------------------------- groups


async def test_offsets_of_a_group_count_from_the_marker_on(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    await broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    index = broker.groups.partition_for("g")
    partition = broker.partition(GROUP_METADATA_TOPIC, index)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=NOW_MS)
    batch = encode_batch(
        [Record(0, NOW_MS, *GroupTypes().formats.encode_record(OffsetRecord(key, value)))],
        producer_id=PRODUCER, producer_epoch=0, is_transactional=True,
    )  # fmt: skip
    partition.append_as_leader(
        memoryview(bytearray(batch)),
        required_acks=-1,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
        guard=NOT_REQUIRED,
    )
    broker.groups.on_election(index)
    assert codes(ask(broker, end((GROUP_METADATA_TOPIC, index)))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]  # it loads
    await trio.testing.wait_all_tasks_blocked()
    assert partition.last_stable_offset == 0
    with_followers(partition)
    pending = ask(broker, end((GROUP_METADATA_TOPIC, index), ("t", 0)))
    assert not pending.is_ready
    partition.on_follower_fetch(2, 2, 0, now_ms=NOW_MS)
    ready = trio.Event()
    pending.on_ready = ready.set
    await ready.wait()
    assert codes(pending.response()) == [ErrorCode.NONE] * 2
    assert partition.last_stable_offset == 2
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    told: Any = offset_fetch(OffsetFetchRequest(group_id="g", topics=topics), broker.context(7))
    assert told.topics[0].partitions[0].committed_offset == 5
