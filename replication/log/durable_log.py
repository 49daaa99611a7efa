"""Durability of a log: the recovery point, flushes that move it, and the file of leader epochs.

Everything below `recovery_point` is on the disk for certain. A flush is split in three, so that a thread never touches the
log itself:

    job = log.prepare_flush()      on the loop: which open files, up to which offset
    job.run()                      in a thread: syncs those files, and nothing else
    log.finish_flush(job)          on the loop: the recovery point moves, unless the log was cut meanwhile

A job has the files of a few segments open. Where more segments are not on the disk yet (a log that was recovered without a
recovery point may have thousands), it flushes the oldest of them, and `finish_flush` asks for another job.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence

from ottla.replication.log.atomic_files import IsStill, Replacement, keeps_directory
from ottla.replication.log.checkpoints import encode_epochs
from ottla.replication.log.faults import Fault, SyncFailed, classify
from ottla.replication.log.leader_epochs import LeaderEpochs
from ottla.replication.log.log_reader import LogReader, base_offset_of, guarded
from ottla.replication.log.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, path_in
from ottla.replication.log.producer_snapshots import PendingSnapshot, ProducerSnapshots
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import LogDirectory, Storage, StorageFile


class EpochsJob:
    """Write of a log's leader epochs to their file.

    A flush and the checkpoint writer may run at the same time. The lock separates their temporary files; the version
    keeps an older snapshot from replacing a newer one. `is_still` keeps epochs of a deleted or moved log out of a
    directory that has taken over its name: with another log's epochs a follower would truncate needed records.
    """

    __slots__ = ("_epochs", "_is_still", "_version", "data", "path")

    def __init__(self, epochs: LeaderEpochs, path: str, data: bytes, is_still: IsStill) -> None:
        self._epochs = epochs
        self._version = epochs.version
        self._is_still = is_still
        self.path = path
        self.data = data

    def write(self, storage: Storage) -> None:
        """Write the epochs unless newer ones were written; blocks on the disk and on other writers of the file."""
        with self._epochs.lock:
            # The other thread may have had a newer snapshot. An older one must not take its place.
            if self._version > self._epochs.written_version:
                storage.replace(self.path, self.data, self._is_still)
                self._epochs.written_version = self._version

    @property
    def replacement(self) -> Replacement:
        """New contents of the file, for writing it together with other files."""
        return Replacement(self.path, self.data, self._is_still)

    def begin(self) -> bool:
        """Take the file's lock; return False if another thread writes the file or has written newer epochs."""
        if not self._epochs.lock.acquire(blocking=False):
            return False
        if self._version > self._epochs.written_version:
            return True
        self._epochs.lock.release()
        return False

    def end(self, is_written: bool) -> None:
        """Release the file's lock; `is_written` is True if the epochs were written."""
        if is_written:
            self._epochs.written_version = self._version
        self._epochs.lock.release()


def write_epochs(storage: Storage, jobs: Sequence[EpochsJob]) -> None:
    """Write the leader epochs of many logs; after an OSError unwritten epochs remain dirty."""
    # A file that another thread is writing is left to it, so that one slow log does not hold up all others.
    begun = [job for job in jobs if job.begin()]
    is_written = False
    try:
        storage.replace_all([job.replacement for job in begun])
        is_written = True
    finally:
        for job in begun:
            job.end(is_written)


class FlushJob:
    """Files to sync, so that the log is durable up to `offset`.

    `is_whole` is True if nothing remains to be flushed after this job. `cuts` and `name_changes` are the log's numbers
    of truncations and of file changes when the job was created.
    """

    __slots__ = (
        "_directories",
        "_epochs",
        "_files",
        "_storage",
        "cuts",
        "is_whole",
        "name_changes",
        "offset",
        "snapshot",
    )

    def __init__(
        self,
        storage: Storage,
        offset: int,
        files: list[StorageFile],
        directories: Sequence[str],
        epochs: EpochsJob | None,
        snapshot: PendingSnapshot | None = None,
        *,
        cuts: int,
        name_changes: int,
        is_whole: bool,
    ) -> None:
        self._storage = storage
        self.offset = offset
        self._files = files
        self._directories = directories
        self._epochs = epochs
        self.snapshot = snapshot
        self.cuts = cuts
        self.name_changes = name_changes
        self.is_whole = is_whole

    def __len__(self) -> int:
        """Number of files open for this job."""
        return len(self._files)

    def run(self) -> None:
        """Sync the files. After an OSError no record counts as durable; after `SyncFailed` a retry proves nothing."""
        # A directory that is gone was deleted with its topic meanwhile.
        # All below has to be on the disk before the recovery point moves, because a start does not read what lies
        # below it.
        if self._epochs is not None:
            with contextlib.suppress(FileNotFoundError):
                self._epochs.write(self._storage)
        if self.snapshot is not None:
            self.snapshot.run()
        for file in self._files:
            try:
                file.sync()
            except OSError as error:
                raise SyncFailed.because_of(error) from error
        # After the contents: a name on the disk must not lead to a file that is empty there.
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._sync_directory(directory)

    def _sync_directory(self, directory: str) -> None:
        try:
            self._storage.sync_directory(directory)
        except FileNotFoundError:
            raise
        except OSError as error:
            # A directory is opened to be synced. A shortage of descriptors there says nothing about what was written.
            if classify(error) is Fault.TRANSIENT:
                raise
            raise SyncFailed.because_of(error) from error


SEALED_PER_FLUSH = 3  # segments below the last one, each of which has up to four files


class DurableLog(LogReader):
    """Log with a recovery point, below which all records are on the disk."""

    __slots__ = (
        "_cuts",
        "_epochs",
        "_has_sealed",
        "_name_changes",
        "_names_synced",
        "_snapshots",
        "directory",
        "recovery_point",
    )

    def __init__(
        self,
        log_directory: LogDirectory,
        directory: str,
        name: str,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
    ) -> None:
        super().__init__(
            log_directory, name, segments, log_start_offset=log_start_offset, log_end_offset=log_end_offset
        )
        self.directory = directory
        self.recovery_point = recovery_point
        self._epochs = epochs
        self._snapshots = snapshots
        self._cuts = 0  # how often records were taken back
        self._has_sealed = False  # a segment, whose indexes have not been synced since
        self._name_changes = 1  # how often files came or went; nobody knows whether the last broker synced its own
        self._names_synced = 0

    @property
    def cuts(self) -> int:
        """Number of truncations of this log."""
        return self._cuts

    # --- flushing -----------------------------------------------------------------------------------------------------

    @guarded
    def prepare_flush(self, *, include_active: bool = True) -> FlushJob | None:
        """Return the next job that syncs the log to its end; None if nothing is left to sync.

        Without `include_active` the log is synced only to the start of the last segment.
        """
        active = self._segments[-1]
        offset = self.log_end_offset if include_active else active.base_offset
        snapshot = self._snapshots.pending
        if offset <= self.recovery_point and not self._has_sealed and snapshot is None:
            return None
        # The oldest first: the recovery point can only move over a beginning that is on the disk.
        sealed = self._unsynced()
        is_whole = len(sealed) <= SEALED_PER_FLUSH
        if not is_whole:
            offset = sealed[SEALED_PER_FLUSH].base_offset
        # Opened here, on the event loop. So the thread needs no names, which may change meanwhile.
        files = [lazy.open() for segment in sealed[:SEALED_PER_FLUSH] for lazy in segment.files_to_sync()]
        files += self._snapshot_to_sync(active.base_offset if is_whole else offset)
        files += self._topic_id_to_sync()
        if include_active and is_whole:
            files += [lazy.open() for lazy in active.files_to_sync(is_active=True)]
        return FlushJob(
            self.log_directory.storage,
            offset,
            files,
            (self.directory, self.log_directory.path) if self._name_changes > self._names_synced else (),
            self.epochs_to_write() if self._epochs.is_dirty else None,
            snapshot,
            cuts=self._cuts,
            name_changes=self._name_changes,
            is_whole=is_whole,
        )

    def _snapshot_to_sync(self, offset: int) -> list[StorageFile]:
        if offset <= self.recovery_point and not self._has_sealed:
            return []
        file = self._snapshots.file_to_sync(offset)
        return [] if file is None else [file]

    def _topic_id_to_sync(self) -> list[StorageFile]:
        """Return the file with the topic id if it is unsynced, else an empty list.

        Without this file any topic of the same name would get the log.
        """
        with contextlib.suppress(FileNotFoundError):
            if self._name_changes > self._names_synced:
                return [self.log_directory.storage.open(path_in(self.directory, PARTITION_METADATA))]
        return []

    def _unsynced(self) -> Sequence[Segment]:
        # All but the last that end at the recovery point or above. The one that ends right there has been synced to its
        # end, but not since its indexes were completed.
        first = max(0, bisect_left(self._segments, self.recovery_point, key=base_offset_of) - 1)
        return self._segments[first:-1]

    def finish_flush(self, job: FlushJob) -> bool:
        """Raise the recovery point after `job`, unless the log was truncated since.

        Returns False if another job is needed.
        """
        if job.snapshot is not None:
            self._snapshots.finish(job.snapshot)
        # Offsets that were cut off and rewritten are other records, which the job has not synced.
        if job.cuts != self._cuts:
            return False
        self.recovery_point = max(self.recovery_point, min(job.offset, self.log_end_offset))
        self._names_synced = max(self._names_synced, job.name_changes)
        if job.is_whole:
            # A roll during the job counts as a change of names, and seals a segment that the job knows nothing of.
            self._has_sealed = self._names_synced < self._name_changes and self._has_sealed
        return job.is_whole

    @guarded
    def flush(self, *, include_active: bool = True) -> None:
        """Make the log durable to its end, or without `include_active` up to the last segment; blocks on the disk."""
        is_over = False
        while not is_over and (job := self.prepare_flush(include_active=include_active)) is not None:
            job.run()
            is_over = self.finish_flush(job)

    # --- files that follow --------------------------------------------------------------------------------------------

    @property
    def epochs_are_dirty(self) -> bool:
        """True while the leader-epoch-checkpoint differs from the epochs in memory."""
        return self._epochs.is_dirty

    def epochs_to_write(self) -> EpochsJob:
        """Return a job that writes the present leader epochs to their checkpoint."""
        path = path_in(self.directory, LEADER_EPOCH_CHECKPOINT)
        return EpochsJob(self._epochs, path, encode_epochs(self._epochs.entries), keeps_directory(self))

    def save_indexes(self) -> None:
        """Write the active segment's index entries that exist only in memory. Called for logs that are idle."""
        with contextlib.suppress(OSError):  # not needed before the segment is finished
            self._segments[-1].save_indexes()

    def release_files(self) -> None:
        """Close all files; they are opened again on demand."""
        for segment in self._segments:
            segment.release_files()

    def moved_to(self, directory: str) -> None:
        """Adopt the new path of the log's directory after a rename."""
        self.layout += 1
        self.directory = directory
        self._snapshots.directory = directory
        self._epochs.mark_dirty()  # a flush under way misses the directory
        self._name_changes += 1
        for segment in self._segments:
            segment.move_to(directory)
