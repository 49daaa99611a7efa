"""The records in flight of one share partition: their states, holders and delivery counts.

Records are kept in *batches*, as they were acquired together for the first time. A batch is acquired and acknowledged as
a whole most of the time, so it holds *runs*: neighbours that are equal in everything. Usually there is one run. A run is
split where a request touches a part of it, and grows together again when its neighbours have become equal. So memory and
work depend on the number of requests, and not of records.

| state        | meaning                                  | next                                                     |
|--------------|------------------------------------------|----------------------------------------------------------|
| AVAILABLE    | no member holds it                       | ACQUIRED by a fetch; ARCHIVED if the log has dropped it  |
| ACQUIRED     | a member holds it until a time           | AVAILABLE, ACKNOWLEDGED, ARCHIVED, ARCHIVING             |
| ACKNOWLEDGED | a member has accepted it                 | final                                                    |
| ARCHIVING    | on its way to the dead-letter queue      | ARCHIVED                                                 |
| ARCHIVED     | no member gets it any more               | final                                                    |

A run may be in the middle of a *change*: its new state is there, but is not stored yet. It cannot be acquired or changed
again until the change is stored or taken back. The log's start does not wait for that: records that the log has dropped
stay ARCHIVED whatever becomes of the change.

Invariants: the runs of a batch follow each other without a hole and cover it; batches do not overlap; a run is ACQUIRED
if and only if it has a holder; it has a lock exactly then, or while a change from ACQUIRED may be taken back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from ottla.wire.errors import ErrorCode

FEW = 8
NO_MEMBER = ""
LONG_MAX = (1 << 63) - 1
_first = attrgetter("first")


class RecordState(IntEnum):
    """Delivery state of a record; the numbers are Kafka's, which the share coordinator stores."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class StateBatch(NamedTuple):
    """Neighbouring records with the same state, as the share coordinator stores them."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class DeadLetter(NamedTuple):
    """Range of records for the dead-letter queue, because a member rejected them or they were delivered too often."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool


class Change:
    """New states of records, to be stored by the share coordinator.

    A change names records by offsets, because their runs may be split or joined before it is stored or reverted.
    """

    __slots__ = ("dead_letters", "error", "is_settled", "on_settled", "states")

    def __init__(self) -> None:
        self.states: list[StateBatch] = []
        self.dead_letters: list[DeadLetter] = []
        self.is_settled = False
        self.error = ErrorCode.NONE
        self.on_settled: Callable[[], None] | None = None

    def note(self, run: Run, *, is_rejected: bool = False) -> None:
        """Add a run to the change. The run has its new state already."""
        first, state, delivery_count = run.first, run.state, run.delivery_count
        if state is RecordState.ARCHIVING:
            self.dead_letters.append(DeadLetter(first, run.last, delivery_count, is_rejected))
        if self.states:
            before = self.states[-1]
            if before[1] + 1 == first and before[2] is state and before[3] == delivery_count:
                first = before[0]
                self.states.pop()
        self.states.append(StateBatch(first, run.last, state, delivery_count))

    def settle(self, error: ErrorCode) -> None:
        """Finish the change: it is stored if `error` is NONE, else it has failed."""
        assert not self.is_settled
        self.is_settled, self.error = True, error
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled()


class Before(NamedTuple):
    """Former fields of a run that has a pending change, to be restored if the change is reverted."""

    member_id: str
    delivery_count_limit: int
    """The limit when the change began, as in Kafka."""


class Run:
    """Neighbouring records with equal state, delivery count, member, lock and change."""

    __slots__ = ("before", "change", "delivery_count", "first", "last", "locked_until_ms", "member_id", "state")

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = NO_MEMBER
        self.locked_until_ms: int | None = None
        self.change: Change | None = None
        self.before: Before | None = None

    def __repr__(self) -> str:
        changing = ", changing" if self.change is not None else ""
        return f"Run({self.first}-{self.last}, {self.state.name}, {self.delivery_count}, {self.member_id!r}{changing})"

    @property
    def is_free(self) -> bool:
        """True if a member may acquire the run's records."""
        return self.state is RecordState.AVAILABLE and self.change is None

    @property
    def is_done(self) -> bool:
        """True if the run's state is final and stored."""
        return self.state.is_final and self.change is None

    def acquire(self, member_id: str, locked_until_ms: int) -> None:
        """Assign the run to a member until `locked_until_ms`, and increase the delivery count."""
        assert self.is_free, self
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms

    def revoke(self, state: RecordState) -> None:
        """Set the state of an acquired run, and clear the run's member and lock."""
        assert self.state is RecordState.ACQUIRED, self
        self.state = state
        self.member_id = NO_MEMBER
        self.locked_until_ms = None

    def begin(self, change: Change, state: RecordState, delivery_count_limit: int) -> None:
        """Begin a state change of an acquired run. The lock stays, because the change may be reverted."""
        assert self.state is RecordState.ACQUIRED and self.change is None, self
        self.change = change
        self.before = Before(self.member_id, delivery_count_limit)
        self.state = state
        self.member_id = NO_MEMBER

    def commit(self) -> None:
        """Finish the run's change after the share coordinator has stored it."""
        self.change = self.before = self.locked_until_ms = None

    def take_back(self, now_ms: int) -> None:
        """Revert a change that could not be stored. The member holds the records again, unless its lock has expired."""
        before, locked_until_ms = self.before, self.locked_until_ms
        self.commit()
        # None: the log has dropped the record while the change was on its way.
        if before is None:
            return
        assert locked_until_ms is not None, self
        if locked_until_ms > now_ms:
            self.state, self.member_id = RecordState.ACQUIRED, before.member_id
            self.locked_until_ms = locked_until_ms
        else:
            is_worn = self.delivery_count >= before.delivery_count_limit
            self.state = RecordState.ARCHIVED if is_worn else RecordState.AVAILABLE

    def archive(self) -> None:
        """Archive the run's records permanently; a later revert of a pending change does not alter that."""
        self.state = RecordState.ARCHIVED
        self.member_id = NO_MEMBER
        self.locked_until_ms = self.before = None

    def is_like(self, other: Run) -> bool:
        """Return True if the two runs can be joined into one."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.locked_until_ms == other.locked_until_ms
            and self.change is other.change
            and self.before == other.before
        )

    def cut_off(self, first: int) -> Run:
        """Split the run before offset `first`; return the second part."""
        assert self.first < first <= self.last, (self, first)
        rest = Run(first, self.last, self.state, self.delivery_count)
        rest.member_id, rest.locked_until_ms = self.member_id, self.locked_until_ms
        rest.change, rest.before = self.change, self.before
        self.last = first - 1
        return rest


class InFlightBatch:
    """Batch of records that were first acquired together, divided into runs."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        assert first <= last, (first, last)
        self.first = first
        self.last = last
        self.runs = [Run(first, last, state, delivery_count)]

    def __repr__(self) -> str:
        return f"InFlightBatch({self.first}-{self.last}, {self.runs})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_whole(self) -> bool:
        """True if the batch is a single run."""
        return len(self.runs) == 1

    def within(self, first: int, last: int) -> list[Run]:
        """Return the runs between two offsets (both included); runs are split at both ends if needed."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return []
        start = self._begin_run(first)
        end = len(self.runs) if last == self.last else self._begin_run(last + 1)
        return self.runs[start:end]

    def touching(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs that overlap a range of offsets, without splitting them."""
        start = max(bisect_right(self.runs, first, key=_first) - 1, 0)
        for index in range(start, len(self.runs)):
            run = self.runs[index]
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def _begin_run(self, offset: int) -> int:
        """Return the index of the run that begins at `offset`, after splitting a run there if needed."""
        index = bisect_right(self.runs, offset, key=_first) - 1
        run = self.runs[index]
        if run.first < offset:
            index += 1
            self.runs.insert(index, run.cut_off(offset))
        return index

    def cut(self, offsets: Sequence[int]) -> None:
        """Split runs before each of these offsets, which are in order, in one pass: there may be very many."""
        if len(offsets) <= FEW:
            for offset in offsets:
                if self.first < offset <= self.last:
                    self._begin_run(offset)
            return
        runs: list[Run] = []
        index = bisect_right(offsets, self.first)
        for each in self.runs:
            run = each
            while index < len(offsets) and offsets[index] <= run.last:
                if offsets[index] > run.first:
                    runs.append(run)
                    run = run.cut_off(offsets[index])
                index += 1
            runs.append(run)
        self.runs = runs

    def join(self) -> None:
        """Join neighbouring runs that have become equal."""
        if len(self.runs) == 1:
            return
        joined = [self.runs[0]]
        for run in self.runs[1:]:
            if run.is_like(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined


class InFlight:
    """Batches of one share partition that are in flight, in offset order."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[InFlightBatch] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    @property
    def last_offset(self) -> int:
        """Last offset of all batches in flight. Raises IndexError if there are none."""
        return self.batches[-1].last

    def add(self, batch: InFlightBatch) -> None:
        index = bisect_right(self.batches, batch.first, key=_first)
        assert not index or self.batches[index - 1].last < batch.first, (self.batches[index - 1], batch)
        assert index == len(self.batches) or batch.last < self.batches[index].first, (batch, self.batches[index])
        self.batches.insert(index, batch)

    def floor_index(self, offset: int) -> int:
        """Return the index of the last batch that begins at or before `offset`; -1 if there is none."""
        return bisect_right(self.batches, offset, key=_first) - 1

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before `offset`; None if there is none."""
        index = self.floor_index(offset)
        return self.batches[index] if index >= 0 else None

    def end_of_hole(self, offset: int) -> int:
        """Return the last offset of the hole (offsets in no batch) that contains `offset`."""
        index = self.floor_index(offset)
        assert index < 0 or self.batches[index].last < offset, (self.batches[index], offset)
        return self.batches[index + 1].first - 1 if index + 1 < len(self.batches) else LONG_MAX

    def beginning_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that begin between two offsets (both included)."""
        start = self.floor_index(first - 1) + 1
        return self.batches[start : self.floor_index(last) + 1]

    def touching(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that overlap a range of offsets."""
        start = self.floor_index(first)
        if start < 0 or self.batches[start].last < first:
            start += 1
        return self.batches[start : self.floor_index(last) + 1]

    def run_count(self) -> int:
        return sum([len(batch.runs) for batch in self.batches])

    def runs(self) -> Iterator[Run]:
        for batch in self.batches:
            yield from batch.runs
