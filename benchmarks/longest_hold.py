"""How long single pieces of work hold the event loop: `python -m benchmarks.longest_hold`.

A probe task asks for its turn every millisecond, while another task does what is measured. It notes the longest time it
had to wait, and the most processor time the event loop's thread used between two turns, which says the same on a machine that
has other work to do. It needs some 200 MB in the system's temporary directory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio

from ottla.replication.config import LogConfig
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory, OsStorage
from ottla.replication.partition.partition import Partition
from ottla.replication.slices import Slices
from ottla.server.gate.context import RequestContext
from ottla.server.handlers.list_offsets import list_offsets
from ottla.wire.compression import Compression
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000
SEGMENTS = 2_000
PRODUCERS = 100_000
Work = Callable[[], Awaitable[object]]


async def measure(what: str, work: Work) -> None:
    """Print how long `work` took and held the loop at most."""
    longest = busiest = 0.0
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def probe() -> None:
                nonlocal longest, busiest
                while True:
                    before, worked = time.perf_counter(), time.thread_time()
                    await trio.sleep(0.001)
                    longest = max(longest, time.perf_counter() - before - 0.001)
                    busiest = max(busiest, time.thread_time() - worked)

            nursery.start_soon(probe)
            await trio.sleep(0.01)
            started = time.perf_counter()
            await work()
            took = time.perf_counter() - started
            await trio.sleep(0.002)
            scope.cancel()
    print(f"{what:75} {took * 1000:8.1f} ms, longest wait {longest * 1000:6.1f} ms, of which work {busiest * 1000:5.1f} ms")


def new_log(root: Path, name: str, **config: Any) -> PartitionLog:
    """An empty log on the disk."""
    return PartitionLog.create(
        LogDirectory(str(root), OsStorage()), name, 0, LogConfig(**config), topic_id=None, now_ms=NOW_MS
    )


def append(log: PartitionLog, *records: Record, **options: Any) -> None:
    """Append one batch."""
    log.append_as_leader(memoryview(bytearray(encode_batch(records, **options))), leader_epoch=0, now_ms=NOW_MS)


async def look_ups(root: Path) -> None:
    """Ask 100 partitions with ordinary compressed batches for a time."""
    records = [Record(n, NOW_MS + n // 200, b"key%d" % n, b"value %08d " % n * 6) for n in range(9_000)]
    partitions = []
    for index in range(100):
        log = new_log(root, f"times{index}")
        append(log, *records, compression=Compression.ZSTD)
        partition = Partition("t", index, log, local_id=1)
        partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
        partitions.append(partition)
    broker = SimpleNamespace(partition=lambda topic, index: partitions[index])
    for what, timestamp in (("by time", NOW_MS + 40), ("max timestamp", -3)):
        wishes = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(100)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wishes)])

        async def ask(request: ListOffsetsRequest = request) -> None:
            await cast(Any, list_offsets(request, RequestContext(cast(Any, broker), api_version=7)))

        await measure(f"ListOffsets {what}: 100 partitions, batches of 9,000 records, zstd", ask)


async def cuts(root: Path) -> None:
    """Cut one record off a log of idempotent batches."""
    log = new_log(root, "cut")
    for sequence in range(100_000):
        append(log, Record(0, NOW_MS, b"k", b"v" * 300), producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def cut() -> None:
        truncation = log.prepare_truncation(99_999, now_ms=NOW_MS)
        assert truncation is not None
        await trio.to_thread.run_sync(truncation.run)
        log.truncate_to(99_999, now_ms=NOW_MS, truncation=truncation)

    await measure(f"Truncation: {log.size_in_bytes >> 20} MB, 100,000 idempotent batches in one segment", cut)


async def producers(root: Path) -> None:
    """Roll and expire with very many producers."""
    log = new_log(root, "producers")
    for producer_id in range(PRODUCERS):
        append(log, Record(0, NOW_MS, b"k", b"v"), producer_id=producer_id, producer_epoch=0, base_sequence=0)

    async def roll() -> None:
        log.roll(NOW_MS)
        job = log.prepare_flush(include_active=False)
        assert job is not None
        await trio.to_thread.run_sync(job.run)
        log.finish_flush(job)

    async def expire() -> None:
        slices = Slices()
        for _ in log.remove_expired_producers(NOW_MS, 86_400_000):
            await slices.give_way()

    await measure(f"Roll and flush with {PRODUCERS:,} producers", roll)
    await measure(f"Looking for expired ones among {PRODUCERS:,} producers", expire)


async def retention(root: Path) -> None:
    """Give up very many segments, after a restart."""
    log = new_log(root, "segments", retention_ms=1000)
    for _ in range(SEGMENTS):
        append(log, Record(0, NOW_MS, b"k", b"v"))
        log.roll(NOW_MS)
    log.flush()
    log.close()
    options = LoadOptions(had_clean_shutdown=True, recovery_point=log.log_end_offset, now_ms=NOW_MS)
    log = PartitionLog.load(LogDirectory(str(root), OsStorage()), "segments-0", log.config, options)

    async def give_up() -> None:
        slices = Slices()
        while log.delete_old_segments(NOW_MS + 10_000_000, log.log_end_offset, limit=16):
            await slices.give_way()

    await measure(f"Retention of {SEGMENTS:,} expired segments, first look", give_up)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for work in (look_ups, cuts, producers, retention):
            await work(Path(name))


if __name__ == "__main__":
    trio.run(main)
