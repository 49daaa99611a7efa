"""Making the logs of new partitions: on the disk first, seen by nobody, until the caller takes them up or gives them back.

A creation that failed or was killed, and a deletion whose rename failed, can leave a directory that no partition claims. It
must not stand in the way of a new partition of that name, nor be taken for it. So `NewLogs` clears the name of a log before
it makes the log, in all log directories and in their checkpoints (`forget_former`). A leftover with records is put aside
(`-stray`), as at start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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
from ottla.replication.log.storage import LogDirectory
from ottla.replication.replica_manager.loading import HostedPartition, has_records
from ottla.wire.errors import KafkaError, bare

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]
Place = tuple[HostedPartition, LogDirectory]

LOGS_PER_THREAD_CALL = 32  # between two looks at what failed, and two calls of `on_made`
THREADS_MAX = 2  # with more, the event loop waits too long for the interpreter's lock


class MadeLog(NamedTuple):
    """A log that is on the disk, and the partition that it was made for."""

    log: PartitionLog
    hosted: HostedPartition


class NewLogs:
    """See the module's docstring. `count_logs` says how many logs are in each directory that is online, by its path."""

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
        """Make logs; `on_made` is called with some at a time. Answers why logs of a topic could not be made, by its name.

        Once one of a topic's logs cannot be made, none of its others is tried.
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
        """Where a log goes: where somebody has said, or where there are fewest, but for directories that are cordoned."""
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
        """Make logs, in a thread. `blamed` gets the directory in which a topic's failure was met."""
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
        """Remove logs that nobody has seen. One that cannot be removed now is removed at the next start."""
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
    """Why a log could not be made. A leftover that could not be removed then is in nobody's way (`_clear_name`)."""
    cause = failure.__cause__ or failure.__context__
    return cause if isinstance(failure, Irreparable) and isinstance(cause, OSError) else failure
