"""The journal file of the embedded coordination tree: a sequence of entries, each written completely or not at all.

An entry is `length, CRC-32C, JSON list of changes`. What is appended together is one entry, so an append that is cut short by
a full disk, a kill or a power cut leaves nothing of it. An entry that cannot be read although others follow it was damaged
later: the file is left as it is, and the broker does not start on it.

A change is `[0, path, data]` (create), `[1, path, data]` (set), `[2, path]` (delete), `[3, path, data, version, creation id,
next sequence number]` (a whole node, in a journal that was rewritten), or `[4]`: what follows belongs to the next multi. Data
is kept as Latin-1 text.

A file begins with the version of its format, as `[4, version]`, because an Ottla that knew no versions reads over that. A file
without is of version 1. One of a later version than VERSION is left as it is, and the broker does not start on it.

| what fails                       | afterwards                                                                               |
|----------------------------------|------------------------------------------------------------------------------------------|
| the write of an entry, no room   | The entry is not there: what was written of it is cut off, by the next append if that    |
| or short of something            | fails too. Appending works again as soon as there is room.                               |
| a rewriting, for the same reason | The old file stays in force; it says the same, only longer.                              |
| a sync, or anything for a reason | Nobody knows what is on the disk: the journal is *broken* and takes nothing more. The    |
| that means a broken disk         | entry that was being written may be there after the next start, or not.                  |
| the sync of the renamed file's   | The new file is in force, but after a power cut the old one may be back. Nothing is      |
| directory, short of something    | appended, and no start is kept, before that sync has worked.                             |

Settings may hold passwords, so only the file's owner may read it. Everything here waits for the disk and runs in a thread,
one call at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.replication.log.faults import Fault, classify
from ottla.replication.log.names import path_in
from ottla.replication.log.storage import Storage, StorageFile
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.wire.checksum import crc32c

logger = logging.getLogger("ottla.coordination")

JOURNAL_NAME = "coordination.journal"
TEMPORARY_NAME = "coordination.tmp"
VERSION = 1  # rises when there is something in the file that an Ottla of before would misread
CHANGES_PER_ENTRY = 500  # of a rewritten file, so that no entry needs much memory at once
NEXT_MULTI = 4

_entry_header = struct.Struct(">II")
_ENTRY_BEGINS = b"[["  # a list of lists, as JSON writes it: where to look for entries behind a damaged one

JournalChange = list[Any]


class DamagedJournal(LogDirectoryProblem):
    """Damage inside the journal: valid entries follow a damaged one, so acknowledged changes are unreadable."""

    def __init__(self, path: str, position: int, size: int) -> None:
        super().__init__(
            f"{path} is damaged at byte {position} of {size}, and there are whole entries after that. Put a copy of it in its "
            f"place if there is one. To go on without everything from there on, cut the file to {position} bytes"
        )


class NewerJournal(LogDirectoryProblem):
    """Journal in a format of a newer Ottla, which this release might misread."""

    def __init__(self, path: str, version: object) -> None:
        super().__init__(
            f"{path} was written by a newer Ottla, in version {version} of its format, and this one reads {VERSION} and earlier: "
            "start that one again"
        )


class Journal:
    """Journal of changes to the coordination tree. `failure`: error that broke the journal, None if there was none."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self.path = path_in(directory, JOURNAL_NAME)
        self.failure: OSError | None = None
        self.appended = 0  # changes since the file was rewritten
        self._storage, self._directory = storage, directory
        self._temporary = path_in(directory, TEMPORARY_NAME)
        self._file: StorageFile | None = None
        self._size = 0  # of what is known to be on the disk
        self._is_torn = False
        self._is_name_synced = True

    # ------------------------------------------------------------------ reading

    def read(self) -> Iterator[list[JournalChange]]:
        """Yield the changes of each valid entry, in order. An invalid last entry counts as never written.

        Raises DamagedJournal if a valid entry follows an invalid one: an entry is appended only after the entries
        before it are on the disk. Raises NewerJournal before yielding anything.
        """
        content = self._storage.read(self.path) if self._storage.exists(self.path) else b""
        self._size = 0
        while (start := self._size + _entry_header.size) <= len(content):
            length, checksum = _entry_header.unpack_from(content, self._size)
            payload = content[start : start + length]
            # zeros, which a power cut leaves where a file had grown, have the right checksum of nothing
            if not length or len(payload) < length or crc32c(payload) != checksum:
                break
            changes = json.loads(payload)
            yield self._without_version(changes) if self._size == 0 else changes
            self._size = start + length
        # A power cut leaves half an entry, and nothing after it:
        # whole ones are written only behind an entry that was synced.
        self._is_torn = self._size < len(content)
        if self._is_torn:
            if _holds_entry(content, self._size + 1):
                raise DamagedJournal(self.path, self._size, len(content))
            logger.warning("%s: the last %d bytes are no whole entry", self.path, len(content) - self._size)

    def _without_version(self, changes: list[JournalChange]) -> list[JournalChange]:
        """Remove the format version from the first entry's `changes`; return the rest. Raises NewerJournal."""
        if not changes or changes[0][0] != NEXT_MULTI:
            return changes  # written by an Ottla that knew no versions
        version = changes[0][1] if len(changes[0]) == 2 else None
        if type(version) is not int or version > VERSION:
            raise NewerJournal(self.path, version)
        return changes[1:]

    @property
    def is_there(self) -> bool:
        """True if the journal has an open file, to which entries can be appended."""
        return self._file is not None

    @property
    def is_name_synced(self) -> bool:
        """True if the rewritten file survives a power cut. False: the older file may come back."""
        return self._is_name_synced

    def resume(self) -> None:
        """Open the file that `read` has read, to append to it; do nothing if there is none."""
        if self._storage.exists(self.path):
            self._file = self._storage.open(self.path, private=True)

    # ------------------------------------------------------------------ writing

    def append(self, changes: Sequence[JournalChange]) -> None:
        """Append one entry and sync the file. Raises OSError if the entry is not stored, or the journal is broken."""
        content = _entry(changes)
        # Step 1: the file ends with a whole entry. Behind half an entry nothing could ever be read again.
        file = self._prepared()
        # Step 2: set before the write, so that whatever happens to it, the next append cuts first.
        self._is_torn = True
        try:
            file.append(content)
        except OSError as error:
            self._judged(error)
            with contextlib.suppress(OSError):  # the next append tries again
                self._cut(file)
            raise
        # Step 3: on the disk, and only then counted. The caller shows the change to others as soon as this returns.
        self._sync(file)
        self._size += len(content)
        self._is_torn = False
        self.appended += len(changes)

    def _prepared(self) -> StorageFile:
        """Truncate the file after its last valid entry and sync its name; return the open file. Raises OSError."""
        if self.failure is not None or self._file is None:
            raise self.failure or OSError(f"{self.path} is closed")
        self.sync_name()
        self._cut(self._file)
        return self._file

    def _cut(self, file: StorageFile) -> None:
        try:
            if self._is_torn:
                file.truncate(self._size)
                self._is_torn = False
        except OSError as error:
            raise self._judged(error) from None

    def sync_name(self) -> None:
        """Sync the file's name after `rewrite`. Raises OSError on failure: a power cut may restore the old file."""
        try:
            # While the new name may be lost in a power cut, so is every
            # entry in the new file. Nothing may be acknowledged there.
            if not self._is_name_synced:
                self._storage.sync_directory(self._directory)
                self._is_name_synced = True
        except OSError as error:  # the directory could not be opened, or its sync failed
            raise error if classify(error) is Fault.TRANSIENT else self._broken(error) from None

    def _sync(self, file: StorageFile) -> None:
        try:
            file.sync()
        except OSError as error:  # whatever it says: the pages may be marked as clean without being on the disk
            raise self._broken(error) from None

    def rewrite(self, changes: Iterable[JournalChange]) -> None:
        """Replace the journal by a shorter one. Raises OSError if the old file stays, or the journal is broken."""
        if self.failure is not None:
            raise self.failure
        try:
            # The new file is whole and synced before it gets the name. At any time one of the two is there under it.
            file, size = self._write_anew(changes)
            self._storage.rename(self._temporary, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._storage.remove(self._temporary)
            raise self._judged(error) from None
        self._file, self._size, self.appended = file, size, 0
        self._is_torn = self._is_name_synced = False
        with contextlib.suppress(OSError):  # the next append tries it again, unless the journal is broken now
            self._prepared()
        if self.failure is not None:
            raise self.failure

    def _write_anew(self, changes: Iterable[JournalChange]) -> tuple[StorageFile, int]:
        self._storage.remove(self._temporary)  # a kill may have left one
        file = self._storage.open(self._temporary, create=True, private=True)
        size = 0
        for some in _in_parts(itertools.chain([[NEXT_MULTI, VERSION]], changes)):
            content = _entry(some)
            file.append(content)
            size += len(content)
        file.sync()
        return file, size

    def close(self) -> None:
        """Close the file."""
        self._file = None

    # ------------------------------------------------------------------ failures

    def _judged(self, error: OSError) -> OSError:
        return self._broken(error) if classify(error) is Fault.BROKEN else error

    def _broken(self, error: OSError) -> OSError:
        if self.failure is None:
            self.failure = error
        return error


def _entry(changes: Sequence[JournalChange]) -> bytes:
    payload = json.dumps(changes, separators=(",", ":")).encode()
    return _entry_header.pack(len(payload), crc32c(payload)) + payload


def _holds_entry(content: bytes, start: int) -> bool:
    """Return True if a valid entry begins anywhere after `start`."""
    # The length field of a damaged entry says nothing of where the next one begins, so every place is looked at.
    position = content.find(_ENTRY_BEGINS, start + _entry_header.size)
    while position >= 0:
        length, checksum = _entry_header.unpack_from(content, position - _entry_header.size)
        if position + length <= len(content) and crc32c(content[position : position + length]) == checksum:
            return True
        position = content.find(_ENTRY_BEGINS, position + 1)
    return False


def _in_parts(changes: Iterable[JournalChange]) -> Iterator[list[JournalChange]]:
    part: list[JournalChange] = []
    for change in changes:
        part.append(change)
        if len(part) == CHANGES_PER_ENTRY:
            yield part
            part = []
    if part:
        yield part
