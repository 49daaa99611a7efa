"""Creation of logs, and deletion of logs and their files."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from ottla.replication.cluster.metadata_cache import NO_TOPIC_ID
from ottla.replication.log.faults import Irreparable
from ottla.replication.log.names import (
    DELETE_MARK,
    STRAY_MARK,
    marked_directory_name,
    partition_directory_name,
    partition_path,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory, Storage
from ottla.replication.reminders import Reminder
from ottla.replication.replica_manager.loading import HostedPartition, has_records
from ottla.wire.errors import KafkaError, bare
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.replication")


RunInThread = Callable[..., Awaitable[Any]]
Place = tuple[HostedPartition, LogDirectory]


LOGS_PER_THREAD_CALL = 32  # between two looks at what failed, and two calls of `on_made`
THREADS_MAX = 2  # with more, the event loop waits too long for the interpreter's lock


class MadeLog(NamedTuple):
    """A newly created log, and the partition that it was created for."""

    log: PartitionLog
    hosted: HostedPartition


class LogCreation:
    """Creator of logs for new partitions; a log stays invisible until the caller registers or discards it.

    A failed or killed creation, and a deletion whose rename failed, can leave a directory that no partition claims.
    Such a directory must neither block a new partition of its name nor be taken for that partition. So the creator
    first clears the name in all log directories and in their checkpoints (`forget_former`). A leftover with records is
    set aside (`-stray`), as at the start.

    `count_logs` returns the number of logs in each online directory, by path.
    """

    def __init__(
        self,
        *,
        directories: Callable[[], Sequence[LogDirectory]],
        count_logs: Callable[[], dict[str, int]],
        take_preferred: Callable[[str, int], LogDirectory | None],
        forget_former: Callable[[Collection[tuple[str, int]]], Awaitable[None]],
        clock_ms: Callable[[], int],
        run_in_thread: RunInThread,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._directories = directories
        self._count_logs = count_logs
        self._take_preferred = take_preferred
        self._forget_former = forget_former
        self._clock_ms = clock_ms
        self._run_in_thread = run_in_thread
        self._new_uuid = new_uuid
        self._threads = trio.CapacityLimiter(THREADS_MAX)

    async def make(
        self, wanted: Sequence[HostedPartition], on_made: Callable[[Sequence[MadeLog]], None]
    ) -> Mapping[str, OSError | KafkaError]:
        """Create logs and pass them to `on_made` in groups; return the errors by topic.

        After a topic's first error its remaining logs are not created.
        """
        try:
            # Before any file is made: after a kill the next start must
            # not load a new log with the checkpoints of an old one.
            await self._forget_former({(each.topic, each.index) for each in wanted})
        except OSError as error:
            return {each.topic: error for each in wanted}
        async with self._threads:
            return await self._make_in_threads(wanted, on_made)

    async def _make_in_threads(
        self, wanted: Sequence[HostedPartition], on_made: Callable[[Sequence[MadeLog]], None]
    ) -> Mapping[str, OSError | KafkaError]:
        failures: dict[str, OSError | KafkaError] = {}
        blamed: dict[str, LogDirectory] = {}
        # Counted once and then kept up by `_place`, or each new log would count all the others. A single directory has no
        # rivals.
        counts = self._count_logs() if len(self._directories()) > 1 else {}
        for start in range(0, len(wanted), LOGS_PER_THREAD_CALL):
            try:
                places = [(each, self._place(each, counts)) for each in wanted[start : start + LOGS_PER_THREAD_CALL]]
            except OSError as error:
                return {each.topic: error for each in wanted} | failures
            made: list[MadeLog] = []
            try:
                await self._run_in_thread(self._make_some, places, made, failures, blamed)
            finally:
                # Whatever happened, these are on the disk. Only the caller can take them up or remove them.
                on_made(made)
            for topic, directory in blamed.items():
                failure = failures[topic]
                if isinstance(failure, OSError):
                    # On the event loop: if the disk is broken this takes
                    # the directory offline, and everybody hears of that.
                    directory.judge(_reason(failure), topic)
            blamed.clear()
        return failures

    def _place(self, hosted: HostedPartition, counts: dict[str, int]) -> LogDirectory:
        """Choose a log's directory: the preferred one, else the uncordoned one with the fewest logs."""
        preferred = self._take_preferred(hosted.topic, hosted.index)
        online = [directory for directory in self._directories() if directory.is_online]
        if not online:
            raise OSError("no log directory is online")
        # The controller may have chosen this broker before all of them were cordoned.
        usable = [directory for directory in online if not directory.is_cordoned] or online
        directory = preferred or min(usable, key=lambda directory: counts.get(directory.path, 0))
        counts[directory.path] = counts.get(directory.path, 0) + 1
        return directory

    def _make_some(
        self,
        places: Sequence[Place],
        made: list[MadeLog],
        failures: dict[str, OSError | KafkaError],
        blamed: dict[str, LogDirectory],
    ) -> None:
        """Create some logs; called in a thread.

        For each topic with an error, `failures` gets the error and `blamed` the directory in which it occurred.
        """
        for hosted, directory in places:
            if hosted.topic in failures:
                continue
            at = directory
            try:
                # In all directories, not only in the one that is chosen: a leftover
                # in another would be loaded as the same partition at the next start.
                for at in [each for each in self._directories() if each.is_online]:
                    self._clear_name(at, hosted.topic, hosted.index)
                at = directory
                made.append(MadeLog(self._make_one(hosted, directory), hosted))
            except (OSError, KafkaError) as error:
                failures[hosted.topic], blamed[hosted.topic] = bare(error), at

    def _make_one(self, hosted: HostedPartition, directory: LogDirectory) -> PartitionLog:
        return PartitionLog.create(
            directory,
            hosted.topic,
            hosted.index,
            hosted.config,
            topic_id=None if hosted.topic_id == NO_TOPIC_ID else hosted.topic_id,
            now_ms=self._clock_ms(),
        )

    def _clear_name(self, directory: LogDirectory, topic: str, index: int) -> None:
        storage = directory.storage
        path = partition_path(directory.path, partition_directory_name(topic, index))
        if not storage.exists(path):
            return
        is_worth_keeping = has_records(storage, path)
        mark = STRAY_MARK if is_worth_keeping else DELETE_MARK
        aside = partition_path(directory.path, marked_directory_name(topic, index, self._new_uuid().hex(), mark))
        # Renamed even if it is to be removed: the removal of a tree is many calls, and a kill would leave a part of it.
        storage.rename(path, aside)
        logger.warning("%s belongs to no partition any more; it was renamed to %s", path, aside)
        if not is_worth_keeping:
            with contextlib.suppress(OSError):  # then the next start removes it
                storage.remove_tree(aside)

    async def discard(self, made: Sequence[MadeLog]) -> None:
        """Remove logs that were never used; a log that cannot be removed now is removed at the next start."""
        for start in range(0, len(made), LOGS_PER_THREAD_CALL):
            await self._run_in_thread(self._discard_some, made[start : start + LOGS_PER_THREAD_CALL])

    def _discard_some(self, made: Sequence[MadeLog]) -> None:
        for log, _ in made:
            log.release_files()
            if log.log_directory.is_online:
                try:
                    log.log_directory.storage.remove_tree(log.directory)
                except OSError as error:
                    logger.warning(
                        "%s was made in vain and cannot be removed before the next start: %s", log.directory, error
                    )


def _reason(failure: OSError) -> OSError:
    """Return the disk error that caused `failure`.

    A leftover that could not be removed as well is harmless (`_clear_name`).
    """
    cause = failure.__cause__ or failure.__context__
    return cause if isinstance(failure, Irreparable) and isinstance(cause, OSError) else failure


Name = tuple[str, int]


INTERVAL_S = 1  # between two looks for what is due
RETRY_MS = 60_000  # a disk that refuses a rename or a removal refuses it for a while
RENAMED_AT_ONCE = 50  # in one call of a thread, so that others get their turn at the directory


class LogDeletion:
    """Asynchronous deletion: a deleted log is renamed soon, to free its name; its files are removed later.

    Renames run in a thread, because they wait for the disk and for other changes in the same log directory; 100 ms were
    measured. After a failed rename the directory stays online, unless the disk is broken, and the rename is retried.

    | a deleted log                     | leaves `_unrenamed` when                                              |
    |-----------------------------------|-----------------------------------------------------------------------|
    | is renamed, in a batch            | the thread has renamed it: it is removed after file.delete.delay.ms   |
    | cannot be renamed, and is retried | the thread has renamed it, or its log directory is offline            |
    | has a name that a new log needs   | the last attempt has failed; `LogCreation` sets the directory aside   |
    """

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
        self._locks: defaultdict[LogDirectory, trio.Lock] = defaultdict(trio.Lock)
        self._next_rename_ms = 0
        self._reminder = Reminder()

    def give_up(self, log: PartitionLog) -> None:
        """Accept a deleted log; `free_names` renames it later, and then its files are removed."""
        # Reads may still be under way. From here on, a file that they do not find is not taken for a fault of the disk.
        log.give_up()
        self._unrenamed[log.topic, log.partition] = log

    async def free_names(self, names: Iterable[Name]) -> None:
        """Rename deleted logs that still occupy these names; failed renames are retried later."""
        logs: defaultdict[LogDirectory, list[PartitionLog]] = defaultdict(list)
        for name in names:
            if (log := self._unrenamed.get(name)) is not None:
                logs[log.log_directory].append(log)
        for directory, in_directory in logs.items():
            for start in range(0, len(in_directory), RENAMED_AT_ONCE):
                # One rename at a time in each directory: a deletion and the retry of `run` could take the same log.
                async with self._locks[directory]:
                    with trio.CancelScope(shield=True):  # what a thread has renamed has to be known here
                        await self._rename(directory, in_directory[start : start + RENAMED_AT_ONCE])

    async def free_names_for_new_logs(self, names: Sequence[Name]) -> None:
        """Rename deleted logs that occupy the names of new logs.

        A failed rename is not retried later, because the new log takes the name.
        """
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
        """Return an unused path to which a deleted log can be renamed."""
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
        """Rename deleted logs and remove their files when due, until cancelled."""
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
        """Remove files and directories; return the paths that could not be removed."""
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
