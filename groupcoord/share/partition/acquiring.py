"""Acquisition: the records of a share partition that a fetch gets.

How many
    A member sets the most records that it takes, and no more than max.record.locks may be in flight. The first is a soft
    limit in the mode *batch-optimized*: batches of the log are not torn, so that a member can acknowledge whole ones. In
    the mode *record-limit* (KIP-1206) it is kept to the record; the rest of a batch stays free.

Which
    Records that are in flight already and free again come first. They keep the batches in which they were acquired for
    the first time. Records that were never in flight become new batches of `batch_size` records, at boundaries of the
    log's own batches. Where the share partition was loaded with holes, a hole is new as well (the *gap window* in
    `share_partition.py`); later, a hole is one that compaction has left, and nothing is missing.

Poison
    A record that makes its consumers fail is to be found before the records around it have used up their deliveries. So
    once a batch has been delivered half as often as is allowed, it is delivered in parts: half of it, then a quarter. The
    last delivery that a record may have is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from ottla.groupcoord.share.partition.in_flight import InFlightBatch, Run
from ottla.groupcoord.share.partition.in_flight import RecordState as State
from ottla.groupcoord.share.partition.state import ShareState

THROTTLED_SINCE_MIN = 2


class FetchedBatch(NamedTuple):
    """Header fields of a record batch that are needed to acquire records."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedTransaction(NamedTuple):
    """Aborted transaction: its producer id and the offset of its first record."""

    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Range of records that a member has acquired, with their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


def aborted_batches(fetched: Iterable[FetchedBatch], transactions: Sequence[AbortedTransaction]) -> list[FetchedBatch]:
    """Return the fetched batches of aborted transactions. Such a transaction ends at its producer's abort marker."""
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
    """Return the acquired records that are not in `dropped` batches. Both arguments are in offset order."""
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


class AcquireRequest(NamedTuple):
    """Member id, and limits of this member's fetch."""

    member_id: str
    records_max: int
    batch_size: int
    is_record_limit: bool = False


class Acquisition:
    """Acquisition of a share partition's records by one member, from fetched batches. Use an object only once."""

    def __init__(
        self,
        partition: ShareState,
        request: AcquireRequest,
        fetched: Sequence[FetchedBatch],
        last: int,
        room: int,
        now_ms: int,
    ) -> None:
        settings = partition.settings
        self._partition = partition
        self._in_flight = partition.in_flight
        self._request = request
        self._fetched = fetched
        self._last = last  # no records behind this offset
        self._room = room  # records that may be acquired altogether
        self._locked_until_ms = now_ms + settings.record_lock_duration_ms
        self._limit = limit = settings.delivery_count_limit
        self._throttled_since = max(THROTTLED_SINCE_MIN, (limit + 1) // 2)
        self._count = 0
        self._acquired: list[AcquiredRecords] = []

    def acquire(self) -> list[AcquiredRecords]:
        """Acquire records and return them. The caller has checked that there are records and room for them."""
        base = self._fetched[0].base_offset
        first = self._first_offset(base)
        overlapping = self._in_flight.beginning_in(min(base, first), self._last)
        if not overlapping:
            self._acquire_new(first, self._last)
            return self._acquired
        for batch in overlapping:
            if self._count >= self._room:
                break
            if self._partition.has_gaps:
                if first < batch.first:
                    self._acquire_new(first, batch.first - 1)
                first = batch.last + 1
                if self._count >= self._room:
                    break
            if not self._acquire_again(batch, base):
                break
        if self._count < self._room and overlapping[-1].last < self._last:
            self._acquire_new(overlapping[-1].last + 1, self._last)
        return self._acquired

    def _first_offset(self, base: int) -> int:
        """Return the offset to begin at: the start of the batch in flight at `base` or, without one, about `base`."""
        floor = self._in_flight.floor(base)
        if floor is not None and floor.last >= base:
            return floor.first
        return max(base, self._partition.start_offset)

    # ------------------------------------------------------------------ records that were in flight before

    def _acquire_again(self, batch: InFlightBatch, base: int) -> bool:
        """Acquire the free records of a batch in flight. Return False if no further batch may be acquired."""
        free = [run for run in batch.touching(base, self._last) if run.is_free]
        if not free:
            return True
        is_throttled = max(run.delivery_count for run in free) >= self._throttled_since
        # A throttled batch comes alone, so that its records fail alone.
        if is_throttled and self._count:
            self._room = 0
            return False
        is_inside = batch.first >= base and batch.last <= self._last
        is_too_long = self._request.is_record_limit and len(batch) > self._room - self._count
        if is_inside and batch.is_whole and not is_too_long and not is_throttled:
            self._take(batch.runs[0])
            return True
        count = self._acquire_part(batch, base, is_throttled=is_throttled)
        batch.join()
        if is_throttled and count:
            self._room = 0
            return False
        return True

    def _acquire_part(self, batch: InFlightBatch, base: int, *, is_throttled: bool) -> int:
        """Acquire some of the free records of a batch in flight; return their number."""
        count = 0
        part_max = None if not is_throttled else 0  # 0: not known yet
        to = len(self._acquired)
        for run in batch.within(base, self._last):
            if not run.is_free:
                continue
            is_last_time = self._limit > THROTTLED_SINCE_MIN and run.delivery_count == self._limit - 1
            if is_last_time and count:
                break
            length = run.last - run.first + 1
            if is_last_time:
                length = 1
            if self._request.is_record_limit:
                length = min(length, self._room - self._count)
            # The first record that was delivered often decides the size of the part.
            if part_max == 0 and run.delivery_count >= self._throttled_since:
                halvings = run.delivery_count - self._throttled_since + 1
                part_max = max(1, len(batch) >> halvings)
            # The records before it may be more than that already; then there is no such limit, as in Kafka.
            is_limited = bool(part_max) and count < (part_max or 0)
            if is_limited:
                length = min(length, (part_max or 0) - count)
            is_part = length < run.last - run.first + 1
            self._take(batch.within(run.first, run.first + length - 1)[0] if is_part else run, to)
            count += length
            is_full = self._request.is_record_limit and self._count >= self._room
            if is_last_time or is_full or (is_limited and count == part_max):
                break
        return count

    def _take(self, run: Run, join_from: int | None = None) -> None:
        run.acquire(self._request.member_id, self._locked_until_ms)
        self._count += run.last - run.first + 1
        acquired = self._acquired
        found = AcquiredRecords(run.first, run.last, run.delivery_count)
        # Neighbours of one batch are one range if they were delivered equally often.
        if join_from is not None and len(acquired) > join_from:
            before = acquired[-1]
            if before.last_offset + 1 == run.first and before.delivery_count == run.delivery_count:
                acquired[-1] = before._replace(last_offset=run.last)
                return
        acquired.append(found)

    # ------------------------------------------------------------------ records that come for the first time

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records from a range that is not in flight yet, as many as there is room for."""
        partition = self._partition
        room = self._room - self._count
        # A batch of the log may begin with records that the group, or the log, has done with.
        first = max(first, partition.start_offset if self._in_flight else partition.end_offset)
        if first > last:
            return
        # A batch of the log is not torn, unless a part of it is in flight already: a share partition that was loaded has
        # batches of its own.
        if room < last - first + 1:
            last = self._end_of_batch_at(first + room - 1)
        last = min(last, self._in_flight.end_of_hole(first))
        if self._request.is_record_limit and last - first + 1 > room:
            self._add_part(first, last, room)
        else:
            self._add_batches(first, last)
        partition.on_acquired_new(first, last, self._acquired[-1].last_offset)

    def _end_of_batch_at(self, offset: int) -> int:
        """Return the last offset of the fetched batch that contains `offset`; `offset` if no batch does."""
        found = offset
        for batch in self._fetched:
            if batch.base_offset > offset:
                break
            found = batch.last_offset
        return max(found, offset)

    def _add_part(self, first: int, last: int, room: int) -> None:
        """Put a range in flight, and acquire its first `room` records. The others stay available."""
        batch = InFlightBatch(first, last, State.AVAILABLE, 0)
        self._in_flight.add(batch)
        self._take(batch.within(first, first + room - 1)[0])
        self._partition.has_free_records = True

    def _add_batches(self, first: int, last: int) -> None:
        size = self._request.batch_size
        if not self._request.is_record_limit and last - first + 1 > size:
            for batch in self._fetched:
                if batch.base_offset > last:
                    break
                if batch.base_offset - first >= size and batch.base_offset > first:
                    self._add_whole(first, batch.base_offset - 1)
                    first = batch.base_offset
        self._add_whole(first, last)

    def _add_whole(self, first: int, last: int) -> None:
        batch = InFlightBatch(first, last, State.AVAILABLE, 0)
        self._in_flight.add(batch)
        self._take(batch.runs[0])
