"""Log directories of a broker as a whole: their identity, contents and checkpoints.

A directory belongs to one broker of one cluster (`meta.properties`) and to one process at a time (`.lock`). It holds one
subdirectory per partition and checkpoints of all of them: up to where each log is known to be on disk, where it begins,
its high watermark, and up to where it is compacted. `.kafka_cleanshutdown` is there while no broker has the directory open
and the last broker closed it in order. It is removed before anything else is done.

Everything in this module waits for the disk and is called in a thread, or before there is anybody to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from ottla.replication.log.checkpoints import (
    CorruptCheckpoint,
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
)
from ottla.replication.log.descriptors import Descriptors
from ottla.replication.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_MARK,
    PartitionDirectory,
    parse_partition_directory,
    path_in,
)
from ottla.replication.log.storage import DirectoryLock, LogDirectory, Storage

logger = logging.getLogger(__name__)

CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
NOT_OURS = frozenset(("__cluster_metadata",))  # KRaft's own log; it is no topic


class LogDirectoryProblem(Exception):
    """A log directory problem that prevents the broker's start; the text is one sentence for the operator."""


class FoundPartition(NamedTuple):
    """A partition's directory found on disk; `topic_id` is None if the directory has no readable record of it."""

    name: str
    parsed: PartitionDirectory
    topic_id: bytes | None
    path: str


class OffsetCheckpoints(NamedTuple):
    """Contents of a log directory's checkpoint files, by (topic, partition).

    If `are_recovery_points_known`, a log without a recovery point is new; otherwise no log's recovery point is known.
    """

    are_recovery_points_known: bool
    recovery_points: Mapping[tuple[str, int], int]
    log_start_offsets: Mapping[tuple[str, int], int]
    high_watermarks: Mapping[tuple[str, int], int]
    first_dirty_offsets: Mapping[tuple[str, int], int]


class HeldDirectory:
    """A log directory locked by this process, or one that failed before it could be locked."""

    def __init__(self, log_directory: LogDirectory, lock: DirectoryLock | None, meta: MetaProperties | None) -> None:
        self.log_directory = log_directory
        self.meta = meta
        self._lock = lock
        self._storage = log_directory.storage
        # What this process wrote last, so that an unchanged checkpoint costs no sync.
        self._written: dict[str, bytes] = {}
        self._recorded: dict[str, set[tuple[str, int]]] = {}  # by the checkpoints on the disk, as far as is known

    @property
    def path(self) -> str:
        return self.log_directory.path

    def _in(self, name: str) -> str:
        return path_in(self.log_directory.path, name)

    def settle(self, *, node_id: int, cluster_id: str, directory_id: bytes | None = None) -> None:
        """Claim a new directory for this broker, and give the directory an id if it has none.

        Writes meta.properties version 0, as Kafka's ZooKeeper brokers do; KRaft brokers need a formatted directory.
        """
        if self.meta is None:
            self._begin_recovery_points()
            self._write_meta(MetaProperties(0, node_id, cluster_id, directory_id))
        # A directory of another cluster holds other topics of perhaps
        # the same names. Its logs must not be served, nor removed.
        elif self.meta.cluster_id not in (None, cluster_id):
            raise LogDirectoryProblem(
                f"{self.path} belongs to cluster {self.meta.cluster_id}, but this broker is in cluster {cluster_id}"
            )
        elif self.meta.directory_id is None and directory_id is not None:
            self._write_meta(self.meta._replace(directory_id=directory_id))

    def _begin_recovery_points(self) -> None:
        """Write empty recovery points for a directory without logs; logs without entries then count as new."""
        # Before the properties, because the sync of their name is this one's, too. Half a file counts as none.
        path = self._in(RECOVERY_POINT_CHECKPOINT)
        if not self._storage.exists(path) and not self.found_partitions():
            self._storage.write(path, encode_offsets({}), sync=True)

    def _write_meta(self, meta: MetaProperties) -> None:
        self._storage.replace(self._in(META_PROPERTIES), encode_meta_properties(meta))
        self.meta = meta

    def found_partitions(self) -> list[FoundPartition]:
        """Return all partition directories, including directories with a mark such as `-delete`."""
        return [
            FoundPartition(name, parsed, self._topic_id(path), path)
            for name, parsed in self._parsed_names()
            if self._storage.is_directory(path := self._in(name))
        ]

    def stray_names(self) -> list[str]:
        """Return the names of partition directories that were set aside as strays."""
        marked = [name for name, parsed in self._parsed_names(STRAY_MARK) if parsed.mark == STRAY_MARK]
        return sorted(name for name in marked if self._storage.is_directory(self._in(name)))

    def _parsed_names(self, end: str = "") -> Iterator[tuple[str, PartitionDirectory]]:
        for name in self._storage.names(self.path):
            parsed = parse_partition_directory(name) if name.endswith(end) else None
            if parsed is not None and parsed.topic not in NOT_OURS:
                yield name, parsed

    def _topic_id(self, path: str) -> bytes | None:
        try:
            return decode_partition_metadata(self._storage.read(path_in(path, PARTITION_METADATA)))
        # Brokers before topic ids wrote no such file, and a damaged one tells nothing. The log then counts by its name.
        except (FileNotFoundError, CorruptCheckpoint):
            return None

    def take_clean_shutdown_mark(self) -> bool:
        """Remove the clean-shutdown mark; return True if it existed."""
        if not self._storage.exists(self._in(CLEAN_SHUTDOWN)):
            return False
        self._storage.remove(self._in(CLEAN_SHUTDOWN))
        # If a power cut brought the mark back, the next start would
        # trust logs that were being written, without a check.
        self._storage.sync_directory(self.path)
        return True

    def leave_clean_shutdown_mark(self, broker_epoch: int) -> None:
        """Write the clean-shutdown mark, which says that all data is on the disk."""
        self._storage.replace(self._in(CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch))

    def read_checkpoints(self) -> OffsetCheckpoints:
        """Read the checkpoints; an unreadable checkpoint counts as empty, which costs time but no records."""
        checkpoints = [self._read_checkpoint(name) for name in CHECKPOINTS]
        self._recorded = {name: set(each or ()) for name, each in zip(CHECKPOINTS, checkpoints, strict=True)}
        return OffsetCheckpoints(checkpoints[0] is not None, *(each or {} for each in checkpoints))

    def _read_checkpoint(self, name: str) -> Mapping[tuple[str, int], int] | None:
        try:
            data = self._storage.read(self._in(name))
            return decode_offsets(data) if data else None  # Kafka makes the file before it knows anything
        except FileNotFoundError:
            return None
        except CorruptCheckpoint as error:
            logger.warning("Ignoring %s: %s", self._in(name), error)
            return None

    def write_checkpoint(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write a checkpoint file if its contents have changed."""
        data = encode_offsets(offsets)
        # Checkpoints are due again and again, and in a quiet broker they always say the same.
        if self._written.get(name) != data:
            self._written.pop(name, None)  # if this fails, the file may say either
            # Until the replacement is over, the file on the disk may be the old or the new one.
            self._recorded[name] = self._recorded.get(name, set()) | offsets.keys()
            self._storage.replace(self._in(name), data)
            self._written[name] = data
            self._recorded[name] = set(offsets)

    def mentions(self, logs: Collection[tuple[str, int]]) -> bool:
        """Tell whether a checkpoint may have an entry for one of the logs."""
        return any(not recorded.isdisjoint(logs) for recorded in self._recorded.values())

    def release(self) -> None:
        """Release the directory's lock."""
        if self._lock is not None:
            self._lock.release()


def hold_directories(
    paths: Iterable[str], storage: Storage, *, node_id: int, descriptors: Descriptors | None = None
) -> list[HeldDirectory]:
    """Lock the log directories, created if missing; a broken directory is returned as offline.

    Raises LogDirectoryProblem if a directory must not be used, or if all are broken.
    """
    # Phase 1: each directory by itself. One bad disk must not keep a broker from starting on the others.
    held: list[HeldDirectory] = []
    try:
        for path in paths:
            log_directory = LogDirectory(path, storage, descriptors=descriptors)
            held.append(_hold(log_directory, node_id))
        # Phase 2: what can only be judged of all of them together.
        if not any(each.log_directory.is_online for each in held):
            raise LogDirectoryProblem(f"Log directory {held[0].path} cannot be used: {held[0].log_directory.failure}")
        clusters = {each.meta.cluster_id for each in held if each.meta is not None and each.meta.cluster_id}
        if len(clusters) > 1:
            raise LogDirectoryProblem(
                f"The log directories belong to different clusters: {', '.join(sorted(clusters))}"
            )
    # The process may go on without a broker, and another attempt must find the locks free.
    except BaseException:
        for each in held:
            each.release()
        raise
    return held


def _hold(log_directory: LogDirectory, node_id: int) -> HeldDirectory:
    lock, meta = None, None
    try:
        # The lock comes first: nothing is read of a directory that another process may be writing.
        lock = _lock(log_directory.path, log_directory.storage)
        meta = _read_meta(log_directory.path, log_directory.storage)
    except OSError as error:
        logger.error("Log directory %s is offline: %s", log_directory.path, error)
        log_directory.take_offline(error)
    if meta is not None and lock is not None and meta.node_id not in (None, node_id):
        lock.release()
        raise LogDirectoryProblem(
            f"Configured node id {node_id} does not match the stored one {meta.node_id}"
            f" in {path_in(log_directory.path, META_PROPERTIES)}"
        )
    return HeldDirectory(log_directory, lock, meta)


def make_directories(path: str, storage: Storage) -> None:
    """Make a directory and its missing parents."""
    # One by one, because the port to the disk makes a single directory at a time.
    for parent in (*reversed(PurePath(path).parents), PurePath(path)):
        if storage.is_directory(str(parent)):
            continue
        try:
            storage.make_directory(str(parent))
        except FileExistsError:
            # Another broker that starts has made it at the same moment, or else it is no directory.
            if not storage.is_directory(str(parent)):
                raise


def _lock(path: str, storage: Storage) -> DirectoryLock:
    make_directories(path, storage)
    lock = storage.lock(path_in(path, LOCK))
    if lock is None:
        raise LogDirectoryProblem(
            f"Failed to acquire lock on file {LOCK} in {path}. A broker in another process is using this directory."
        )
    return lock


def _read_meta(path: str, storage: Storage) -> MetaProperties | None:
    file = path_in(path, META_PROPERTIES)
    try:
        return decode_meta_properties(storage.read(file))
    except FileNotFoundError:
        return None
    except CorruptCheckpoint as error:
        raise LogDirectoryProblem(f"{file} cannot be read: {error}") from error
