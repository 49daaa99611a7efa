"""Making a log durable: what a thread is given to do."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

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
        """Wait for the disk. OSError: nothing is certain, and the log directory must go offline."""
        # A directory that is gone was deleted with its topic meanwhile.
        if self._epochs is not None:
            with contextlib.suppress(FileNotFoundError):
                self._storage.replace(*self._epochs)
        for file in self._files:
            file.sync()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._storage.sync_directory(directory)
