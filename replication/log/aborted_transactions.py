"""The `.txnindex` of a segment: transactions that were aborted by a marker in that segment.

A consumer that reads committed data gets this list with each fetch and skips the records of those producers until their
abort marker. Entries are 34 bytes, in the order of their markers, and are written straight to the file: aborts are rare
and a lost entry would show aborted data. The file exists only if it has an entry.
"""

from __future__ import annotations

from bisect import bisect_left
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

    __slots__ = ("_file", "_files", "entries")

    def __init__(self, files: FileCache, path: str, *, size_bytes: int = 0) -> None:
        self._files = files
        self._file = LazyFile(files, path)
        # A torn entry at the end is overlooked: recovery writes the index anew.
        self.entries = size_bytes // _ENTRY.size

    @property
    def path(self) -> str:
        """Where the entries are."""
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def append(self, transaction: AbortedTransaction) -> None:
        """Add the transaction whose abort marker was appended last."""
        if not self.entries:
            self._files.storage.write(self.path, b"")
            self._file.close()
        file = self._file.open()
        size_bytes = self.entries * _ENTRY.size
        if file.size() != size_bytes:
            file.truncate(size_bytes)
        file.append(_ENTRY.pack(_VERSION, *transaction))
        self.entries += 1

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Transactions that touch [fetch_offset, upper_bound), and whether later segments can have no more of them."""
        found = []
        slots = range(self.entries)
        slot = bisect_left(slots, fetch_offset, key=lambda slot: self._read(slot, 1)[0].last_offset)
        while slot < self.entries:
            for transaction in self._read(slot, min(_READ_ENTRIES, self.entries - slot)):
                if transaction.first_offset < upper_bound:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_bound:
                    return found, True
            slot += _READ_ENTRIES
        return found, False

    def _read(self, slot: int, count: int) -> list[AbortedTransaction]:
        data = self._file.open().read_at(slot * _ENTRY.size, count * _ENTRY.size)
        if len(data) != count * _ENTRY.size:
            raise CorruptIndex(f"{self.path} is shorter than it was")
        return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(data)]

    def all(self) -> list[AbortedTransaction]:
        """Every entry."""
        return self._read(0, self.entries) if self.entries else []

    def sanity_check(self, base_offset: int) -> None:
        """Raise CorruptIndex if an entry cannot belong to a segment that begins at `base_offset`."""
        for entry in self.all():
            if entry.last_offset < base_offset:
                raise CorruptIndex(f"{entry} in {self.path}")

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        slots = range(self.entries)
        self._keep(bisect_left(slots, offset, key=lambda slot: self._read(slot, 1)[0].last_offset))

    def clear(self) -> None:
        """Drop all entries."""
        self._keep(0)

    def _keep(self, count: int) -> None:
        if count < self.entries:
            self._file.open().truncate(count * _ENTRY.size)
            self.entries = count

    def file_to_sync(self) -> LazyFile | None:
        """The file, if there is one."""
        return self._file if self.entries else None

    def forget(self) -> None:
        """Let go of the file."""
        self._file.close()
