"""Removing logs and files that were given up. A log is renamed at once, so that its name is free, and removed later.

A rename that fails leaves its directory online, unless the disk is broken, and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import trio

from ottla.replication.loading import HostedPartition
from ottla.replication.log.names import DELETE_MARK, marked_directory_name
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory, Storage
from ottla.replication.reminders import Reminder
from ottla.replication.slices import Slices
from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]

INTERVAL_S = 1
RETRY_MS = 60_000


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
        self._unrenamed: dict[tuple[str, int], PartitionLog] = {}
        self._next_rename_ms = 0
        self._reminder = Reminder()

    def give_up(self, log: PartitionLog) -> None:
        """Let a log's name be free, and its files be removed after file.delete.delay.ms."""
        if log.log_directory.is_online and not self._rename(log):
            self._unrenamed[log.topic, log.partition] = log

    def _rename(self, log: PartitionLog) -> bool:
        name = marked_directory_name(log.topic, log.partition, self._new_uuid().hex(), DELETE_MARK)
        try:
            log.rename_directory(name)
        except KafkaError as error:
            if self._reminder.is_due():  # there may be thousands
                logger.error("%s cannot be deleted yet: %s", log.directory, error)
            return False
        log.release_files()
        log.log_directory.remove_later(log.directory, self._clock_ms() + log.config.file_delete_delay_ms)
        return True

    def free_names(self, wanted: Iterable[HostedPartition]) -> None:
        """Try a last time to rename logs that have these names. `NewLogs` puts aside those that still have them then."""
        for each in wanted:
            if (log := self._unrenamed.pop((each.topic, each.index), None)) is not None:
                self._rename(log)

    async def run(self) -> None:
        """Remove what is due, until cancelled."""
        while True:
            await self._rename_due()
            for directory in self._directories():
                while directory.is_online and (paths := directory.removals_due(self._clock_ms())):
                    for path in await self._run_in_thread(self._remove, paths):
                        directory.remove_later(path, self._clock_ms() + RETRY_MS)
            await trio.sleep(INTERVAL_S)

    async def _rename_due(self) -> None:
        if self._clock_ms() < self._next_rename_ms:
            return
        self._next_rename_ms = self._clock_ms() + RETRY_MS
        slices = Slices()
        for key, log in list(self._unrenamed.items()):
            # Meanwhile a new log may have got the name.
            if self._unrenamed.get(key) is log and (not log.log_directory.is_online or self._rename(log)):
                del self._unrenamed[key]
            await slices.give_way()

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
