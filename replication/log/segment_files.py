"""The files of a segment: renames and removals that leave no doubt whether the segment is there.

The `.log` decides: it comes first in every list of paths. Without it the other files are nothing, and loading removes them;
without them it gets new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from ottla.replication.log.batch_scan import scan_batches
from ottla.replication.log.faults import Fault, Irreparable, classify, insist
from ottla.replication.log.index import CorruptIndex, IndexCut, OffsetIndex, TimeIndex
from ottla.replication.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from ottla.replication.log.storage import FileCache, LazyFile, Storage, StorageFile
from ottla.replication.log.transaction_index import AbortedTransaction, TransactionIndex

KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentCut(NamedTuple):
    """Plan of a segment's truncation; `position` is None if no batch is removed."""

    file: StorageFile
    position: int | None
    offset_index: IndexCut
    time_index: IndexCut
    transactions: int


def rename_files(storage: Storage, paths: Sequence[str], new_paths: Sequence[str]) -> None:
    """Rename a segment's files; only the `.log` must exist. After an OSError some files may have the new name."""
    log, *others = zip(paths, new_paths, strict=True)
    # First the `.log`: as long as it has its old name, the segment is there as before.
    insist(storage.rename, *log)
    for path, new_path in others:
        # Indexes may be missing: a log that was loaded without them makes them when they are needed.
        with contextlib.suppress(FileNotFoundError):
            insist(storage.rename, path, new_path)


def give_up_files(storage: Storage, paths: Sequence[str]) -> list[str]:
    """Rename files to deleted names; return the paths to remove later. After an OSError the `.log` is unchanged."""
    given_up = [_give_up(storage, paths[0])]
    # The segment is gone with its `.log`. Loading removes what is left of the others.
    for path in paths[1:]:
        with contextlib.suppress(OSError):
            given_up.append(_give_up(storage, path))
    return [path for path in given_up if path is not None]


def _give_up(storage: Storage, path: str) -> str | None:
    # One suffix replaces another: loading knows no file that has two of them.
    new_path = path.removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX) + DELETED_SUFFIX
    try:
        insist(storage.rename, path, new_path)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A rename may need room in the directory. A broken disk is another matter: there nothing more is tried.
        if classify(error) is Fault.BROKEN:
            raise
        storage.remove(path)  # which needs no room
        return None
    return new_path


def remove_files(storage: Storage, paths: Sequence[str]) -> None:
    """Remove files that a restart must not find. Raises `Irreparable` if that fails."""
    for path in paths:
        try:
            insist(storage.remove, path)
        except OSError as error:
            # The next start would find a file that stays.
            raise Irreparable(f"{path} cannot be removed", error) from error


def remove_unfinished(storage: Storage, paths: Sequence[str]) -> None:
    """Remove the files of a segment whose creation failed; the next load ignores files without a `.log`."""
    remove_files(storage, paths[:1])
    for path in paths[1:]:
        with contextlib.suppress(OSError):
            storage.remove(path)


class SegmentFiles:
    """A segment's `.log` and its three index files, which are renamed and removed together."""

    __slots__ = (
        "_directory",
        "_files",
        "_log",
        "_offset_index",
        "_suffix",
        "_time_index",
        "base_offset",
        "txn_index",
    )

    def __init__(self, files: FileCache, directory: str, base_offset: int, *, suffix: str = "") -> None:
        self._files = files
        self._directory = directory
        self._suffix = suffix
        self._log = LazyFile(files, segment_path(directory, base_offset, LOG_SUFFIX, suffix))
        self.base_offset = base_offset
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.txn_index: TransactionIndex | None = None

    # --- names --------------------------------------------------------------------------------------------------------

    @property
    def log_file(self) -> LazyFile:
        """File with the batches (`.log`)."""
        return self._log

    def path(self, kind: str) -> str:
        """Return the path of this segment's file of a kind such as `.index`."""
        return segment_path(self._directory, self.base_offset, kind, self._suffix)

    def paths(self, suffix: str | None = None) -> list[str]:
        """Return the paths of the segment's files, existing or not; `suffix` None: with the present suffix."""
        suffix = self._suffix if suffix is None else suffix
        return [segment_path(self._directory, self.base_offset, kind, suffix) for kind in KINDS]

    def change_suffix(self, suffix: str) -> None:
        """Rename all files; after an OSError some files have the new suffix and some the old one."""
        rename_files(self._files.storage, self.paths(), self.paths(suffix))
        self._suffix = suffix
        self._set_paths()

    def give_up(self) -> list[str]:
        """Rename all files to deleted names; return the paths to remove later. After an OSError nothing has changed."""
        self.release_files()
        given_up = give_up_files(self._files.storage, self.paths())
        self._suffix = DELETED_SUFFIX
        self._set_paths()
        return given_up

    def move_to(self, directory: str) -> None:
        """Adopt the new path of the directory after a rename."""
        self._directory = directory
        self._set_paths()

    def use_files(self, files: FileCache) -> None:
        """Open files through another cache from now on; all index entries must be saved."""
        self.release_files()
        self._files = files
        self._log = LazyFile(files, self.path(LOG_SUFFIX))
        self._offset_index = self._time_index = None
        if self.txn_index is not None:
            self.txn_index.use_files(files)

    def _set_paths(self) -> None:
        self._log.path = self.path(LOG_SUFFIX)
        for index, kind in zip((self._offset_index, self._time_index, self.txn_index), KINDS[1:], strict=True):
            if index is not None:
                index.path = self.path(kind)

    # --- aborted transactions -----------------------------------------------------------------------------------------

    def open_txn_index(self) -> None:
        """Use the existing `.txnindex` file."""
        path = self.path(TXN_INDEX_SUFFIX)
        self.txn_index = TransactionIndex(self._files, path, size_bytes=self._files.storage.size(path))

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        """Record an aborted transaction whose marker is in this segment."""
        if self.txn_index is None:
            self.txn_index = TransactionIndex(self._files, self.path(TXN_INDEX_SUFFIX))
        self.txn_index.append(transaction)

    def replace_transactions(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Write the `.txnindex` anew with these transactions; remove it if there are none."""
        path = self.path(TXN_INDEX_SUFFIX)
        self.txn_index = TransactionIndex(self._files, path, is_stale=True) if transactions else None
        if self.txn_index is None:
            self._files.storage.remove(path)
            return
        for transaction in transactions:
            self.txn_index.append(transaction)
        self.txn_index.save()

    # --- on the disk --------------------------------------------------------------------------------------------------

    def save_indexes(self) -> None:
        """Write index entries that exist only in memory."""
        for index in (self._time_index, self._offset_index, self.txn_index):
            if index is not None:
                index.save()

    def files_to_sync(self, *, is_active: bool = False) -> list[LazyFile]:
        """Save index entries; return the files to sync.

        An active segment's offset index and time index are left out, because they can be rebuilt.
        """
        files = [self._log]
        for index in (self.txn_index,) if is_active else (self._offset_index, self._time_index, self.txn_index):
            lazy = index.file_to_sync() if index is not None else None
            if lazy is not None:
                files.append(lazy)
        return files

    def release_files(self) -> None:
        """Close all files without writing unsaved entries."""
        self._log.close()
        for index in (self._offset_index, self._time_index, self.txn_index):
            if index is not None:
                index.forget()


def check_indexes(offset_index: OffsetIndex, time_index: TimeIndex, log: LazyFile, size: int) -> None:
    """Raise CorruptIndex or CorruptSegment if an index ends with zeros, is ahead of its log or fits another log."""
    offset, position = offset_index.last_entry()
    base_offset = offset_index.base_offset
    if offset_index.entries:
        header = next(scan_batches(log.open(), position, size), None)
        if not position:  # the first batch never has an entry, so these are zeros
            raise CorruptIndex(f"{offset_index.path} ends with zeros")
        if offset < base_offset or header is None or not base_offset <= header[0].base_offset <= offset:
            raise CorruptIndex(f"{offset_index.path} ends with offset {offset} at {position}")
    time_index.check()
    if time_index.entries and time_index.last_offset > offset:
        headers = scan_batches(log.open(), position, size)
        if not any(header.last_offset >= time_index.last_offset for header, _ in headers):
            raise CorruptIndex(f"{time_index.path} ends with offset {time_index.last_offset}")
