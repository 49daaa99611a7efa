"""Flushes of partitions, and writes of checkpoints and leader epochs. Threads do the I/O."""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from ottla.replication.log.durable_log import EpochsJob, FlushJob, write_epochs
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.partition.partition import Partition
from ottla.replication.reminders import Reminder
from ottla.replication.replica_manager.directories import CHECKPOINTS, HeldDirectory
from ottla.wire.errors import KafkaError, bare
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.replication")


RunInThread = Callable[..., Awaitable[Any]]


SYNC_THREADS = 4
LOGS_PER_ROUND = 256  # looked at in one step of the event loop

FLUSH_RETRY_S = 0.2


class _Flush(NamedTuple):
    partition: Partition
    log: PartitionLog
    job: FlushJob


class Flusher:
    """Group commit for many partitions: one round of syncs, in several threads, makes their appends durable.

    Partitions that request a flush during a round share the next round. The event loop asks each log for the files to
    sync and reports the outcome to the log; threads only sync. A log that cannot be synced because of a transient
    shortage is retried; a failed sync takes the log directory offline.
    """

    def __init__(self, run_in_thread: RunInThread, files_max: int) -> None:
        """Create a flusher that has at most about `files_max` files open at a time."""
        self._run_in_thread = run_in_thread
        self._files_max = files_max
        self._requests: dict[Partition, None] = {}  # in order, and each partition once however often it asks
        self._wanted = trio.Event()
        self._postponed: dict[Partition, KafkaError] = {}
        self._reminder = Reminder()

    def request(self, partition: Partition) -> None:
        """Request a flush of a partition in the next round."""
        # This is called with every append to a topic that is flushed, so it does as little as possible.
        self._requests[partition] = None
        self._wanted.set()

    def forget(self, partition: Partition) -> None:
        """Drop requests for a deleted partition."""
        self._requests.pop(partition, None)
        self._postponed.pop(partition, None)

    async def run(self) -> None:
        """Flush the requested partitions in rounds, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wanted.wait()
                # Both are replaced before anything is awaited: an append
                # during the sync asks for the next round, and is not lost.
                self._wanted = trio.Event()
                requests, self._requests = self._requests, {}
                for partition in await self._flush_some(list(requests)):
                    self.request(partition)
                if self._postponed:
                    postponed, self._postponed = self._postponed, {}
                    # In a task of its own, or one full disk would hold up the flushes of all the others.
                    nursery.start_soon(self._try_again_later, postponed)

    async def _try_again_later(self, postponed: dict[Partition, KafkaError]) -> None:
        text = "%d logs cannot be flushed for now, and are tried again: %s"
        self._reminder.tell(logger.warning, text, len(postponed), next(iter(postponed.values())))
        await trio.sleep(FLUSH_RETRY_S)
        for partition in postponed:
            self.request(partition)

    async def flush(self, partitions: Sequence[Partition], *, include_active: bool | None = None) -> None:
        """Sync logs and advance the high watermarks; skip logs that cannot be synced now.

        `include_active`: sync the last segments, too; None: only those of logs that require flushes.
        """
        while partitions:
            partitions = await self._flush_some(partitions, include_active)

    async def _flush_some(self, partitions: Sequence[Partition], include_active: bool | None = None) -> list[Partition]:
        """Sync each log, or a part of a long one; return the partitions that need another round."""
        waiting = deque(partitions)
        unfinished: list[Partition] = []
        while waiting:
            flushes = self._prepare(waiting, include_active)
            async with trio.open_nursery() as nursery:
                for start in range(min(SYNC_THREADS, len(flushes))):
                    nursery.start_soon(self._carry_out, flushes[start::SYNC_THREADS], unfinished)
        return unfinished

    def _prepare(self, waiting: deque[Partition], include_active: bool | None) -> list[_Flush]:
        """Take partitions from `waiting` and prepare their flushes, until the open files reach the limit."""
        flushes: list[_Flush] = []
        files = 0
        for _ in range(min(LOGS_PER_ROUND, len(waiting))):
            # Every file of a job is open until it is synced, and descriptors are limited.
            if files >= self._files_max:
                break
            partition = waiting.popleft()
            log = partition.log
            wants_all = log.is_flush_required if include_active is None else include_active
            try:
                job = None if partition.is_deleted else log.prepare_flush(include_active=wants_all)
            except KafkaError as error:
                # Its files could not be opened: the log waits, the others of this round go on.
                self._postpone(partition, log, error)
                continue
            if job is not None:
                flushes.append(_Flush(partition, log, job))
                files += len(job)
        return flushes

    async def _carry_out(self, flushes: Sequence[_Flush], unfinished: list[Partition]) -> None:
        errors: list[tuple[_Flush, OSError]] = []
        done: list[_Flush] = []

        def run() -> None:
            for flush in flushes:
                try:
                    flush.job.run()
                    done.append(flush)
                except OSError as error:
                    # The thread only notes it: what follows from an error changes logs, which belong to the event loop.
                    errors.append((flush, bare(error)))

        await self._run_in_thread(run)
        for flush, error in errors:
            self._postpone(flush.partition, flush.log, flush.log.storage_error(error))
        for partition, log, job in done:
            if log.log_directory.is_online:
                # Too long for one job, or cut while the thread worked. Then what it has synced is not the log's end.
                if not log.finish_flush(job):
                    unfinished.append(partition)
                if partition.log is log:  # it may have moved to another directory meanwhile
                    partition.on_flushed()

    def _postpone(self, partition: Partition, log: PartitionLog, error: KafkaError) -> None:
        if log.log_directory.is_online:
            self._postponed[partition] = error
        else:
            logger.error("%s cannot be flushed: %s", log.directory, error)


CHECKPOINT_RETRY_S = 1.0  # a disk that is full stays so for a while


_shortage = Reminder()


class NotedLog(NamedTuple):
    """A log whose offsets go into its directory's checkpoints; if `is_future`, a thread may be writing to it."""

    log: PartitionLog
    high_watermark: int
    is_future: bool = False


class CheckpointWriter:
    """Writer of checkpoint files; `logs_in` returns the logs of a directory."""

    def __init__(self, run_in_thread: RunInThread, logs_in: Callable[[HeldDirectory], Iterable[NotedLog]]) -> None:
        self._run_in_thread = run_in_thread
        self._logs_in = logs_in
        self._lock = trio.Lock()
        self._under_way: Mapping[tuple[str, int], int] = {}  # what is being written, or collected for that
        self._cut: dict[HeldDirectory, None] = {}
        self._was_cut = trio.Event()

    def note_cut(self, held: HeldDirectory) -> None:
        """Request new checkpoints after a log was truncated below its recovery point or within its compacted part."""
        self._cut[held] = None
        self._was_cut.set()

    async def run(self) -> None:
        """Write checkpoints promptly for directories in which a log was truncated; until cancelled."""
        while True:
            await self._was_cut.wait()
            # Replaced before the writing: a cut during it sets the new one.
            self._was_cut = trio.Event()
            cut, self._cut = self._cut, {}
            for held in cut:
                # A full disk may have room again later. Until then a crash
                # would recover by the old point, so it is tried on and on.
                names = (RECOVERY_POINT_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
                if not all([await self.write(held, name) for name in names]) and held.log_directory.is_online:
                    self.note_cut(held)
            if self._cut:
                await trio.sleep(CHECKPOINT_RETRY_S)

    async def write_all(self, held: HeldDirectory) -> bool:
        """Write all checkpoints of a directory; return True if all are on the disk."""
        return all([await self.write(held, name) for name in CHECKPOINTS])

    async def forget(self, logs: Collection[tuple[str, int]], directories: Iterable[HeldDirectory]) -> None:
        """Remove deleted logs from the checkpoints. Raises OSError if a checkpoint cannot be written.

        Without this, after a crash a new log of the name would begin at the old start offset and lose records below it.
        """
        # A thread that is about to write a checkpoint may not have begun, so that nothing tells of these logs yet.
        if not self._under_way.keys().isdisjoint(logs):
            async with self._lock:
                pass
        for held in directories:
            # Most names are new. `mentions` saves them the writing of four files in each directory.
            if held.log_directory.is_online and held.mentions(logs) and not await self.write_all(held):
                raise OSError(
                    errno.EAGAIN, "The checkpoints still tell of deleted partitions, and cannot be written", held.path
                )

    async def write(self, held: HeldDirectory, name: str) -> bool:
        """Write one checkpoint; return False if that is impossible now. A broken disk takes the directory offline."""
        # What is written is collected within the turn: collected
        # before, it could be older than what is on the disk by then.
        async with self._lock:
            offsets: dict[tuple[str, int], int] = {}
            self._under_way = offsets
            try:
                return await self._collect_and_write(held, name, offsets)
            finally:
                self._under_way = {}

    async def _collect_and_write(self, held: HeldDirectory, name: str, offsets: dict[tuple[str, int], int]) -> bool:
        time_slice = TimeSlice()
        for noted in self._logs_in(held):
            offset = offset_to_note(noted, name)
            if offset is not None:
                offsets[noted.log.topic, noted.log.partition] = offset
            await time_slice.yield_if_over()
        # It may have failed while this gave way. Nothing is written to a disk that has failed.
        if not held.log_directory.is_online:
            return False
        try:
            await self._run_in_thread(held.write_checkpoint, name, offsets)
        except OSError as error:
            _judge(held, name, error)
            return False
        return True

    async def write_epochs(self, held: HeldDirectory) -> None:
        """Write leader epochs and index entries that exist only in memory."""
        jobs: list[EpochsJob] = []
        time_slice = TimeSlice()
        for log, _, is_future in self._logs_in(held):
            # A thread appends to a future log and changes its epochs. Its own flushes write them.
            if held.log_directory.is_online and not is_future:
                if log.epochs_are_dirty:
                    jobs.append(log.epochs_to_write())
                log.save_indexes()
            await time_slice.yield_if_over()
        try:
            await self._run_in_thread(write_epochs, held.log_directory.storage, jobs)
        except OSError as error:
            _judge(held, LEADER_EPOCH_CHECKPOINT, error)


def _judge(held: HeldDirectory, name: str, error: OSError) -> None:
    held.log_directory.judge(error, name)
    if held.log_directory.is_online:
        text = "%s in %s could not be written and will be tried again: %s"
        _shortage.tell(logger.warning, text, name, held.path, error)


def offset_to_note(noted: NotedLog, checkpoint: str) -> int | None:
    """Return a log's offset for the checkpoint file of this name; None if the log needs no entry there."""
    log = noted.log
    if checkpoint == HIGH_WATERMARK_CHECKPOINT:
        return noted.high_watermark
    if checkpoint == RECOVERY_POINT_CHECKPOINT:
        return log.recovery_point
    if checkpoint == CLEANER_OFFSET_CHECKPOINT:
        return log.first_dirty_offset if log.first_dirty_offset >= 0 and log.config.is_compacted else None
    # A start at the front of the first segment needs no entry: loading finds it by the segment's name.
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
