"""Making a log durable: what a thread is given to do."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ottla.replication.log.epochs import LeaderEpochs
from ottla.replication.log.faults import Fault, SyncFailed, classify
from ottla.replication.log.replacing import IsStill, Replacement
from ottla.replication.log.snapshots import PendingSnapshot
from ottla.replication.log.storage import Storage, StorageFile


class EpochsJob:
    """Leader epochs of one log on their way to their file.

    A flush and the checkpoint writer may both be at it. The lock keeps their temporary files apart, and the version keeps an
    older picture from replacing a newer one. `is_still` keeps epochs of a log that was deleted or moved out of the directory that
    has its name by then: with another log's epochs a follower would cut off records that it must keep.
    """

    __slots__ = ("_epochs", "_is_still", "_version", "data", "path")

    def __init__(self, epochs: LeaderEpochs, path: str, data: bytes, is_still: IsStill) -> None:
        self._epochs = epochs
        self._version = epochs.version
        self._is_still = is_still
        self.path = path
        self.data = data

    def write(self, storage: Storage) -> None:
        """Write them, unless newer ones have been written. Waits for the disk, and for another thread that writes them."""
        with self._epochs.lock:
            # The other thread may have had a newer picture. An older one must not take its place.
            if self._version > self._epochs.written_version:
                storage.replace(self.path, self.data, self._is_still)
                self._epochs.written_version = self._version

    @property
    def replacement(self) -> Replacement:
        """What is to be written, together with others."""
        return Replacement(self.path, self.data, self._is_still)

    def begin(self) -> bool:
        """Take the lock, to write many files at once; False if another thread writes this one already, or has written newer ones."""
        if not self._epochs.lock.acquire(blocking=False):
            return False
        if self._version > self._epochs.written_version:
            return True
        self._epochs.lock.release()
        return False

    def end(self, is_written: bool) -> None:
        """Give the lock back."""
        if is_written:
            self._epochs.written_version = self._version
        self._epochs.lock.release()


def write_epochs(storage: Storage, jobs: Sequence[EpochsJob]) -> None:
    """Write the leader epochs of many logs. OSError: all that are not written count as not written."""
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
    """Files to sync so that the log is durable up to `offset`.

    `is_whole`: that is all there is to flush; else another job has to follow. `cuts` and `name_changes` say how often the log had been cut, and its files had come and gone, when the job was made.
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
        """How many files are open for it."""
        return len(self._files)

    def run(self) -> None:
        """Wait for the disk. OSError: nothing is certain; after a `SyncFailed` another try would prove nothing."""
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
