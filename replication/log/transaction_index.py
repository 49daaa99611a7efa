"""The `.txnindex` of a segment: transactions that were aborted by a marker in that segment.

A consumer that reads committed data gets this list with each fetch and skips the records of those producers until their
abort marker. Entries are 34 bytes, in the order of their markers. The marker is in the log before its entry is made, so an
entry that cannot be written now stays in memory, where lookups find it too, and is written later. No entry is lost by that:
no flush passes a segment whose entries are not in the file, and above the recovery point the index is rebuilt from the
markers. The file exists only if it has an entry.

A fetch needs the transactions that touch its range. Those whose marker lies before it are found by bisection, and none is
left when one has a last stable offset behind the range. In between may lie all that were aborted while one was open, a
million perhaps. So the least first offset of each block of entries is kept in memory, and blocks that begin behind the range
are passed over.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from struct import Struct
from typing import NamedTuple

from ottla.replication.log.index import CorruptIndex, IndexFile
from ottla.replication.log.storage import FileCache, LazyFile
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.records import BatchHeader, Record

_ENTRY = Struct(">hqqqq")
_ROW = Struct(">2xqqqq")  # without the version
_VERSION = 0
_BLOCK = 64

new_tuple = tuple.__new__  # past NamedTuple's keyword handling


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is the offset of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_Row = tuple[int, int, int, int]


class AbortedInRange:
    """Aborted transactions that overlap [start_offset, end_offset).

    If there are more than `at_most`, `end_offset` is lowered to omit the ones that begin last. Transactions that begin
    at or before `start_offset` are always kept, so there may still be more.
    """

    __slots__ = ("_at_most", "_heap", "end_offset", "start_offset")

    def __init__(self, start_offset: int, end_offset: int, at_most: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self._at_most = at_most
        self._heap: list[tuple[int, int, AbortedTransaction]] = []  # the one that begins last is on top

    def add(self, row: _Row) -> None:
        """Add an aborted transaction; if there are too many, drop the one that begins last and end the range there."""
        transaction: AbortedTransaction = new_tuple(AbortedTransaction, row)
        heappush(self._heap, (-transaction.first_offset, transaction.last_offset, transaction))
        if len(self._heap) > self._at_most and -self._heap[0][0] > self.start_offset:
            self.end_offset = heappop(self._heap)[2].first_offset

    @property
    def transactions(self) -> list[AbortedTransaction]:
        """Aborted transactions, ordered by their markers."""
        return [transaction for _, _, transaction in sorted(self._heap, key=lambda each: each[1])]


class TransactionIndex(IndexFile):
    """Index of the aborted transactions in a segment; its file is created with the first entry."""

    __slots__ = ("_is_stale", "_least", "_saved", "_surveyed", "_tail")

    def __init__(self, files: FileCache, path: str, *, size_bytes: int = 0, is_stale: bool = False) -> None:
        super().__init__(files, path)
        # A rest is what a torn write left. It has to be cut off before the next entry, or all later ones would be
        # shifted.
        self._saved, rest = divmod(size_bytes, _ENTRY.size)
        self._is_stale = is_stale or rest > 0
        self._tail: list[AbortedTransaction] = []
        # By block: no transaction in it begins below this offset. And how many entries that was made of.
        self._least = array("q")
        self._surveyed = 0

    @property
    def entries(self) -> int:
        """Number of aborted transactions."""
        return self._saved + len(self._tail)

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose abort marker was just appended."""
        # In memory first: readers must see the abort although the file cannot be written.
        self._tail.append(transaction)
        if self._surveyed == self.entries - 1:
            self._note_first(transaction.first_offset)
        with contextlib.suppress(OSError):  # the next flush saves again
            self.save()

    def save(self) -> None:
        """Write unsaved entries to the file; after an OSError they remain in memory."""
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

    def collect(self, found: AbortedInRange) -> bool:
        """Add the transactions that overlap the range to `found`; return True if no later segment can have any."""
        self._survey()
        # Entries are in the order of their markers. A transaction whose marker is below the start has no records there.
        slots = range(self.entries)
        slot = bisect_left(slots, found.start_offset, key=lambda slot: self._rows(slot, 1)[0][2])
        while slot < self.entries:
            block = slot // _BLOCK
            if self._least[block] >= found.end_offset:
                slot = self._behind_later_ones(block, found.end_offset)
                if self._rows(slot - 1, 1)[0][3] >= found.end_offset:
                    return True
                continue
            end = min((block + 1) * _BLOCK, self.entries)
            for row in self._rows(slot, end - slot):
                if row[1] < found.end_offset:
                    found.add(row)
                # Every later entry is of a transaction that begins at that offset or behind it. So the search can end,
                # also in later segments.
                if row[3] >= found.end_offset:
                    return True
            slot = end
        return False

    def _behind_later_ones(self, block: int, end_offset: int) -> int:
        """Return the first slot of the next block that has a transaction which begins below `end_offset`.

        Searches from `block` on; returns the number of entries if there is none.
        """
        for number in range(block, len(self._least)):
            if self._least[number] < end_offset:
                return number * _BLOCK
        return self.entries

    def _survey(self) -> None:
        """Load entries that were not read yet; a thread does that when a log is loaded."""
        while self._surveyed < self.entries:
            for row in self._rows(self._surveyed, min(_BLOCK, self.entries - self._surveyed)):
                self._note_first(row[1])

    def _note_first(self, first_offset: int) -> None:
        if self._surveyed % _BLOCK:
            self._least[-1] = min(self._least[-1], first_offset)
        else:
            self._least.append(first_offset)
        self._surveyed += 1

    def _rows(self, slot: int, count: int) -> Sequence[_Row]:
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
        return [*_ROW.iter_unpack(data), *rest]

    def _read(self, slot: int, count: int) -> list[AbortedTransaction]:
        return [new_tuple(AbortedTransaction, row) for row in self._rows(slot, count)]

    def all(self) -> list[AbortedTransaction]:
        """Return all entries."""
        return self._read(0, self.entries) if self.entries else []

    def read_all(self) -> Iterator[AbortedTransaction]:
        """Yield all entries, with only a few in memory at a time."""
        for slot in range(0, self.entries, _BLOCK):
            yield from self._read(slot, min(_BLOCK, self.entries - slot))

    def snapshot(self, files: FileCache) -> TransactionIndex:
        """Return a read-only copy of the index for a thread."""
        snapshot = TransactionIndex(files, self.path, size_bytes=self._saved * _ENTRY.size)
        snapshot._tail = self._tail[:]
        return snapshot

    def sanity_check(self, base_offset: int) -> None:
        """Raise CorruptIndex if an entry cannot belong to a segment that begins at `base_offset`."""
        for entry in self.read_all():
            if entry.last_offset < base_offset:
                raise CorruptIndex(f"{entry} in {self.path}")
        self._survey()

    def cut_at(self, offset: int) -> int:
        """Return the number of transactions whose marker is below `offset`."""
        slots = range(self.entries)
        return bisect_left(slots, offset, key=lambda slot: self._read(slot, 1)[0].last_offset)

    def cut(self, count: int) -> None:
        """Keep only the first `count` transactions, in memory; the next `save` truncates the file."""
        # The file is only marked: a cut in memory cannot fail, and the log is cut already.
        if count < self._saved:
            self._saved = count
            self._is_stale = True
        del self._tail[count - self._saved :]
        # The last block may keep an offset of one that is gone. It is looked at once too often then.
        self._surveyed = min(self._surveyed, count)
        del self._least[-(-self._surveyed // _BLOCK) :]

    def use_files(self, files: FileCache) -> None:
        """Open the file through another cache from now on."""
        self._file = LazyFile(files, self.path)

    def file_to_sync(self) -> LazyFile | None:
        """Save all entries and return the file, which a flush has to sync; None if there are no entries."""
        self.save()
        return self._file if self.entries else None


class IndexOfSegment(NamedTuple):
    """A segment's index of aborted transactions, as it was at the beginning of the compaction pass."""

    base_offset: int
    transactions: TransactionIndex


class AbortedAhead:
    """Reader of a log's aborted transactions, ordered by their markers."""

    def __init__(self, indexes: Sequence[IndexOfSegment]) -> None:
        self._entries = _entries(indexes)
        self._next: tuple[int, AbortedTransaction] | None = None
        self._has_begun = False
        self._seen_to = -1

    def up_to(self, end_offset: int) -> Iterator[AbortedTransaction]:
        """Yield the next transactions, at least all with records below `end_offset`; a later call continues there."""
        if not self._has_begun:
            self._has_begun, self._next = True, next(self._entries, None)
        # What completed after a transaction began at its last stable offset or behind it. The entries of a segment are read
        # to their end in any case, because the file is another one when the segment has been replaced.
        while self._next is not None and (self._next[0] < end_offset or self._seen_to < end_offset):
            transaction = self._next[1]
            self._next = next(self._entries, None)
            self._seen_to = max(self._seen_to, transaction.last_stable_offset)
            yield transaction


def _entries(indexes: Sequence[IndexOfSegment]) -> Iterator[tuple[int, AbortedTransaction]]:
    for index in indexes:
        for transaction in index.transactions.read_all():
            yield index.base_offset, transaction
        # No file stays open while the walk goes on elsewhere.
        index.transactions.forget()


class TransactionFilter:
    """Filter that separates aborted from committed batches during compaction.

    Call `reach` before the batches of each segment. The transaction indexes tell which transactions were aborted,
    because compaction reads a transaction's records before its marker:

        a data batch             of an aborted transaction: its records are dropped immediately; otherwise the producer
                                 counts as having records before its next marker
        an abort marker          is retained, with its index entry, as long as a pass finds a batch of its transaction
        a commit marker          likewise, but it has no index entry
        a marker without records is obsolete; it is dropped after readers of the records had time to reach it (delete
                                 horizon)
    """

    def __init__(self, indexes: Sequence[IndexOfSegment]) -> None:
        self._ahead = AbortedAhead(indexes)
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborting: dict[int, AbortedTransaction] = {}
        self._has_records: set[int] = set()
        self._committing: set[int] = set()

    def reach(self, end_offset: int) -> None:
        """Read the transaction indexes up to `end_offset`. Raises OSError or CorruptIndex if that fails."""
        for transaction in self._ahead.up_to(end_offset):
            heappush(self._coming, (transaction.first_offset, transaction))

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborting.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Tell whether a data batch belongs to an aborted transaction."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            # Its records go now. The marker goes only when a later pass finds none of them.
            self._has_records.add(batch.producer_id)
            return True
        self._committing.add(batch.producer_id)
        return False

    def end(self, batch: BatchHeader, records: Sequence[Record]) -> tuple[bool, AbortedTransaction | None]:
        """Process a control batch; return (whether it is obsolete, the aborted transaction to index or None)."""
        self._advance(batch.last_offset)
        # An earlier pass has emptied the batch, so what it said is not there any more.
        if not records:
            return True, None
        kind = control_type_id(records[0].key)
        if kind == ControlType.ABORT:
            transaction = self._aborting.pop(batch.producer_id, None)
            if transaction is not None and batch.producer_id in self._has_records:
                self._has_records.discard(batch.producer_id)
                return False, transaction
            return True, None
        if kind == ControlType.COMMIT:
            # Without records before it the marker ends nothing that a consumer can see.
            is_known = batch.producer_id in self._committing
            self._committing.discard(batch.producer_id)
            return not is_known, None
        return False, None
