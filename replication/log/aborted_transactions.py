"""The `.txnindex` of a segment: transactions that were aborted by a marker in that segment.

A consumer that reads committed data gets this list with each fetch and skips the records of those producers until their
abort marker. Entries are 34 bytes, in the order of their markers. The marker is in the log before its entry is made, so an
entry that cannot be written now stays in memory, where lookups find it too, and is written later. Nothing is lost by that:
no flush goes past a segment whose entries are not in the file, and above the recovery point the index is made from the
markers. The file exists only if it has an entry.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.storage import FileCache, LazyFile

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_READ_ENTRIES = 128


class AbortedTransaction(NamedTuple):
    """One aborted transaction. `last_offset` is that of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Aborted transactions in one segment, in a file made when the first one comes."""

    __slots__ = ("_file", "_is_stale", "_saved", "_tail")

    def __init__(self, files: FileCache, path: str, *, size_bytes: int = 0, is_stale: bool = False) -> None:
        self._file = LazyFile(files, path)
        # A rest is what a torn write left. It has to be cut off before the next entry, or all later ones would be
        # shifted.
        self._saved, rest = divmod(size_bytes, _ENTRY.size)
        self._is_stale = is_stale or rest > 0
        self._tail: list[AbortedTransaction] = []

    @property
    def entries(self) -> int:
        """How many transactions there are."""
        return self._saved + len(self._tail)

    @property
    def path(self) -> str:
        """Where the entries are."""
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def append(self, transaction: AbortedTransaction) -> None:
        """Add the transaction whose abort marker was appended last."""
        # In memory first: readers must see the abort although the file cannot be written.
        self._tail.append(transaction)
        with contextlib.suppress(OSError):  # the next flush saves again
            self.save()

    def save(self) -> None:
        """Let the file hold all entries and nothing else. OSError: the rest stays in memory."""
        if not self._tail and not self._is_stale:
            return
        file = self._file.open(create=True)
        # Everything up to here is known to be good; what is behind it is not.
        saved_bytes = self._saved * _ENTRY.size
        if file.size() != saved_bytes:  # a save was torn, or the log was truncated
            file.truncate(saved_bytes)
        # Until the write has come back, nobody knows how much of it is in the file.
        self._is_stale = True
        file.append(b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in self._tail))
        self._is_stale = False
        self._saved += len(self._tail)
        self._tail.clear()

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Transactions that touch [fetch_offset, upper_bound), and whether later segments can have no more of them."""
        found = []
        slots = range(self.entries)
        # Entries are in the order of their markers. A transaction whose marker is below the fetch offset has no records
        # there.
        slot = bisect_left(slots, fetch_offset, key=lambda slot: self._read(slot, 1)[0].last_offset)
        while slot < self.entries:
            for transaction in self._read(slot, min(_READ_ENTRIES, self.entries - slot)):
                if transaction.first_offset < upper_bound:
                    found.append(transaction)
                # Every later entry is of a transaction that begins at that offset or behind it. So the search can end,
                # also in later segments.
                if transaction.last_stable_offset >= upper_bound:
                    return found, True
            slot += _READ_ENTRIES
        return found, False

    def _read(self, slot: int, count: int) -> list[AbortedTransaction]:
        # A range may begin in the file and end in memory.
        in_file = max(0, min(count, self._saved - slot))
        first = slot + in_file - self._saved
        rest = self._tail[first : first + count - in_file] if count > in_file else []
        if not in_file:
            return rest
        data = self._file.open().read_at(slot * _ENTRY.size, in_file * _ENTRY.size)
        # Somebody else has cut the file. A missing abort would show its records as committed ones.
        if len(data) != in_file * _ENTRY.size:
            raise CorruptIndex(f"{self.path} is shorter than it was")
        return [*(AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(data)), *rest]

    def all(self) -> list[AbortedTransaction]:
        """Every entry."""
        return self._read(0, self.entries) if self.entries else []

    def read_all(self) -> Iterator[AbortedTransaction]:
        """Every entry, with no more than a few of them in memory."""
        for slot in range(0, self.entries, _READ_ENTRIES):
            yield from self._read(slot, min(_READ_ENTRIES, self.entries - slot))

    def picture(self, files: FileCache) -> TransactionIndex:
        """The entries as they are now, for a thread to read. Nothing may be added to it."""
        picture = TransactionIndex(files, self.path, size_bytes=self._saved * _ENTRY.size)
        picture._tail = self._tail[:]
        return picture

    def sanity_check(self, base_offset: int) -> None:
        """Raise CorruptIndex if an entry cannot belong to a segment that begins at `base_offset`."""
        for entry in self.all():
            if entry.last_offset < base_offset:
                raise CorruptIndex(f"{entry} in {self.path}")

    def cut_at(self, offset: int) -> int:
        """How many transactions have their marker below `offset`."""
        slots = range(self.entries)
        return bisect_left(slots, offset, key=lambda slot: self._read(slot, 1)[0].last_offset)

    def cut(self, count: int) -> None:
        """Drop all transactions but the first `count`. In memory; the file follows with the next `save`."""
        # The file is only marked: a cut in memory cannot fail, and the log is cut already.
        if count < self._saved:
            self._saved = count
            self._is_stale = True
        del self._tail[count - self._saved :]

    def use_files(self, files: FileCache) -> None:
        """Open the file through another cache from now on."""
        self._file = LazyFile(files, self.path)

    def file_to_sync(self) -> LazyFile | None:
        """The file, everything saved; None if there is none."""
        self.save()
        return self._file if self.entries else None

    def forget(self) -> None:
        """Let go of the file."""
        self._file.close()
