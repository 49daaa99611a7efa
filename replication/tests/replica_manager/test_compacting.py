"""The cleaner among the other work of a broker: its settings, retention of compacted logs, and its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.config import LogConfig
from ottla.replication.log.checkpoints import decode_offsets, encode_offsets
from ottla.replication.log.names import CLEANER_OFFSET_CHECKPOINT
from ottla.replication.log.tests.logs import offsets, read_batches
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import Disk, Hosted, partition_of, produce

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.01)
BOTH = replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=60_000)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def fill(manager: ReplicaManager, topic: str = "topic", count: int = 5) -> None:
    for _ in range(count):
        produce(partition_of(manager, topic), value=b"x" * 100)


def noted(disk: Disk) -> dict[tuple[str, int], int]:
    return decode_offsets(disk.storage.read(f"/logs/{CLEANER_OFFSET_CHECKPOINT}"))


class Watched(Disk):
    """Threads take a while, and those of the cleaner are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0
        self.at_once = 0
        self.at_once_max = 0
        self.on_piece: Callable[[], object] = lambda: None

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        if function is not next:
            return await super().run_in_thread(function, *args)
        self.pieces += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await trio.sleep(0.5)
        self.at_once -= 1
        result = function(*args)
        self.on_piece()
        return result


@pytest.mark.parametrize(("threads", "at_once"), [(0, 0), (1, 1), (2, 2), (9, 3)])
async def test_so_many_logs_are_compacted_at_the_same_time(
    threads: int, at_once: int, autojump_clock: MockClock
) -> None:
    disk = Watched()
    topics = [Hosted(topic, config=COMPACTED) for topic in ("a", "b", "c")]
    async with disk.broker(*topics, log_cleaner_threads=threads) as manager:
        for hosted in topics:
            fill(manager, hosted.topic)
        await trio.sleep(100)
        assert disk.at_once_max == at_once
        assert noted(disk) == ({(topic, 0): 4 for topic in "abc"} if threads else {})


async def test_the_rate_bounds_what_is_read_and_written(disk: Disk, autojump_clock: MockClock) -> None:
    topics = [Hosted(topic, config=COMPACTED) for topic in ("a", "b")]
    settings: dict[str, Any] = {"log_cleaner_io_max_bytes_per_second": 10.0, "log_cleaner_threads": 2}
    async with disk.broker(*topics, **settings) as manager:
        fill(manager, "a")
        fill(manager, "b")
        size = sum(partition_of(manager, topic).log.size_in_bytes for topic in "ab")
        # Each log is read twice but for its last batch, and its last clean batch is written.
        seconds = size * (2 * 4 / 5 + 1 / 5) / 10
        await trio.sleep(seconds)
        assert noted(disk).get(("a", 0)) != 4 or noted(disk).get(("b", 0)) != 4
        await trio.sleep(40)
        assert noted(disk) == {("a", 0): 4, ("b", 0): 4}


async def test_a_setting_that_is_taken_back_ends_the_pass(autojump_clock: MockClock) -> None:
    disk = Watched()
    async with disk.broker(Hosted(config=COMPACTED)) as manager:
        log = partition_of(manager).log
        fill(manager)
        disk.on_piece = lambda: setattr(log, "config", replace(COMPACTED, cleanup_policy=("delete",)))
        await trio.sleep(100)
        assert disk.pieces == 1
        assert offsets(read_batches(log)) == [0, 1, 2, 3, 4]
        disk.on_piece = lambda: None
        log.config = COMPACTED
        await trio.sleep(100)
        assert offsets(read_batches(log)) == [3, 4]


async def test_the_cleaner_lets_retention_take_what_it_may_of_compacted_logs(
    disk: Disk, autojump_clock: MockClock
) -> None:
    never: dict[str, Any] = {"log_retention_check_interval_ms": 10**9}
    async with disk.broker(Hosted(config=BOTH), Hosted("kept", config=COMPACTED), **never) as manager:
        fill(manager)
        fill(manager, "kept")
        await trio.sleep(100)
        assert partition_of(manager).log.log_start_offset == 5
        assert partition_of(manager, "kept").log.log_start_offset == 0


async def test_without_a_cleaner_compacted_logs_keep_everything(disk: Disk, autojump_clock: MockClock) -> None:
    deleted = replace(BOTH, cleanup_policy=("delete",))
    async with disk.broker(Hosted(config=BOTH), Hosted("brief", config=deleted), log_cleaner_enable=False) as manager:
        fill(manager)
        fill(manager, "brief")
        await trio.sleep(1000)
        assert partition_of(manager).log.log_start_offset == 0
        assert partition_of(manager, "brief").log.log_start_offset == 5


async def test_a_cut_of_what_is_clean_is_in_the_checkpoint_at_once(disk: Disk, autojump_clock: MockClock) -> None:
    """Above the recovery point, too: a deletion marker written there would else count as clean, and go before its value."""
    async with disk.broker(Hosted(config=COMPACTED)) as manager:
        fill(manager)
        await trio.sleep(40)
        assert noted(disk) == {("topic", 0): 4}
        partition_of(manager).truncate_to(2, now_ms=disk.now_ms())
        await trio.sleep(0.1)
        assert noted(disk) == {("topic", 0): 2}


async def test_a_checkpoint_beyond_the_end_of_its_log_is_not_believed(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=COMPACTED)) as manager:
        fill(manager)
    for number, expected in ((5, 5), (6, -1)):
        disk.storage.replace(f"/logs/{CLEANER_OFFSET_CHECKPOINT}", encode_offsets({("topic", 0): number}))
        async with disk.broker(Hosted(config=COMPACTED)) as manager:
            assert partition_of(manager).log.first_dirty_offset == expected


async def test_a_move_to_another_disk_ends_the_pass(autojump_clock: MockClock) -> None:
    """The copy is of the log as it is. What was compacted under it would be missing, or be there twice."""
    disk = Watched()
    async with disk.broker(Hosted(config=COMPACTED), log_dirs=("/a", "/b")) as manager:
        partition = partition_of(manager)
        fill(manager)
        there = "/b" if partition.log.log_directory.path == "/a" else "/a"
        has_begun = trio.Event()
        disk.on_piece = has_begun.set
        await has_begun.wait()
        disk.on_piece = lambda: None
        await manager.moves.move(partition, manager.moves.destination("topic", 0, there))
        disk.thread_delay_s = 5  # the copy takes longer than many pieces
        while partition.log.log_directory.path != there:
            await trio.sleep(0.1)
        assert disk.pieces == 2  # the one under way was not followed by another
        assert offsets(read_batches(partition.log)) == [0, 1, 2, 3, 4]
        disk.thread_delay_s = 0
        await trio.sleep(40)
        assert offsets(read_batches(partition.log)) == [3, 4]
