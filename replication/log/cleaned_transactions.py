"""Transactions as compaction walks through a log: which records were aborted, and which markers still mean something.

The walk comes to the records of a transaction before it comes to its marker, so what was aborted is known from the
transaction indexes. `AbortedAhead` reads those, as far ahead of the walk as it has to.

    a batch of records       of an aborted transaction: its records go at once. Else its producer has records before the next
                             marker.
    an abort marker          stays as long as the walk met a batch of its transaction, and so does its entry in the index
    a commit marker          the same, but it has no entry
    a marker without records is obsolete. It goes when readers that met the records have had time to come to it (delete
                             horizon)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ottla.replication.log.aborted_transactions import AbortedTransaction, TransactionIndex
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.records import BatchHeader, Record


class IndexOfSegment(NamedTuple):
    """The aborted transactions whose markers lie in one segment, as they were when the pass began."""

    base_offset: int
    transactions: TransactionIndex


class AbortedAhead:
    """Reads the aborted transactions of a log in the order of their markers, each once."""

    def __init__(self, indexes: Sequence[IndexOfSegment]) -> None:
        self._entries = _entries(indexes)
        self._next: tuple[int, AbortedTransaction] | None = None
        self._has_begun = False
        self._seen_to = -1

    def up_to(self, end_offset: int) -> Iterator[AbortedTransaction]:
        """Those not given yet that may have records below `end_offset`; more of them may come with it."""
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
    """See the module's docstring. `reach` has to be called before the batches of a segment are shown."""

    def __init__(self, indexes: Sequence[IndexOfSegment]) -> None:
        self._ahead = AbortedAhead(indexes)
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborting: dict[int, AbortedTransaction] = {}
        self._has_records: set[int] = set()
        self._committing: set[int] = set()

    def reach(self, end_offset: int) -> None:
        """The walk goes on to `end_offset`. OSError, CorruptIndex: an index cannot be read."""
        for transaction in self._ahead.up_to(end_offset):
            heappush(self._coming, (transaction.first_offset, transaction))

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborting.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether a data batch belongs to a transaction that was aborted."""
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
        """For a control batch: whether it is obsolete, and the aborted transaction it ends if that is to be indexed."""
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
