"""The checkpoints of log directories and of leader epochs, written while the logs are in use.

What is written is collected on the event loop, a slice at a time, and handed to a thread. One checkpoint is written at a
time, or an older picture could replace a newer one.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import trio

from ottla.replication.log.flush import EpochsJob, write_epochs
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.reminders import Reminder
from ottla.replication.replica_manager.directories import CHECKPOINTS, HeldDirectory
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.replication")

RETRY_S = 1.0  # a disk that is full stays so for a while

_shortage = Reminder()

RunInThread = Callable[..., Awaitable[Any]]


class NotedLog(NamedTuple):
    """A log to be noted in the checkpoints of its directory. A thread may be writing to a future one."""

    log: PartitionLog
    high_watermark: int
    is_future: bool = False


class CheckpointWriter:
    """Writes checkpoints; `logs_in` says which logs are in a directory."""

    def __init__(self, run_in_thread: RunInThread, logs_in: Callable[[HeldDirectory], Iterable[NotedLog]]) -> None:
        self._run_in_thread = run_in_thread
        self._logs_in = logs_in
        self._turn = trio.Lock()
        self._under_way: Mapping[tuple[str, int], int] = {}  # what is being written, or collected for that
        self._cut: set[HeldDirectory] = set()
        self._was_cut = trio.Event()

    def note_cut(self, held: HeldDirectory) -> None:
        """A log was cut below its recovery point, or where it is compacted. What a start believed would be of other records."""
        self._cut.add(held)
        self._was_cut.set()

    async def run(self) -> None:
        """Write the checkpoints of directories in which logs were cut, at once; until cancelled."""
        while True:
            await self._was_cut.wait()
            # Replaced before the writing: a cut during it sets the new one.
            self._was_cut = trio.Event()
            cut, self._cut = self._cut, set()
            for held in cut:
                # A full disk may have room again later. Until then a crash
                # would recover by the old point, so it is tried on and on.
                names = (RECOVERY_POINT_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
                if not all([await self.write(held, name) for name in names]) and held.log_directory.is_online:
                    self.note_cut(held)
            if self._cut:
                await trio.sleep(RETRY_S)

    async def write_all(self, held: HeldDirectory) -> bool:
        """Every checkpoint of one directory; whether all are on the disk."""
        return all([await self.write(held, name) for name in CHECKPOINTS])

    async def forget(self, logs: Collection[tuple[str, int]], directories: Iterable[HeldDirectory]) -> None:
        """Remove logs that are gone from the checkpoints, before new ones get their names. OSError: some checkpoint has them.

        Else, after a kill, a new log would begin at the old one's start offset, and records below it would be lost.
        """
        # A thread that is about to write a checkpoint may not have begun, so that nothing tells of these logs yet.
        if not self._under_way.keys().isdisjoint(logs):
            async with self._turn:
                pass
        for held in directories:
            # Most names are new. `tells_of` saves them the writing of four files in each directory.
            if held.log_directory.is_online and held.tells_of(logs) and not await self.write_all(held):
                raise OSError(
                    errno.EAGAIN, "The checkpoints still tell of deleted partitions, and cannot be written", held.path
                )

    async def write(self, held: HeldDirectory, name: str) -> bool:
        """One checkpoint of one directory; False: not this time. A broken disk takes the directory offline."""
        # What is written is collected within the turn: collected
        # before, it could be older than what is on the disk by then.
        async with self._turn:
            offsets: dict[tuple[str, int], int] = {}
            self._under_way = offsets
            try:
                return await self._collect_and_write(held, name, offsets)
            finally:
                self._under_way = {}

    async def _collect_and_write(self, held: HeldDirectory, name: str, offsets: dict[tuple[str, int], int]) -> bool:
        time_slice = TimeSlice()
        for noted in self._logs_in(held):
            offset = _offset_to_note(noted, name)
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
        """Leader epochs that are only in memory, and what active indexes have not written yet."""
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


def _offset_to_note(noted: NotedLog, checkpoint: str) -> int | None:
    log = noted.log
    if checkpoint == HIGH_WATERMARK_CHECKPOINT:
        return noted.high_watermark
    if checkpoint == RECOVERY_POINT_CHECKPOINT:
        return log.recovery_point
    if checkpoint == CLEANER_OFFSET_CHECKPOINT:
        return log.first_dirty_offset if log.first_dirty_offset >= 0 and log.config.is_compacted else None
    # A start at the front of the first segment needs no entry: loading finds it by the segment's name.
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
