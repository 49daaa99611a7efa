"""Periodic work on all partitions: retention, compaction, checkpoints, expiry of producers; and repairs of indexes.

Each of these goes round on its own. They give way to requests after a few milliseconds, and what fails is tried again in
the next round.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.replication.log.removal import Removal, warm
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segment_snapshots import Survey
from ottla.replication.partition.partition import Partition, PartitionRegistry
from ottla.wire.errors import KafkaError
from ottla.wire.settings import DOUBLE_MAX
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.log.cleaner import Cleanable, LogCleaner
    from ottla.replication.log.compaction import Limits
    from ottla.replication.log.storage import LogDirectory
    from ottla.replication.partition.removals import Removals
    from ottla.replication.replica_manager.flushing import CheckpointWriter
    from ottla.replication.replica_manager.log_dir_moves import LogDirMoves
    from ottla.replication.replica_manager.log_directory_registry import LogDirectoryRegistry

logger = logging.getLogger("ottla.replication")


RunInThread = Callable[..., Awaitable[Any]]


class Repairer:
    """Background worker that rebuilds damaged indexes, one segment at a time, in a thread.

    Readers that meet a large segment's damaged indexes, or need timestamps that are not loaded yet, get
    `DamagedIndexes` and must retry. The log requests the repair here, and gets the new indexes when they are complete.
    """

    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._requests: dict[Segment, LogReader] = {}  # those to be repaired and the one in work, each once
        self._wanted = trio.Event()
        self._done = trio.Event()  # of the repair in work; replaced with each

    def request(self, log: LogReader, segment: Segment) -> None:
        """Request a check of a segment; its indexes are rebuilt if they are damaged."""
        self._requests.setdefault(segment, log)
        self._wanted.set()

    async def until_done(self, segment: Segment) -> None:
        """Wait until the request for a segment has succeeded or failed."""
        while segment in self._requests:
            await self._done.wait()

    async def run(self) -> None:
        """Carry out requested repairs, one at a time, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._requests:
                segment, log = next(iter(self._requests.items()))
                try:
                    await self._repair(log, segment)
                finally:
                    # Only now, not when it begins: readers that come back meanwhile would ask for the same work again.
                    del self._requests[segment]
                    self._done.set()
                    self._done = trio.Event()

    async def _repair(self, log: LogReader, segment: Segment) -> None:
        # Retention, a cut or a deletion may have come first.
        if segment not in log.segments or not log.log_directory.is_online:
            return
        # The thread reads a snapshot of the segment. `finish` drops what it found if the log has changed under it.
        survey = Survey(log, [segment])
        await self._run_in_thread(survey.run)
        try:
            survey.finish()
        except OSError as error:
            logger.error("%r cannot be repaired: %s", segment, log.storage_error(error))
        except (CorruptIndex, CorruptSegment, KafkaError) as error:
            logger.error("%r cannot be repaired: %s", segment, error)


SEGMENTS_PER_SLICE = 16  # that are looked at, or given up


async def apply_retention(
    partitions: Iterable[Partition],
    repairer: Repairer,
    clock_ms: Callable[[], int],
    removals: Removals,
    run_in_thread: RunInThread,
) -> None:
    """Delete old segments of all partitions, a few segments at a time; report to `removals` the records that went.

    A segment without a time index is first read by the repairer's thread; its partition's retention waits for that.
    """
    # One budget for all partitions: ten thousand that each take a little would else hold the event loop.
    time_slice = TimeSlice()
    with removals.run(clock_ms()) as run:
        for partition in partitions:
            removal = run.removal()
            try:
                look = partial(_look_at_expired, partition, clock_ms)
                await _delete_old_segments(
                    partition, repairer, clock_ms, time_slice, removal, partial(warm, look, run_in_thread)
                )
            # One log that cannot be read must not keep the others from giving up what fills the disk.
            except KafkaError as error:
                logger.error("Retention of %s failed: %s", partition.log.directory, error)
            finally:  # a stop of the broker or an error leaves a part, which is told as well
                run.note_log(partition.topic, partition.index, removal)
            await time_slice.yield_if_over()


def _look_at_expired(partition: Partition, clock_ms: Callable[[], int]) -> None:
    # Asked again after each page that a thread has read.
    if not partition.is_deleted and partition.log.log_directory.is_online:
        partition.look_at_expired(clock_ms(), limit=SEGMENTS_PER_SLICE)


async def _delete_old_segments(
    partition: Partition,
    repairer: Repairer,
    clock_ms: Callable[[], int],
    time_slice: TimeSlice,
    removal: Removal,
    warm_times: Callable[[], Awaitable[None]],
) -> None:
    was_read: Segment | None = None
    while True:
        if removal.reads_times:
            await warm_times()
        # Asked again after each turn, because the partition may be deleted, or its disk fail, while others run.
        if partition.is_deleted or not partition.log.log_directory.is_online:
            return
        try:
            is_over = time_slice.is_over
            if not partition.delete_old_segments(
                clock_ms(), limit=SEGMENTS_PER_SLICE, is_enough=is_over, removal=removal
            ):
                return
        except DamagedIndexes as damage:  # the log has asked the repairer
            # The repair did not help. To wait for it again would go on forever.
            if damage.segment is was_read:
                raise
            was_read = damage.segment
            await repairer.until_done(was_read)
        await time_slice.yield_if_over()


INITIAL_DELAY_S = 30  # Kafka's InitialTaskDelayMs; the first round waits no longer than that


Work = Callable[[], Awaitable[None]]
IntervalMs = Callable[["ReplicationConfig"], int]


class Housekeeping:
    """Runner of periodic background work; `config()` returns the present settings."""

    def __init__(
        self,
        registry: PartitionRegistry,
        directories: LogDirectoryRegistry,
        *,
        config: Callable[[], ReplicationConfig],
        checkpoints: CheckpointWriter,
        repairer: Repairer,
        moves: LogDirMoves,
        removals: Removals,
        clock_ms: Callable[[], int],
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._config = config
        self._checkpoints = checkpoints
        self._repairer = repairer
        self._moves = moves
        self._removals = removals
        self._clock_ms = clock_ms
        self._run_in_thread = run_in_thread
        self._being_compacted: set[Partition] = set()
        self._paid_until = 0.0

    @property
    def compacted_now(self) -> int:
        """Number of logs in compaction."""
        return len(self._being_compacted)

    @property
    def not_compacted(self) -> int:
        """Number of compacted logs that are skipped after a failed compaction, temporarily or until a restart."""
        return self._cleaner.paused_count if "_cleaner" in self.__dict__ else 0

    @cached_property
    def _cleaner(self) -> LogCleaner:
        from ottla.replication.log.cleaner import LogCleaner  # here, because a start needs none

        return LogCleaner(self._run_in_thread, self._clock_ms, pay=self._pay_for_compaction)

    async def run(self) -> None:
        """Run each periodic task at its interval, until cancelled."""
        periodic: list[tuple[Work, IntervalMs]] = [
            (self.apply_retention, lambda config: config.log_retention_check_interval_ms),
            (self._checkpoint_high_watermarks, lambda config: config.replica_high_watermark_checkpoint_interval_ms),
            (self.checkpoint_all, _checkpoint_interval_ms),
            (self._expire_producers, lambda config: config.producer_id_expiration_check_interval_ms),
            # 0 is a valid setting and must not make a busy loop, here and for checkpoints.
            (self.compact, lambda config: max(config.log_cleaner_backoff_ms, 100)),
        ]
        async with trio.open_nursery() as nursery:
            for work, interval_ms in periodic[1:]:
                nursery.start_soon(self._repeat, work, interval_ms)
            await self._repeat(*periodic[0])  # in this task, which would wait for the others

    async def _repeat(self, work: Work, interval_ms: IntervalMs) -> None:
        await trio.sleep(min(interval_ms(self._config()) / 1000, INITIAL_DELAY_S))
        while True:
            try:
                await work()
            # A bug in one round must not end the others, nor the broker.
            except Exception:
                logger.exception("Background work failed; it goes on in %d ms", interval_ms(self._config()))
            await trio.sleep(interval_ms(self._config()) / 1000)

    async def apply_retention(self) -> None:
        """Delete segments beyond the retention limits; as in Kafka, compacted logs are left to the cleaner."""
        partitions = [each for each in self._registry.partitions() if not each.log.config.is_compacted]
        await apply_retention(partitions, self._repairer, self._clock_ms, self._removals, self._run_in_thread)

    async def compact(self) -> None:
        """Compact the logs that need it in log.cleaner.threads tasks, and apply retention to compacted logs."""
        config = self._config()
        if not (config.log_cleaner_enable and config.log_cleaner_threads):
            return
        if not any(each.log.config.is_compacted for each in self._registry.partitions()):
            return
        # Not on the event loop, which would wait for its code.
        await self._run_in_thread(import_module, "ottla.replication.log.cleaner")
        put_off: set[Partition] = set()
        async with trio.open_nursery() as nursery:
            for number in range(config.log_cleaner_threads):
                nursery.start_soon(self._compact_dirtiest, number, put_off)
        partitions = [each for each in self._registry.partitions() if each.log.config.is_compacted]
        await apply_retention(partitions, self._repairer, self._clock_ms, self._removals, self._run_in_thread)

    async def _compact_dirtiest(self, number: int, put_off: set[Partition]) -> None:
        """Compact logs, dirtiest first, until none needs it or this task's `number` is log.cleaner.threads or more.

        Partitions whose logs could not be compacted completely are added to `put_off`.
        """
        while self._config().log_cleaner_enable and number < self._config().log_cleaner_threads:
            # Looked for again after each log, because a round over many logs takes long and the dirtiest one changes.
            found = [each for each in await self._cleanable() if each[0] not in put_off]
            if not found:
                return
            partition, dirtiest = max(found, key=lambda each: each[1].dirty_ratio)
            held = self._directories.of(dirtiest.log.log_directory)
            self._being_compacted.add(partition)
            try:
                # Compaction leaves gaps between segments, which recovery takes for damage above the recovery point.
                if not await self._checkpoints.write(held, RECOVERY_POINT_CHECKPOINT):
                    return
                if not await self._cleaner.clean(
                    dirtiest, self._cleaner_limits(), partial(self._is_at_rest, partition)
                ):
                    put_off.add(partition)
                # After the work: a checkpoint that ran ahead of it would call records clean that are not.
                await self._checkpoints.write(held, CLEANER_OFFSET_CHECKPOINT)
            finally:
                self._being_compacted.discard(partition)

    async def _cleanable(self) -> list[tuple[Partition, Cleanable]]:
        time_slice = TimeSlice()
        found: list[tuple[Partition, Cleanable]] = []
        for partition in self._registry.partitions():
            log = partition.log
            # A thread opens indexes that are not read yet: `look_at` would read them on the event loop.
            await self._cleaner.learn_times(log)
            if self._is_at_rest(partition):
                each = self._cleaner.look_at(log, partition.last_stable_offset, partition.high_watermark)
                if each is not None:
                    found.append((partition, each))
            await time_slice.yield_if_over()
        # Others have begun while this looked.
        return [each for each in found if each[0] not in self._being_compacted and each[1].log is each[0].log]

    async def _pay_for_compaction(self, size: int) -> None:
        """Sleep until log.cleaner.io.max.bytes.per.second allows `size` more bytes; all logs share the limit."""
        rate = self._config().log_cleaner_io_max_bytes_per_second
        if rate < DOUBLE_MAX:
            self._paid_until = max(self._paid_until, trio.current_time()) + size / max(rate, 1.0)
            await trio.sleep_until(self._paid_until)

    def _is_at_rest(self, partition: Partition) -> bool:
        # A replica that moves to another disk is copied as it is. Compaction would pull records away under the copy.
        return not partition.is_deleted and self._moves.move_of(partition) is None

    def _cleaner_limits(self) -> Limits:
        """Return the memory limits of one cleaner thread; the threads get equal shares."""
        from ottla.replication.log.compaction import Limits

        config = self._config()
        map_bytes = config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor
        threads = max(config.log_cleaner_threads, 1)
        # Half of it for what is read, and half for what is written.
        return Limits(int(map_bytes / threads), config.log_cleaner_io_buffer_size // threads // 2)

    async def _expire_producers(self) -> None:
        time_slice = TimeSlice()
        for partition in self._registry.partitions():
            expiration_ms = self._config().producer_id_expiration_ms
            # One log may know very many producers, so it gives way between them.
            for _ in partition.log.remove_expired_producers(self._clock_ms(), expiration_ms):
                await time_slice.yield_if_over()
            await time_slice.yield_if_over()

    async def _checkpoint_high_watermarks(self) -> None:
        for held in self._directories.all:
            await self._checkpoints.write(held, HIGH_WATERMARK_CHECKPOINT)

    async def checkpoint_all(self) -> None:
        """Write all checkpoints of all directories."""
        await self.note_offsets(self._directories.log_directories())

    async def note_offsets(self, directories: Iterable[LogDirectory]) -> None:
        """Write all checkpoints of the given directories."""
        wanted = set(directories)
        for held in self._directories.all:
            if held.log_directory in wanted:
                await self._checkpoints.write_epochs(held)
                await self._checkpoints.write_all(held)


def _checkpoint_interval_ms(config: ReplicationConfig) -> int:
    interval_ms = min(
        config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
    )
    return max(interval_ms, 100)
