"""One share partition: a partition as the members of one share group consume it together (KIP-932). Sans-IO.

Theory
    The leader of a partition keeps this for each share group that fetches from it. `start_offset` is where the group
    begins: everything before it is done. `end_offset` is the last record that was ever acquired, or the next one to
    acquire while nothing is in flight. In between lie the records in flight (`in_flight.py`): free, held by a member,
    or done while others before them are not. A member acquires records (`acquiring.py`), which locks them for a time, and
    acknowledges them (`acknowledging.py`). When the lock expires the records are free again.

    Acknowledgements are stored at the share coordinator before they are answered and before the start moves. Locks are
    not stored, so a new leader begins without any: it knows which records are done, and delivers the rest once more.
    One write is on its way at a time; later changes go with the next.

| state        | a fetch gets        | an acknowledgement gets      | left by                                       |
|--------------|---------------------|------------------------------|-----------------------------------------------|
| INITIALIZING | nothing yet         | its holder is not known here | `load`, `fail`                                |
| ACTIVE       | records             | a change                     | `fence`                                       |
| FAILED       | an error            | -                            | never; the next fetch makes another           |
| FENCED       | nothing             | -                            | never; the changes on their way are answered  |

    A share partition may be loaded with holes: records that the leader before had delivered, and that
    were not acknowledged. They have to be fetched again, unlike the holes that compaction leaves. `gap_start` moves
    through them; behind the end of the loaded state there are no such holes.

Invariants
    start_offset <= end_offset + 1. Nothing before the start offset is acquired. No record has two holders. A record that
    is done is never acquired again. The start passes nothing that is not done, unless the log has dropped it. The
    delivery count goes up by one with each acquisition and never down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.acknowledging import AcknowledgementBatch, begin
from ottla.groupcoord.share.partition.acquiring import (
    AbortedTransaction,
    AcquiredRecords,
    AcquireRequest,
    Acquisition,
    FetchedBatch,
    aborted_batches,
    without,
)
from ottla.groupcoord.share.partition.in_flight import Change, DeadLetter, InFlightBatch, Run, StateBatch
from ottla.groupcoord.share.partition.in_flight import RecordState as State
from ottla.groupcoord.share.partition.state import ShareGroupSettingsProvider, ShareState
from ottla.wire.errors import ErrorCode, KafkaError

BATCHES_MAX = 10_000
"""Batches in one write."""


class Phase(Enum):
    """Phase of a share partition, from reading the stored state to serving, failing or being fenced."""

    INITIALIZING = auto()
    ACTIVE = auto()
    FAILED = auto()
    FENCED = auto()


class StateWrite(NamedTuple):
    """Write of changed states to the share coordinator."""

    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]
    changes: list[Change]


class SharePartition(ShareState):
    """Share partition at its leader. The caller must check `take_write` and `next_deadline_ms` after each call."""

    def __init__(self, key: SharePartitionKey, leader_epoch: int, settings_of: ShareGroupSettingsProvider) -> None:
        super().__init__(key, settings_of)
        self.leader_epoch = leader_epoch
        self.phase = Phase.INITIALIZING
        self.state_epoch = 0
        self.dead_letters: list[DeadLetter] = []  # for the caller to take
        self._waiting: list[Change] = []
        self._is_writing = False

    def __repr__(self) -> str:
        return f"SharePartition({self.key}, {self.phase.name}, {self.start_offset}-{self.end_offset})"

    @property
    def is_active(self) -> bool:
        return self.phase is Phase.ACTIVE

    # ------------------------------------------------------------------ loading, and the end

    def load(self, state_epoch: int, start_offset: int, batches: Iterable[StateBatch]) -> None:
        """Begin to serve with the state that the share coordinator has stored.

        If that is invalid, the phase becomes FAILED and KafkaError is raised.
        """
        assert self.phase is Phase.INITIALIZING, self
        self.state_epoch, self.start_offset = state_epoch, start_offset
        gap_start, before = -1, start_offset - 1
        for first, last, state, delivery_count in batches:
            if not before < first <= last:
                self.phase = Phase.FAILED
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to initialize the share partition {self.key}")
            if gap_start < 0 and first > before + 1:
                gap_start = before + 1
            before = last
            batch = InFlightBatch(first, last, state, delivery_count)
            # No member holds records yet. Only a broker that stores locks could have stored this state.
            if state is State.ACQUIRED:
                batch.runs[0].revoke(State.AVAILABLE)
            self.in_flight.add(batch)
            if state is State.ARCHIVING:
                is_rejected = delivery_count < self.settings.delivery_count_limit
                self.dead_letters.append(DeadLetter(first, last, delivery_count, is_rejected))
        self.phase = Phase.ACTIVE
        self.end_offset = start_offset
        if self.in_flight:
            self.has_free_records = True
            self.end_offset = self.in_flight.last_offset
            if gap_start >= 0:
                self.gap_start, self.gaps_end = gap_start, self.end_offset
            self._move_start()

    def fail(self) -> None:
        """Mark the share partition as failed, because the stored state could not be read."""
        assert self.phase is Phase.INITIALIZING, self
        self.phase = Phase.FAILED

    def fence(self) -> None:
        """Stop serving, because another leader or another share coordinator has taken over."""
        self.phase = Phase.FENCED

    # ------------------------------------------------------------------ before a fetch

    def next_fetch_offset(self) -> int:
        """Return the offset of the next fetch: the first free record or hole, else the end of the records in flight."""
        in_flight = self.in_flight
        if not in_flight or self.start_offset > in_flight.last_offset:
            self.has_free_records = False
            return self.end_offset
        if not self.has_free_records:
            return self.end_offset + 1
        gap = self.gap_start if self.has_gaps else None
        for batch in in_flight.batches:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for run in batch.runs:
                if run.is_free:
                    return run.first
        self.has_free_records = False
        return self.end_offset + 1

    def can_acquire(self) -> bool:
        """Return True if a fetch may acquire records: records in flight are free, or there is room for more."""
        if not self.is_active:
            return False
        return self.next_fetch_offset() != self.end_offset + 1 or self._room() > 0

    def _room(self) -> int:
        return self.settings.partition_max_record_locks - self._count()

    def _count(self) -> int:
        return self.end_offset - self.start_offset + 1 if self.in_flight else 0

    def reads_until(self) -> int:
        """Return the last offset that a fetch may use now, because there is no room for later records."""
        return max(self.end_offset, self.next_fetch_offset() + self.settings.partition_max_record_locks)

    # ------------------------------------------------------------------ acquiring

    def acquire(
        self,
        request: AcquireRequest,
        fetch_offset: int,
        fetched: Sequence[FetchedBatch],
        now_ms: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> list[AcquiredRecords]:
        """Acquire records for a member from the batches that were read at `fetch_offset`."""
        if not self.is_active or request.records_max <= 0 or not fetched:
            return []
        last = fetched[-1].last_offset
        if last < self.start_offset:
            return []
        # Before all else: archiving here makes room, and nothing else would ever make it.
        self._archive_compacted(fetch_offset, fetched[0].base_offset)
        room = min(request.records_max, self._room())
        if room <= 0:
            # There is no room for more, but records in flight may be free again.
            last = min(last, self.end_offset)
            room = min(request.records_max, self.end_offset - fetch_offset + 1)
        if room <= 0 or last < fetched[0].base_offset:
            return []
        acquired = Acquisition(self, request, fetched, last, room, now_ms).acquire()
        if not acquired:
            return []
        self.move_gap(acquired[-1].last_offset + 1)
        self.expect_deadline(now_ms + self.settings.record_lock_duration_ms)
        return self._without_aborted(acquired, fetched, aborted) if aborted else acquired

    def _archive_compacted(self, fetch_offset: int, base_offset: int) -> None:
        """Archive free records before `base_offset`: compaction has removed them from the log."""
        if fetch_offset < base_offset:
            self._archive_free(fetch_offset, base_offset - 1)
            self._move_start()

    def _archive_free(self, first: int, last: int) -> None:
        is_any = False
        for batch in self.in_flight.touching(first, last):
            if any(run.state is State.AVAILABLE for run in batch.touching(first, last)):
                for run in batch.within(first, last):
                    if run.state is State.AVAILABLE:
                        run.archive()
                        is_any = True
                batch.join()
        # The next fetch may have to begin elsewhere.
        self.has_free_records = self.has_free_records or is_any

    def _without_aborted(
        self, acquired: list[AcquiredRecords], fetched: Sequence[FetchedBatch], aborted: Sequence[AbortedTransaction]
    ) -> list[AcquiredRecords]:
        """Archive those acquired records that belong to aborted transactions; return the others."""
        dropped = aborted_batches(fetched, aborted)
        for batch in dropped:
            for in_flight in self.in_flight.touching(batch.base_offset, batch.last_offset):
                for run in in_flight.within(batch.base_offset, batch.last_offset):
                    if run.state is State.ACQUIRED:
                        run.archive()
                in_flight.join()
        # No member will acknowledge them, so nothing else moves the start and makes room for more.
        self._move_start()
        return without(acquired, dropped)

    # ------------------------------------------------------------------ acknowledge, release, expire

    def acknowledge(self, member_id: str, acknowledgements: Sequence[AcknowledgementBatch], now_ms: int) -> Change:
        """Acknowledge records for a member. Raises KafkaError if any acknowledgement is invalid."""
        change = Change()
        try:
            begin(self, change, member_id, acknowledgements, now_ms)
        except KafkaError:
            self._take_back(change, now_ms)
            raise
        return self._store(change)

    def release(self, member_id: str) -> Change:
        """Release the records of a member that has left the group or closed its session."""
        change = Change()
        settings = self.settings
        for batch in self.in_flight.batches:
            self._cut_at_start(batch)
            for run in batch.runs:
                if run.state is State.ACQUIRED and run.member_id == member_id:
                    run.begin(change, self.state_after(run, State.AVAILABLE), settings.delivery_count_limit)
                    change.note(run)
        return self._store(change)

    def expire(self, now_ms: int) -> None:
        """Release records whose locks have expired. Members may acquire them before the change is stored."""
        change = Change()
        self.deadline_ms = None
        for batch in self.in_flight.batches:
            is_any = False
            for run in batch.runs:
                until_ms = run.locked_until_ms
                if run.state is State.ACQUIRED and until_ms is not None:
                    if until_ms <= now_ms:
                        is_any = True
                    else:
                        self.expect_deadline(until_ms)
            if is_any:
                self._free_expired(batch, change, now_ms)
        if change.states:
            self._store(change)

    def _free_expired(self, batch: InFlightBatch, change: Change, now_ms: int) -> None:
        self._cut_at_start(batch)
        for run in batch.runs:
            if run.state is State.ACQUIRED and run.locked_until_ms is not None and run.locked_until_ms <= now_ms:
                state = self.state_after(run, State.AVAILABLE)
                run.revoke(state)
                self.has_free_records = self.has_free_records or state is State.AVAILABLE
                change.note(run)
        batch.join()

    def next_deadline_ms(self) -> int | None:
        """Return the time in ms at which to call `expire` at the latest; None if no member holds records."""
        return self.deadline_ms

    def _cut_at_start(self, batch: InFlightBatch) -> None:
        if batch.first < self.start_offset <= batch.last:
            batch.cut([self.start_offset])

    # ------------------------------------------------------------------ the dead-letter queue

    def on_dead_letter(self, letter: DeadLetter) -> None:
        """Archive records after the dead-letter queue has accepted or refused them."""
        change = Change()
        for batch in self.in_flight.touching(letter.first_offset, letter.last_offset):
            for run in batch.within(letter.first_offset, letter.last_offset):
                if run.state is State.ARCHIVING:
                    run.archive()
                    change.note(run)
            batch.join()
        if change.states:
            self._store(change)

    # ------------------------------------------------------------------ storing

    def _store(self, change: Change) -> Change:
        if change.states:
            self._waiting.append(change)
        else:
            change.settle(ErrorCode.NONE)  # renewals are not stored
        return change

    def take_write(self) -> StateWrite | None:
        """Return the next write to make, or None. The caller must call `settle` with its result."""
        if self._is_writing or not self._waiting:
            return None
        self._is_writing = True
        # As many as the share coordinator takes at once; a single change has no more.
        count, index = 0, 0
        while index < len(self._waiting) and (not count or count + len(self._waiting[index].states) <= BATCHES_MAX):
            count += len(self._waiting[index].states)
            index += 1
        changes, self._waiting = self._waiting[:index], self._waiting[index:]
        batches = [state for change in changes for state in change.states]
        return StateWrite(self.start_offset, self._done_count(), batches, changes)

    @property
    def is_storing(self) -> bool:
        """True while there are changes that are not stored yet."""
        return self._is_writing or bool(self._waiting)

    def _done_count(self) -> int:
        """Return the number of records in a final state, at or after the start offset (KIP-1226)."""
        start = self.start_offset
        count = 0
        for batch in self.in_flight.batches:
            if batch.last >= start:
                for run in batch.runs:
                    if run.state.is_final and run.last >= start:
                        count += run.last - max(run.first, start) + 1
        return count

    def settle(self, write: StateWrite, error: ErrorCode, now_ms: int) -> None:
        """Finish a write: commit its changes, or revert them if the write failed with `error`."""
        assert self._is_writing
        self._is_writing = False
        for change in write.changes:
            if error is ErrorCode.NONE:
                self._commit(change)
            else:
                self._take_back(change, now_ms)
        self._move_start()
        for change in write.changes:
            change.settle(error)

    def _commit(self, change: Change) -> None:
        for run in self._leave(change):
            run.commit()
            self.has_free_records = self.has_free_records or run.is_free
        self.dead_letters += change.dead_letters
        self._join(change)

    def _take_back(self, change: Change, now_ms: int) -> None:
        for run in self._leave(change):
            run.take_back(now_ms)
            # The log has dropped it meanwhile, and it would be looked for in vain.
            if run.is_free and run.last < self.start_offset:
                run.archive()
            self.has_free_records = self.has_free_records or run.is_free
            if run.locked_until_ms is not None:
                self.expect_deadline(run.locked_until_ms)
        # A lock that has ended is not taken back, and so its records go on.
        self.dead_letters += [letter for letter in change.dead_letters if self._is_archiving(letter)]
        self._join(change)

    def _is_archiving(self, letter: DeadLetter) -> bool:
        batches = self.in_flight.touching(letter.first_offset, letter.last_offset)
        return any(
            run.state is State.ARCHIVING
            for batch in batches
            for run in batch.touching(letter.first_offset, letter.last_offset)
        )

    def _leave(self, change: Change) -> Iterable[Run]:
        for first, last, _, _ in change.states:
            for batch in self.in_flight.touching(first, last):
                self._cut_at_start(batch)
                for run in batch.touching(first, last):
                    if run.change is change:
                        yield run

    def _join(self, change: Change) -> None:
        joined = None
        for first, last, _, _ in change.states:
            for batch in self.in_flight.touching(first, last):
                if batch is not joined:
                    batch.join()
                    joined = batch

    # ------------------------------------------------------------------ the start offset

    def on_log_start(self, log_start_offset: int) -> None:
        """Follow the log's start offset. Earlier records stay with their members until acknowledged or released."""
        if log_start_offset <= self.start_offset:
            return
        if self.in_flight:
            self._archive_free(self.start_offset, log_start_offset - 1)
            # Holes that the log has dropped cannot be fetched. In Kafka a fetch would ask for them for ever.
            if self.gap_start < log_start_offset:
                self.move_gap(log_start_offset)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset) if self.in_flight else log_start_offset
        self._move_start()

    def _move_start(self) -> None:
        """Move the start offset behind the records at the front whose state is final and stored."""
        batches = self.in_flight.batches
        if not self._may_move_start():
            return
        last_done = self._last_done()
        if last_done < 0:
            return
        if last_done == batches[-1].last:
            # The log's start may be behind all records in flight.
            self.start_offset = self.end_offset = max(self.start_offset, last_done + 1)
            batches.clear()
            return
        index = self.in_flight.floor_index(last_done)
        if last_done == batches[index].last:
            self.start_offset = max(self.start_offset, batches[index + 1].first)
            if self.has_gaps:
                self.start_offset = min(self.start_offset, self.gap_start)
            index += 1
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
        # A batch stays until all of it is done.
        del batches[:index]

    def _may_move_start(self) -> bool:
        batch = self.in_flight.floor(self.start_offset)
        if batch is None:
            return False  # nothing is in flight, or there is a hole to be fetched at the start
        run = next(batch.touching(self.start_offset, batch.last), batch.runs[-1])
        return run.is_done

    def _last_done(self) -> int:
        """Return the last offset of the records at the front whose state is final and stored; -1 if there are none."""
        last_done = -1
        for batch in self.in_flight.batches:
            if self.has_gaps and batch.last >= self.gap_start:
                return last_done
            for run in batch.runs:
                if not run.is_done:
                    return last_done
                last_done = run.last
        return last_done
