"""The sparse indexes beside a segment: `.index` (offset -> file position) and `.timeindex` (timestamp -> offset).

An entry is written whenever more than `index.interval.bytes` have been appended since the last one, or `INDEX_INTERVAL_MAX`
if that is less, so a lookup gives a place to start reading headers from, not the answer. Offsets are stored relative to the
segment's base offset.

    .index       8 bytes   int32 last offset of a batch, int32 position of that batch
    .timeindex  12 bytes   int64 largest timestamp so far, int32 last offset of the batch that brought it

Both are append-only sorted arrays. The end of the array lives in memory and is written out every `SPILL_ENTRIES` entries,
on roll and on close; the rest is only in the file. That keeps an append at one system call and a busy partition at a few
kilobytes. It is safe because a segment that was open in a crash has its indexes rebuilt in any case. Lookups bisect the
part in memory first (where nearly all of them end), then the two pages of the file where the last one ended, because
readers read on, and else bisect the file by its pages: ten reads of the page cache for a gigabyte of small batches.

Unlike Kafka the file is not preallocated to its largest size and trimmed later; to every reader a file that was never
preallocated is a trimmed one.
"""

from __future__ import annotations

import contextlib
import errno
from abc import ABC, abstractmethod
from bisect import bisect_right
from copy import copy
from struct import Struct
from typing import ClassVar, NamedTuple, Self

from ottla.replication.log.storage import FileCache, LazyFile, Storage

SPILL_ENTRIES = 512
PAGE_ENTRIES = 512
INDEX_INTERVAL_MAX = 64 * 1024  # at most; a look-up reads so many bytes of batches on the event loop

RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndex(Exception):
    """Error raised if an index contradicts itself or its log; the index is rebuilt from the log."""


class IndexCut(NamedTuple):
    """Plan of an index's truncation: the number of retained entries, and the last retained entry."""

    entries: int
    last_entry: tuple[int, int] | None


class IndexFile:
    """An index with a file, which is opened on demand."""

    __slots__ = ("_file",)

    def __init__(self, files: FileCache, path: str) -> None:
        self._file = LazyFile(files, path)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def forget(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()


class SparseIndex(IndexFile, ABC):
    """Sorted array of fixed-size entries: the first `_saved` ones are in the file, the others in memory.

    While `_is_stale`, the file may differ from the first `_saved` entries; `save` corrects that.
    """

    ENTRY: ClassVar[Struct]
    __slots__ = ("_is_snapshot", "_is_stale", "_last_page", "_saved", "_tail", "base_offset", "entries")

    def __init__(
        self, files: FileCache, path: str, base_offset: int, *, size_bytes: int = 0, is_stale: bool = False
    ) -> None:
        super().__init__(files, path)
        self._is_snapshot = False
        self._saved, rest = divmod(size_bytes, self.ENTRY.size)
        self.entries = self._saved  # and those of the tail; counted, because each entry asks whether it was the last
        self._is_stale = is_stale
        self._tail = bytearray()
        self._last_page = 0  # of the entry that was looked up last
        self.base_offset = base_offset
        if rest:
            raise CorruptIndex(f"{path} has {size_bytes} bytes, which is no multiple of {self.ENTRY.size}")

    def copied(self, files: FileCache, *, is_snapshot: bool = False) -> Self:
        """Return a copy of this index that opens its own file; with `is_snapshot` the copy never writes to the file."""
        other = copy(self)
        other._file = LazyFile(files, self.path)
        # A copy, because a thread may read the snapshot while the event loop appends.
        other._tail = self._tail[:]
        other._is_snapshot = is_snapshot
        return other

    def _append(self, first: int, second: int) -> None:
        tail = self._tail
        tail += self.ENTRY.pack(first, second)
        self.entries += 1
        if len(tail) >= SPILL_ENTRIES * self.ENTRY.size:
            # The batch is in the log already; a full disk must not make its append fail now.
            with contextlib.suppress(OSError):
                self.save()

    def save(self) -> None:
        """Write unsaved entries to the file; after an OSError they remain in memory."""
        tail = self._tail
        if self._is_snapshot or (not tail and not self._is_stale):
            return
        file = self._file.open(create=True)
        saved_bytes = self._saved * self.ENTRY.size
        if file.size() != saved_bytes:  # what a torn save left, or what was cut off
            file.truncate(saved_bytes)
        # The file counts as stale until the write is whole. If the write breaks off, the next save cuts off its rest, also
        # when memory holds no entry by then.
        self._is_stale = True
        file.append(tail)
        self._is_stale = False
        self._saved += len(tail) // self.ENTRY.size
        self._tail = bytearray()

    def save_anew(self, storage: Storage) -> None:
        """Write all entries of a rebuilt index, unless the file has them already."""
        if self._is_snapshot:
            return
        # Often the file has the same entries already. Then nothing has to be written.
        if not self._saved and storage.exists(self.path) and storage.read(self.path) == self._tail:
            self._saved = len(self._tail) // self.ENTRY.size
            self._tail = bytearray()
            self._is_stale = False
        self.save()

    def file_to_sync(self) -> LazyFile:
        """Save all entries and return the file, which a flush has to sync."""
        self.save()
        return self._file

    def entry(self, slot: int) -> tuple[int, int]:
        """Return entry number `slot`, counted from 0, as it is stored."""
        size = self.ENTRY.size
        if slot >= self._saved:
            first, second = self.ENTRY.unpack_from(self._tail, (slot - self._saved) * size)
        else:
            first, second = self.ENTRY.unpack(self._read(slot, 1))
        return first, second

    def _last_saved(self) -> tuple[int, int] | None:
        try:
            return self.entry(self._saved - 1) if self._saved else None
        except BaseException:
            self.forget()  # the constructor fails, so no caller could close the file
            raise

    def _read(self, slot: int, count: int) -> bytes:
        size = self.ENTRY.size
        data = self._file.open().read_at(slot * size, count * size)
        if len(data) != count * size:
            # The file had these bytes when it was opened, so the disk is not what it was. EIO counts as a broken
            # disk.
            raise OSError(errno.EIO, "index file is shorter than it was", self._file.path)
        return data

    def _floor_entry(self, field: int, target: int) -> tuple[int, int, int]:
        """Return slot and contents of the last entry whose `field` is at most `target`; slot -1 if there is none."""
        unpack_from, size = self.ENTRY.unpack_from, self.ENTRY.size
        start = self._saved
        data: bytes | bytearray = self._tail
        # Most look-ups are about the end of the log, and that is in memory.
        if not data or unpack_from(data, 0)[field] > target:
            start, data = self._saved_entries_around(field, target)
            if not data:
                return -1, 0, 0
        # The first entry is known not to be beyond the target, so the search is among those after it.
        later = range(1, len(data) // size)
        slot = bisect_right(later, target, key=lambda slot: unpack_from(data, slot * size)[field])
        if start + slot < self._saved:
            self._last_page = (start + slot) // PAGE_ENTRIES
        return start + slot, *unpack_from(data, slot * size)

    def _saved_entries_around(self, field: int, target: int) -> tuple[int, bytes | bytearray]:
        """Read entries around the last one whose `field` is at most `target`; return their first slot and their bytes.

        Returns (0, empty bytes) if there is no such entry. Tries the last result's page first: readers continue there.
        """
        unpack_from, size, saved = self.ENTRY.unpack_from, self.ENTRY.size, self._saved
        start = self._last_page * PAGE_ENTRIES
        if start < saved:
            data = self._read(start, min(2 * PAGE_ENTRIES, saved - start))
            # Only an entry beyond the target, or the end of the file, proves that the wanted one is not further on.
            is_last = start + 2 * PAGE_ENTRIES >= saved
            if unpack_from(data, 0)[field] <= target and (
                is_last or unpack_from(data, len(data) - size)[field] > target
            ):
                return start, data
        pages = range((saved + PAGE_ENTRIES - 1) // PAGE_ENTRIES)
        page = bisect_right(pages, target, key=lambda page: self.entry(page * PAGE_ENTRIES)[field]) - 1
        if page < 0:
            return 0, b""
        start = page * PAGE_ENTRIES
        return start, self._read(start, min(PAGE_ENTRIES, saved - start))

    def _cut_at(self, field: int, offset: int) -> IndexCut:
        # Entries hold the last offset of a batch. A batch that ends at `offset` or above is cut away as a whole.
        count = self._floor_entry(field, offset - self.base_offset - 1)[0] + 1
        return IndexCut(count, self.entry(count - 1) if count else None)

    def cut(self, cut: IndexCut) -> None:
        """Truncate the index in memory, which cannot fail; the next `save` truncates the file."""
        if cut.entries < self._saved:
            # The file keeps the entries that went. It is stale, so no save passes it over.
            self._saved = cut.entries
            self._is_stale = True
        del self._tail[(cut.entries - self._saved) * self.ENTRY.size :]
        self.entries = cut.entries
        self._take_last(cut.last_entry)

    @abstractmethod
    def _take_last(self, entry: tuple[int, int] | None) -> None:
        """Cache the last entry's fields; `entry` is None if there are no entries."""


class OffsetIndex(SparseIndex):
    """Index file `.index`: from offsets to file positions at which to start reading.

    `saved_first` is the segment's time index. Its file is never behind this index's file: a search for a timestamp
    relies on the time index for all batches up to the last entry of this index.
    """

    ENTRY = Struct(">ii")
    __slots__ = ("last_offset", "last_position", "saved_first")

    def __init__(
        self, files: FileCache, path: str, base_offset: int, *, size_bytes: int = 0, is_stale: bool = False
    ) -> None:
        super().__init__(files, path, base_offset, size_bytes=size_bytes, is_stale=is_stale)
        self.last_offset, self.last_position = base_offset, 0
        self.saved_first: TimeIndex | None = None
        self._take_last(self._last_saved())

    def save(self) -> None:
        """Write unsaved entries to the file, the time index first; after an OSError they remain in memory."""
        if self.saved_first is not None and not self._is_snapshot:
            self.saved_first.save()
        super().save()

    def _take_last(self, entry: tuple[int, int] | None) -> None:
        relative_offset, self.last_position = (0, 0) if entry is None else entry
        self.last_offset = self.base_offset + relative_offset

    def last_entry(self) -> tuple[int, int]:
        """Return the last (offset, position); (base offset, 0) if there is no entry."""
        return self.last_offset, self.last_position

    def append(self, offset: int, position: int) -> None:
        """Add an entry in memory if `offset` exceeds the last entry's; every entry is optional."""
        if offset > self.last_offset or not self.entries:
            self._append(offset - self.base_offset, position)
            self.last_offset, self.last_position = offset, position

    def floor(self, offset: int) -> int:
        """Return the position of the last entry at or before `offset`; 0 if there is none."""
        return self._floor_entry(0, offset - self.base_offset)[2]

    def floor_position(self, position: int) -> int:
        """Return the last indexed batch position at or before `position`; 0 if there is none."""
        return self._floor_entry(1, position)[2]

    def cut_at(self, offset: int) -> IndexCut:
        """Plan the truncation that keeps entries below `offset`."""
        return self._cut_at(0, offset)


class TimeIndex(SparseIndex):
    """Index file `.timeindex`: from timestamps to offsets at which to start a search."""

    ENTRY = Struct(">qi")
    __slots__ = ("last_offset", "last_timestamp")

    def __init__(
        self, files: FileCache, path: str, base_offset: int, *, size_bytes: int = 0, is_stale: bool = False
    ) -> None:
        super().__init__(files, path, base_offset, size_bytes=size_bytes, is_stale=is_stale)
        self.last_timestamp, self.last_offset = -1, base_offset
        self._take_last(self._last_saved())

    def _take_last(self, entry: tuple[int, int] | None) -> None:
        timestamp, relative_offset = (-1, 0) if entry is None else entry
        self.last_timestamp, self.last_offset = timestamp, self.base_offset + relative_offset

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry in memory if `timestamp` is higher than the last entry's."""
        # An equal time adds nothing: a search for it wants the first record that has it.
        if timestamp > self.last_timestamp and (offset >= self.last_offset or not self.entries):
            self._append(timestamp, offset - self.base_offset)
            self.last_timestamp, self.last_offset = timestamp, offset

    def first_reaching(self, timestamp: int) -> int | None:
        """Return the offset of the first entry at or after `timestamp`; None if there is none."""
        slot = self._floor_entry(0, timestamp - 1)[0] + 1
        return self.base_offset + self.entry(slot)[1] if slot < self.entries else None

    def check(self) -> None:
        """Raise CorruptIndex if the last entry is older than the first: such a file has zeros at its end."""
        if self.entries > 1 and self.last_timestamp < self.entry(0)[0]:
            raise CorruptIndex(f"{self.path} ends with timestamp {self.last_timestamp}")

    def cut_at(self, offset: int) -> IndexCut:
        """Plan the truncation that keeps entries below `offset`."""
        return self._cut_at(1, offset)
