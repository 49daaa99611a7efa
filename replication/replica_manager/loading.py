"""Plan and load the logs of one directory: those that this broker hosts are loaded, others are put aside.

All functions but `load_logs` run in threads, while no other code uses the directory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.replication.log.names import (
    DELETE_MARK,
    FUTURE_MARK,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_MARK,
    marked_directory_name,
    parse_segment_file,
    partition_path,
    path_in,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.replica_manager.directories import (
    FoundPartition,
    HeldDirectory,
    LogDirectoryProblem,
    OffsetCheckpoints,
)
from ottla.wire.errors import bare

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.storage import Storage

logger = logging.getLogger(__name__)

STRAYS_NAMED = 5  # in the one log line that tells of them


@dataclass(frozen=True, slots=True)
class HostedPartition:
    """A partition on this broker before it becomes leader or follower, with the settings to open or create its log."""

    topic: str
    index: int
    topic_id: bytes
    config: LogConfig


class Load(NamedTuple):
    """A log to load from the directory called `name`."""

    name: str
    config: LogConfig
    options: LoadOptions


class LoadPlan(NamedTuple):
    """Logs to load and their checkpoints; `futures` are logs of replicas that were being moved into this directory."""

    loads: list[Load]
    futures: list[Load]
    checkpoints: OffsetCheckpoints


def plan_loads(
    held: HeldDirectory,
    wanted: Mapping[tuple[str, int], HostedPartition],
    *,
    loaded_from: Callable[[str, int], str | None],
    now_ms: int,
    producer_id_expiration_ms: int,
    new_uuid: Callable[[], bytes],
) -> LoadPlan:
    """Plan a directory's loads; set aside partitions that are not hosted, and schedule removals of deleted ones."""
    # Phase 1: the state of the directory as a whole.
    checkpoints = held.read_checkpoints()
    if not checkpoints.are_recovery_points_known and not held.found_partitions():
        held.write_checkpoint(RECOVERY_POINT_CHECKPOINT, {})  # so that a log that is missing there is known to be new
    # Taken away before any log is touched: a broker that is killed while it loads must not leave the mark behind.
    had_clean_shutdown = held.take_clean_shutdown_mark()
    # Phase 2: one directory of a partition after the other.
    loads: list[Load] = []
    futures: list[Load] = []
    for found in held.found_partitions():
        key = (found.parsed.topic, found.parsed.partition)
        hosted = wanted.get(key)
        if not _is_to_be_loaded(held, found, hosted, now_ms, new_uuid):
            continue
        assert hosted is not None
        is_future = found.parsed.mark == FUTURE_MARK
        if not is_future and (other := loaded_from(*key)) is not None:
            # It is unknown which of the two has the records that count. An operator has to decide, as with Apache Kafka.
            raise LogDirectoryProblem(
                f"{found.name} is in more than one log directory, {other} and {held.path}. If one of them failed while the"
                " replica moved to the other, remove it from the one that failed"
            )
        options = LoadOptions(
            log_start_offset=checkpoints.log_start_offsets.get(key, 0),
            recovery_point=checkpoints.recovery_points.get(key, 0),
            is_recovery_point_known=checkpoints.are_recovery_points_known,
            first_dirty_offset=checkpoints.first_dirty_offsets.get(key, -1),
            had_clean_shutdown=had_clean_shutdown,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
            topic_id=found.topic_id,
        )
        (futures if is_future else loads).append(Load(found.name, hosted.config, options))
    _report_strays(held)
    return LoadPlan(loads, futures, checkpoints)


async def load_logs(
    held: HeldDirectory, plan: LoadPlan, run_in_thread: Callable[..., Awaitable[Any]], threads_max: int
) -> tuple[list[PartitionLog], list[PartitionLog]]:
    """Load the planned logs in threads; return the logs and the future logs. Raises the first OSError."""
    logs: list[PartitionLog] = []
    futures: list[PartitionLog] = []
    loads = [*((each, logs) for each in plan.loads), *((each, futures) for each in plan.futures)]
    threads = min(threads_max, len(loads))
    errors: list[OSError] = []

    def load(start: int) -> None:
        try:
            for each, loaded in loads[start::threads]:
                # Future logs are worked on by threads from the start, so their failures and removals are noted apart.
                directory = held.log_directory if loaded is logs else held.log_directory.apart()
                loaded.append(PartitionLog.load(directory, *each))
        except OSError as error:
            errors.append(bare(error))

    async with trio.open_nursery() as nursery:
        # Each thread takes every n-th log and ends at its first error. The nursery waits
        # for all of them, so nobody still works on the directory when this raises.
        for start in range(threads):
            nursery.start_soon(run_in_thread, load, start)
    if errors:
        raise errors[0]
    return logs, futures


def _report_strays(held: HeldDirectory) -> None:
    """Warn about stray partition directories, which are never removed automatically."""
    strays = held.stray_names()
    if strays:
        logger.warning(
            "%d directories in %s hold records of partitions that no topic claims; remove them if nobody needs those: %s",
            len(strays),
            held.path,
            ", ".join(strays[:STRAYS_NAMED]) + (", ..." if len(strays) > STRAYS_NAMED else ""),
        )


def _is_to_be_loaded(
    held: HeldDirectory,
    found: FoundPartition,
    hosted: HostedPartition | None,
    now_ms: int,
    new_uuid: Callable[[], bytes],
) -> bool:
    path = found.path
    if found.parsed.mark == DELETE_MARK:
        # The topic was deleted before the broker stopped, and the removal of its files is still owed.
        held.log_directory.remove_later(path, now_ms)
        return False
    if found.parsed.mark == STRAY_MARK:
        return False
    if hosted is not None and found.topic_id in (None, hosted.topic_id):
        # Logs of old brokers have no id; they count by their name alone.
        return True
    # While this broker was away its topic was deleted, or another topic of the same name was made. The records may be
    # the last copy, so they are put aside and not removed. A log without records was left by a creation that was cut
    # short.
    is_worth_keeping = has_records(held.log_directory.storage, path)
    mark = STRAY_MARK if is_worth_keeping else DELETE_MARK
    aside = marked_directory_name(found.parsed.topic, found.parsed.partition, new_uuid().hex(), mark)
    logger.warning("No topic claims %s; it is %s as %s", path, "kept" if is_worth_keeping else "removed", aside)
    aside_path = partition_path(held.path, aside)
    held.log_directory.storage.rename(path, aside_path)
    if not is_worth_keeping:
        held.log_directory.remove_later(aside_path, now_ms)
    return False


def has_records(storage: Storage, path: str) -> bool:
    """Tell whether a partition's directory holds records."""
    for name in storage.names(path):
        file = parse_segment_file(name)
        # Indexes and checkpoints do not count: an empty log has them, too.
        if file is not None and file.kind == LOG_SUFFIX:
            with contextlib.suppress(FileNotFoundError):  # it was given up, and a thread has removed it just now
                if storage.size(path_in(path, name)) > 0:
                    return True
    return False
