"""Removing logs and files that were given up. A log is renamed soon, so that its name is free, and removed later.

A thread renames, because a rename waits for others who make or remove directories in the same log directory, and for the
disk: a hundred milliseconds were seen. A rename that fails leaves its directory online, unless the disk is broken, and is
tried again.

| a log that was given up                | leaves `_unrenamed` when                                                     |
|----------------------------------------|------------------------------------------------------------------------------|
| is renamed, in a batch                 | the thread has renamed it: it is removed after file.delete.delay.ms          |
| could not be renamed, is tried again   | the same, or its log directory is offline                                    |
| has a name that a new log is to get    | it was tried a last time; `NewLogs` puts aside the directory that is left    |
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import trio

from ottla.replication.log.names import DELETE_MARK, marked_directory_name, partition_path
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory, Storage
from ottla.replication.reminders import Reminder
from ottla.wire.errors import bare
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]

Name = tuple[str, int]

INTERVAL_S = 1  # between two looks for what is due
RETRY_MS = 60_000  # a disk that refuses a rename or a removal refuses it for a while
RENAMED_AT_ONCE = 50  # in one call of a thread, so that others get their turn at the directory


class Removals:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        storage: Storage,
        directories: Callable[[], Sequence[LogDirectory]],
        clock_ms: Callable[[], int],
        run_in_thread: RunInThread,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._storage = storage
        self._directories = directories
        self._clock_ms = clock_ms
        self._run_in_thread = run_in_thread
        self._new_uuid = new_uuid
        self._unrenamed: dict[Name, PartitionLog] = {}
        self._turns: defaultdict[LogDirectory, trio.Lock] = defaultdict(trio.Lock)
        self._next_rename_ms = 0
        self._reminder = Reminder()

    def give_up(self, log: PartitionLog) -> None:
        """Take charge of a log that nobody serves any more. `free_names` frees its name and has its files removed."""
        # Reads may still be under way. From here on, a file that they do not find is not taken for a fault of the disk.
        log.give_up()
        self._unrenamed[log.topic, log.partition] = log

    async def free_names(self, names: Iterable[Name]) -> None:
        """Rename the logs of these names that were given up. Those that cannot be renamed now are tried again later."""
        logs: defaultdict[LogDirectory, list[PartitionLog]] = defaultdict(list)
        for name in names:
            if (log := self._unrenamed.get(name)) is not None:
                logs[log.log_directory].append(log)
        for directory, in_directory in logs.items():
            for start in range(0, len(in_directory), RENAMED_AT_ONCE):
                # One rename at a time in each directory: a deletion and the retry of `run` could take the same log.
                async with self._turns[directory]:
                    with trio.CancelScope(shield=True):  # what a thread has renamed has to be known here
                        await self._rename(directory, in_directory[start : start + RENAMED_AT_ONCE])

    async def free_names_for_new_logs(self, names: Sequence[Name]) -> None:
        """The same, but those that cannot be renamed are given up: new logs are about to get their names."""
        logs = [log for name in names if (log := self._unrenamed.get(name)) is not None]
        await self.free_names(names)
        # Nothing may rename the directory of that name any more: it is going to be the new log's.
        for log in logs:
            if self._is_unrenamed(log):
                self._settle(log)
                # Nor may a thread that still works for the old log find a directory by that path.
                log.moved_to(self._path_of_deleted(log))
                log.release_files()

    async def _rename(self, directory: LogDirectory, logs: Sequence[PartitionLog]) -> None:
        logs = [log for log in logs if self._is_unrenamed(log)]  # others may have renamed it meanwhile
        if not directory.is_online:
            for log in logs:
                # What is on a failed disk stays as it is until the next start.
                self._settle(log)
            return
        paths = [(log.directory, self._path_of_deleted(log)) for log in logs]
        errors = await self._run_in_thread(self._rename_each, paths)
        time_slice = TimeSlice()
        for log, (_, path), error in zip(logs, paths, errors, strict=True):
            if error is None:
                self._settle(log)
                log.moved_to(path)
                # Files that stay open hold descriptors, and room on the disk even after their removal.
                log.release_files()
                directory.remove_later(path, self._clock_ms() + log.config.file_delete_delay_ms)
                await time_slice.yield_if_over()  # a log may have a thousand segments
                continue
            refusal = directory.judge(error, log.name)
            # There may be thousands.
            self._reminder.tell(logger.error, "%s cannot be deleted yet: %s", log.directory, refusal)

    def _path_of_deleted(self, log: PartitionLog) -> str:
        """One that no directory has had."""
        name = marked_directory_name(log.topic, log.partition, self._new_uuid().hex(), DELETE_MARK)
        return partition_path(log.log_directory.path, name)

    def _rename_each(self, paths: Sequence[tuple[str, str]]) -> list[OSError | None]:
        errors: list[OSError | None] = []
        for path, new_path in paths:
            try:
                # One that fails does not stop the others: each log is a deletion of its own.
                self._storage.rename(path, new_path)
                errors.append(None)
            except OSError as error:
                errors.append(bare(error))
        return errors

    def _is_unrenamed(self, log: PartitionLog) -> bool:
        return self._unrenamed.get((log.topic, log.partition)) is log

    def _settle(self, log: PartitionLog) -> None:
        if self._is_unrenamed(log):
            del self._unrenamed[log.topic, log.partition]

    async def run(self) -> None:
        """Remove what is due, until cancelled."""
        while True:
            await self._rename_due()
            for directory in self._directories():
                # A deleted topic leaves many paths. They are taken a limited
                # number at a time, so that a thread is never gone for long.
                while directory.is_online and (paths := directory.removals_due(self._clock_ms())):
                    for path in await self._run_in_thread(self._remove, paths):
                        directory.remove_later(path, self._clock_ms() + RETRY_MS)
            await trio.sleep(INTERVAL_S)

    async def _rename_due(self) -> None:
        if self._clock_ms() >= self._next_rename_ms:
            self._next_rename_ms = self._clock_ms() + RETRY_MS
            await self.free_names(list(self._unrenamed))

    def _remove(self, paths: Sequence[str]) -> list[str]:
        """Remove files and directories; answers those that are still there."""
        left = []
        for path in paths:
            try:
                if self._storage.is_directory(path):
                    self._storage.remove_tree(path)
                else:
                    self._storage.remove(path)
            except OSError as error:
                logger.error("%s cannot be removed yet: %s", path, error)
                left.append(path)
        return left
