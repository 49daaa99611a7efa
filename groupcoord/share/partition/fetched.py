"""What a read of the log found, batch by batch, and what of it belongs to aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple


class FetchedBatch(NamedTuple):
    """A record batch, as far as its header tells."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, with the offset of its first record."""

    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Records that a member holds from now on."""

    first_offset: int
    last_offset: int
    delivery_count: int


def aborted_batches(fetched: Iterable[FetchedBatch], transactions: Sequence[AbortedTransaction]) -> list[FetchedBatch]:
    """The batches that belong to aborted transactions. A transaction ends with its producer's abort marker."""
    waiting = sorted(transactions, key=itemgetter(1), reverse=True)
    aborting: set[int] = set()
    found = []
    for batch in fetched:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            aborting.add(waiting.pop().producer_id)
        if batch.is_abort_marker:
            aborting.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborting:
            found.append(batch)
    return found


def without(acquired: Iterable[AcquiredRecords], dropped: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """What is left of acquired records when batches are dropped. Both are in the order of their offsets."""
    left = []
    index = 0
    for first, last, delivery_count in acquired:
        while index < len(dropped) and dropped[index].last_offset < first:
            index += 1
        at = index  # the same batch may drop something of the next records as well
        while at < len(dropped) and dropped[at].base_offset <= last and first <= last:
            if first < dropped[at].base_offset:
                left.append(AcquiredRecords(first, dropped[at].base_offset - 1, delivery_count))
            first = dropped[at].last_offset + 1
            at += 1
        if first <= last:
            left.append(AcquiredRecords(first, last, delivery_count))
    return left
