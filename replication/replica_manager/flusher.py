"""Forced flushes: many partitions' appends made durable by one round of syncs, side by side in threads.

A log that a passing shortage keeps from being synced is tried again. A sync that failed takes its log directory offline.

Partitions that ask while a round is under way share the next one, which is group commit. On the event loop each log says
which files are to be synced and hears the outcome; threads only sync.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import trio

from ottla.replication.log.flush import FlushJob
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.partition.partition import Partition
from ottla.replication.reminders import Reminder
from ottla.wire.errors import KafkaError, bare

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]

SYNC_THREADS = 4
LOGS_PER_ROUND = 256  # looked at in one step of the event loop
RETRY_S = 0.2


class _Flush(NamedTuple):
    partition: Partition
    log: PartitionLog
    job: FlushJob


class Flusher:
    """See the module's docstring."""

    def __init__(self, run_in_thread: RunInThread, files_max: int) -> None:
        """`files_max`: how many files may be open for a flush."""
        self._run_in_thread = run_in_thread
        self._files_max = files_max
        self._requests: dict[Partition, None] = {}  # in order, and each partition once however often it asks
        self._wanted = trio.Event()
        self._postponed: dict[Partition, KafkaError] = {}
        self._reminder = Reminder()

    def request(self, partition: Partition) -> None:
        """Flush a partition with the next round."""
        # This is called with every append to a topic that is flushed, so it does as little as possible.
        self._requests[partition] = None
        self._wanted.set()

    def forget(self, partition: Partition) -> None:
        """A partition that is given up need not be flushed."""
        self._requests.pop(partition, None)
        self._postponed.pop(partition, None)

    async def run(self) -> None:
        """Flush what is asked for; until cancelled."""
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
        """Meanwhile other logs, on other disks perhaps, are flushed as ever."""
        text = "%d logs cannot be flushed for now, and are tried again: %s"
        self._reminder.tell(logger.warning, text, len(postponed), next(iter(postponed.values())))
        await trio.sleep(RETRY_S)
        for partition in postponed:
            self.request(partition)

    async def flush(self, partitions: Sequence[Partition], *, include_active: bool | None = None) -> None:
        """Sync logs to their end, and let their high watermarks go on. Those that cannot be synced now are left out."""
        while partitions:
            partitions = await self._flush_some(partitions, include_active)

    async def _flush_some(self, partitions: Sequence[Partition], include_active: bool | None = None) -> list[Partition]:
        """Sync each log, or a part of a long one; answers those that need another round."""
        waiting = deque(partitions)
        unfinished: list[Partition] = []
        while waiting:
            flushes = self._prepare(waiting, include_active)
            async with trio.open_nursery() as nursery:
                for start in range(min(SYNC_THREADS, len(flushes))):
                    nursery.start_soon(self._carry_out, flushes[start::SYNC_THREADS], unfinished)
        return unfinished

    def _prepare(self, waiting: deque[Partition], include_active: bool | None) -> list[_Flush]:
        """Take as many logs as may have their files open at once."""
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
