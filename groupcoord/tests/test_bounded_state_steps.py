"""No step of a transaction or share coordinator grows with one transaction or share group; see `test_bounded_steps.py`."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.coordinator.service import BATCHES_MAX
from ottla.groupcoord.tests.fakes import FakeTopics
from ottla.groupcoord.tests.large_groups import MEMBERS, PARTITIONS, Measured
from ottla.groupcoord.tests.share.test_share_coordinator import ShareCoordination
from ottla.groupcoord.tests.transactions.test_transaction_service import ID, NOW_MS
from ottla.groupcoord.tests.transactions.test_transaction_service import Coordination as Transactions
from ottla.groupcoord.transactions.metadata import (
    COMPLETE_COMMIT,
    NO_PARTITIONS,
    ONGOING,
    Partitions,
    TransactionMetadata,
)
from ottla.groupcoord.transactions.records import TransactionRecord, encode_records
from ottla.groupcoord.transactions.shard import _Scan
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.thorough

ALL = range(PARTITIONS)
BATCHES = 10_000
DAY_S = 24 * 3600


@pytest.fixture
def measured() -> Measured:
    return Measured()


async def test_transactions(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = Transactions()
    talk.topics.counts["topic"] = PARTITIONS
    # Beside the large transaction are very many small ones, half of them at rest.
    others = [f"other{number}" for number in range(MEMBERS)]
    for number, name in enumerate(others):
        state, partitions = (ONGOING, Partitions.of([("topic", 0)])) if number % 2 else (COMPLETE_COMMIT, NO_PARTITIONS)
        metadata = TransactionMetadata(number, 0, 60_000, state, partitions, NOW_MS, NOW_MS)
        talk.log.append(talk.service.partition_for(name), encode_records([TransactionRecord(name, metadata)], 1))
    await talk.start(nursery)
    for partition in talk.service._runtime.partitions():
        shard: Any = partition.shard(0)
        measured.watch(shard._handlers)
        scans = {name for name, value in vars(shard).items() if isinstance(value, _Scan)}
        for name, scan in (("_overdue_scan", "_abort_overdue"), ("_expiry_scan", "_forget_expired")):
            setattr(shard, scan, measured._noting(name, getattr(shard, scan)))

    producer = await talk.init()
    whole = {"topic": list(ALL)}
    with measured.counting("AddPartitionsToTxn"):
        await talk.add(producer, {"topic": list(range(5_000))}, version=5)
        added = await talk.add(producer, whole, version=5)
    assert not any(added.values())
    with measured.counting("AddPartitionsToTxn, to verify"):
        await talk.add(producer, whole, version=5, verify=True)
    with measured.counting("DescribeTransactions, ListTransactions"):
        await talk.describe(ID, *others)
        await talk.list()
    with measured.counting("InitProducerId of a running transaction"):
        assert (await talk.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    with measured.counting("markers written"):
        for _, owed in talk.markers.owed:
            assert not await finished(talk.service.complete(owed))
    producer = await talk.init()
    await talk.add(producer, whole, version=5)
    with measured.counting("EndTxn"):
        assert not (await talk.end(producer)).error_code
    producer = await talk.init()

    talk.timestamp_ms += 120_000
    with measured.counting("transactions that are too old"):
        await trio.sleep(20)
    assert sum(not owed.is_commit for _, owed in talk.markers.owed) == MEMBERS // 2 + 1
    talk.timestamp_ms += 8 * DAY_S * 1000
    with measured.counting("ids that have rested too long"):
        await trio.sleep(2 * 3600)
    with measured.counting("deleted topic"):
        await talk.service.on_topics_deleted({"topic": bytes(16)})
    wanted = {each.__name__ for each in shard._handlers} | scans
    assert measured.handled >= wanted, f"not tried: {wanted - measured.handled}"
    assert not measured.too_long, measured.report()


async def test_share_state(measured: Measured, nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = ShareCoordination(share_coordinator_snapshot_update_records_per_snapshot=3)
    talk.topics = FakeTopics(topic=PARTITIONS, other=2)
    talk.coordinator = talk.new_coordinator()
    await talk.start(nursery)
    for partition in talk.coordinator._runtime.partitions():
        shard: Any = partition.shard(0)
        measured.watch(shard._handlers)
        shard._cold_snapshots = measured._noting("cold", shard._cold_snapshots)

    async def asked(name: str, answer: Any) -> Any:
        with measured.counting(name):
            return await finished(answer())

    await asked("Initialize", lambda: talk.initialize(*ALL))
    await asked("Write", lambda: talk.write(*ALL))
    for number in range(5):
        await asked(
            "Write, of many batches",
            lambda number=number: talk.write(0, batches=min(BATCHES, BATCHES_MAX), offset=number),
        )
    await asked("Read", lambda: talk.read(*ALL))
    await asked("Read, by a new leader", lambda: talk.read(*ALL, leader_epoch=1))
    await asked("ReadSummary", lambda: talk.summaries(*ALL))
    with measured.counting("snapshots of what is written to rarely"):
        await trio.sleep(2 * 3600)
    await asked("Delete", lambda: talk.delete(*range(PARTITIONS // 2)))
    with measured.counting("deleted topic"):
        await talk.coordinator.on_topics_deleted({"topic": talk.topic_id})
    wanted = {each.__name__ for each in shard._handlers} | {"cold"}
    assert measured.handled >= wanted, f"not tried: {wanted - measured.handled}"
    assert not measured.too_long, measured.report()
