"""A partition directory written by Apache Kafka 4.3.1, read, repaired and written again byte for byte.

`golden/golden-0` was made with segment.ms=100000, index.interval.bytes=300: an idempotent producer, two transactional
producers that committed and aborted twice each, and one batch of every codec. Kafka was shut down in order.
`golden/compact-before` is a compacted topic with deletion markers and transactions, `golden/compact-after` what Kafka's own
cleaner left of it in one pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.replication.config import LogConfig
from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.compaction import Limits
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.logs import find, read_batches, read_records
from ottla.replication.log.time_search import MAX_TIMESTAMP
from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.records import iter_batches


def files_in(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (Path(__file__).parent / "golden" / name).iterdir()}


GOLDEN = files_in("golden-0")
CONFIG = LogConfig(index_interval_bytes=300, segment_ms=100_000)
NOW_MS = 1_700_000_600_000
END = 94
ABORTED = [AbortedTransaction(2, 26, 31, 32), AbortedTransaction(2, 38, 43, 44)]


def directory_with(files: dict[str, bytes]) -> LogDirectory:
    storage = MemoryStorage()
    storage.make_directory("/logs")
    storage.make_directory("/logs/golden-0")
    for name, data in files.items():
        storage.write(f"/logs/golden-0/{name}", data)
    return LogDirectory("/logs", storage)


def load(directory: LogDirectory, *, clean: bool) -> PartitionLog:
    return PartitionLog.load(directory, "golden-0", CONFIG, LoadOptions(had_clean_shutdown=clean, now_ms=NOW_MS))


def files_of(directory: LogDirectory, name: str = "golden-0") -> dict[str, bytes]:
    path = f"{directory.path}/{name}"
    return {each: directory.storage.read(f"{path}/{each}") for each in directory.storage.names(path)}


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_understood_and_left_as_it_was(clean: bool) -> None:
    directory = directory_with(GOLDEN)
    log = load(directory, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.latest_leader_epoch) == (0, END, 0)
    assert [record.offset for record in read_records(log)] == list(range(END))
    assert [(each.producer_id, each.epoch, each.last_sequence) for each in log.producers.values()] == [
        (0, 0, 29), (1, 1, 4), (2, 1, 4),
    ]  # fmt: skip
    assert log.aborted_transactions(0, END).transactions == ABORTED
    assert log.aborted_transactions(33, 40).transactions == ABORTED[1:]
    assert log.first_unstable_offset is None
    log.close()
    assert files_of(directory) == GOLDEN


def test_indexes_are_rebuilt_as_kafka_builds_them() -> None:
    # What a killed broker leaves: the active segment's indexes with room for more, no snapshot of the end.
    files = dict(GOLDEN)
    del files["00000000000000000094.snapshot"], files["00000000000000000000.timeindex"]
    files["00000000000000000025.index"] += bytes(8000)
    files["00000000000000000025.timeindex"] = bytes(12_000)
    files["00000000000000000025.txnindex"] = b""
    directory = directory_with(files)
    load(directory, clean=False).close()
    assert files_of(directory) == GOLDEN


def test_the_same_batches_make_the_same_files() -> None:
    directory = directory_with({})
    directory.storage.remove_tree("/logs/golden-0")
    log = PartitionLog.create(directory, "golden", 0, CONFIG, topic_id=b"", now_ms=0)
    for name in sorted(GOLDEN):
        if name.endswith(".log"):
            for _, start, end in iter_batches(GOLDEN[name]):
                log.append_as_follower(memoryview(GOLDEN[name][start:end]), now_ms=NOW_MS)
    log.close()
    written = files_of(directory)
    del written["partition.metadata"]
    assert written == {name: data for name, data in GOLDEN.items() if name != "partition.metadata"}


def test_timestamps_are_found_inside_batches() -> None:
    log = load(directory_with(GOLDEN), clean=True)
    records = read_records(log)
    for wanted in {record.timestamp + delta for record in records for delta in (-1, 0, 1)}:
        found = find(log, wanted)
        expected = next((record for record in records if record.timestamp >= wanted), None)
        assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))
    latest = max(records, key=lambda record: record.timestamp)
    found = find(log, MAX_TIMESTAMP)
    assert found is not None and found.offset == latest.offset


def test_every_offset_can_be_read_from() -> None:
    log = load(directory_with(GOLDEN), clean=True)
    headers = read_batches(log)
    for offset in range(END):
        first = read_batches(log, offset, max_bytes=1)[0]
        assert first.base_offset <= offset <= first.last_offset
        assert first in headers


def test_compaction_leaves_what_kafkas_cleaner_leaves() -> None:
    after = files_in("compact-after")
    first = after[f"{0:020d}.log"]
    (horizon_ms,) = {each.delete_horizon_ms for each, _, _ in iter_batches(first)} - {None}
    retention_ms = 3_600_000
    now_ms = horizon_ms - retention_ms
    directory = directory_with(files_in("compact-before"))
    config = LogConfig(
        cleanup_policy=("compact",),
        index_interval_bytes=300,
        min_cleanable_dirty_ratio=0,
        delete_retention_ms=retention_ms,
    )
    log = PartitionLog.load(directory, "golden-0", config, LoadOptions(had_clean_shutdown=True, now_ms=now_ms))

    async def run(function: Any, *args: Any) -> Any:
        return function(*args)

    cleaner = LogCleaner(run, lambda: now_ms, lambda: None)
    found = cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
    assert found is not None
    trio.run(lambda: cleaner.clean(found, Limits(10**7, 10**6)))
    written = files_of(directory)
    assert {name: written[name] for name in after} == after
