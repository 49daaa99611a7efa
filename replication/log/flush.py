"""Making a log durable: what a thread is given to do."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ottla.replication.log.faults import SyncFailed
from ottla.replication.log.storage import Storage, StorageFile


class FlushJob:
    """Files to sync so that the log is durable up to `offset`."""

    __slots__ = ("_directories", "_epochs", "_files", "_storage", "offset")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        files: list[StorageFile],
        directories: Sequence[str],
        epochs: tuple[str, bytes] | None,
    ) -> None:
        self._storage = storage
        self.offset = offset
        self._files = files
        self._directories = directories
        self._epochs = epochs

    def run(self) -> None:
        """Wait for the disk. OSError: nothing is certain; after a `SyncFailed` another try would prove nothing."""
        # A directory that is gone was deleted with its topic meanwhile.
        if self._epochs is not None:
            with contextlib.suppress(FileNotFoundError):
                self._storage.replace(*self._epochs)
        for file in self._files:
            try:
                file.sync()
            except OSError as error:
                raise SyncFailed.because_of(error) from error
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._storage.sync_directory(directory)
