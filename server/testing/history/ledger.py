"""A partition as the history tells of it, kept in arrays by the number of the record, and settled at the end.

A record's number is its place among all that were sent to the partition. `stored` is the truth that everything else is
compared with: what final readers found, fresh ones that began after the faults were over, and the leader's log where the
checker was given it. Everything here takes time and memory linear in the records.
"""

import bisect
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.server.testing.history.history import UNKNOWN_OFFSET, told
from ottla.server.testing.history.rules import Report, Rule

NOT_ACKNOWLEDGED = -2
NOWHERE = -1
STRANGER = -1  # in the place of a record's number: a value that nobody sent


class ProducerKind(NamedTuple):
    name: str
    idempotent: bool
    acks_all: bool


class Gap(NamedTuple):
    """Offsets that a reader was led past: first <= offset < after."""

    reader: str
    committed_only: bool
    first: int
    after: int
    event: int
    at_end: bool


class Ledger:
    def __init__(
        self,
        where: tuple[str, int],
        report: Report,
        kinds: list[ProducerKind],
        visible: Callable[[int, int], bool],
        fenced: Mapping[int, int],
        gave_up: Mapping[int, Sequence[int]],
    ) -> None:
        """`kinds` of the producers, by their numbers. `visible(producer, transaction)`: whether the transaction is sure to have been committed.

        `fenced`: of producers, the event that says so. `gave_up`: of producers, the events of new epochs that they took because
        their own time for records in flight was over. What has no answer then they send again, and no broker can know it.
        """
        self.where = where
        self.compacted = self.transactional = False
        self._report = report
        self._kinds = kinds
        self._visible = visible
        self._fenced = fenced
        self._gave_up = gave_up
        self._numbers: dict[str, int] = {}
        self._sent = array("q")  # the event that says so
        self._producer = array("l")
        self._offset = array("q")  # as acknowledged
        self._acknowledged = array("q")  # the event that says so
        self._stored_at = array("q")  # the offset where final readers first found it
        self._keys: dict[int, str] = {}
        self._transactions: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self._shown: dict[int, tuple[int, int]] = {}  # offset: number, event
        self._shown_otherwise: list[tuple[int, int, int]] = []  # offset, number, event
        self._stored: dict[int, tuple[int, int]] = {}
        self._strangers: dict[int, tuple[str, int]] = {}  # offset: value, event
        self._gaps: list[Gap] = []
        self._ends: dict[str, tuple[int | None, bool, int, str]] = {}  # of final readers
        self._sees_all = False
        self.deleted_before = 0

    # --- what clients did ---------------------------------------------------------------------------------------------

    def sent(self, value: str, producer: int, key: str | None, transaction: int | None, event: int) -> None:
        number = len(self._sent)
        if self._numbers.setdefault(value, number) != number:
            raise ValueError(f"{value!r} was sent twice to {self.where}: the history can't be checked")
        self._sent.append(event)
        self._producer.append(producer)
        self._offset.append(NOT_ACKNOWLEDGED)
        self._acknowledged.append(-1)
        self._stored_at.append(NOWHERE)
        if key is not None:
            self._keys[number] = key
        if transaction is not None:
            self._transactions[number] = transaction

    def acknowledged(self, value: str, offset: int, event: int) -> None:
        number = self._numbers[value]
        self._offset[number], self._acknowledged[number] = offset, event

    def refused(self, value: str, event: int) -> None:
        self._refused[self._numbers[value]] = event

    def transaction_of(self, value: str) -> tuple[int, int] | None:
        """The producer and its transaction, if the record was sent in one."""
        number = self._numbers.get(value)
        transaction = self._transactions.get(number) if number is not None else None
        return None if number is None or transaction is None else (self._producer[number], transaction)

    def is_settled(self, value: str) -> bool:
        """Return True if the record is in the log, and a final read_committed reader got past its offset."""
        offset = self._stored_at[self._numbers[value]]
        ends = [end for end, committed_only, *_ in self._ends.values() if committed_only and end is not None]
        return offset != NOWHERE and not self.compacted and self.deleted_before <= offset < max(ends, default=0)

    # --- what readers saw ---------------------------------------------------------------------------------------------

    def shown(self, offset: int, value: str, event: int, final: bool) -> bool:
        """Return True if this record is the first that any reader was shown at this offset."""
        number = self._numbers.get(value, STRANGER)
        if number == STRANGER:
            self._strangers.setdefault(offset, (value, event))
        before = self._shown.setdefault(offset, (number, event))
        if before[0] != number:
            self._shown_otherwise.append((offset, number, event))
        if final:
            self._store(offset, number, event)
        return before[0] == number

    def _store(self, offset: int, number: int, event: int) -> None:
        other, seen = self._stored.setdefault(offset, (number, event))
        if other != number:
            self._report.add(Rule.TWO_VALUES, self.where, f"offset {offset}", seen, event)
        if number == STRANGER:
            return
        first = self._stored_at[number]
        if first == NOWHERE:
            self._stored_at[number] = offset
        elif (
            first != offset
            and self._stored[offset][1] == event
            and self._kind(number).idempotent
            and not self._was_given_up(number)
        ):
            words = f"at {first} and {offset}"
            self._report.add(Rule.DUPLICATE, self.where, words, self._sent[number], self._stored[first][1], event)

    def _was_given_up(self, number: int) -> bool:
        """Return True if the producer raised its own epoch while the record was in flight."""
        events = self._gave_up.get(self._producer[number], ())
        after = bisect.bisect_right(events, self._sent[number])
        answered = self._acknowledged[number]
        return after < len(events) and not 0 <= answered < events[after]

    def stored(self) -> Iterator[tuple[int, int]]:
        """Return the offset of each record in the log, with the event that proves it."""
        return ((offset, event) for offset, (_, event) in self._stored.items() if offset >= self.deleted_before)

    def led_past(self, gap: Gap) -> None:
        self._gaps.append(gap)

    def final_reader_began(self, reader: str, committed_only: bool, event: int) -> None:
        self._ends[reader] = (None, committed_only, event, "it never came to an end")
        self._sees_all |= not committed_only

    def final_reader_ended(self, reader: str, offset: int | None, event: int, words: str) -> None:
        self._ends[reader] = (offset, self._ends[reader][1], event, words)

    # --- settling -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        ends = [end for end, *_ in self._ends.values() if end is not None]
        self._end = max(max(ends, default=0), max(self._stored, default=-1) + 1)
        self._is_whole = bool(ends)
        self._offsets = sorted(self._stored)
        self._last_of_key = self._last_offsets_of_keys() if self.compacted else {}
        self._settle_ends()
        missing = set(self._settle_acknowledgements())
        self._settle_strangers(missing)
        self._settle_refusals()
        self._settle_fenced()
        self._settle_shown(missing)
        self._settle_gaps()
        self._settle_order()
        if not self.compacted and not self.transactional:
            self._settle_holes(missing)

    def _settle_ends(self) -> None:
        if self._sent and not self._ends:
            self._report.add(Rule.UNREAD, self.where, "nobody looked")
        for reader, (end, committed_only, event, words) in self._ends.items():
            if end is None:
                self._report.add(Rule.UNREAD, self.where, f"{reader}: {words}", event)
            else:
                self._gaps.append(Gap(reader, committed_only, end, self._end, event, at_end=True))

    def _settle_acknowledgements(self) -> Iterator[int]:
        """Report acknowledged records that are lost, moved or changed, and yield their offsets."""
        for number, offset in enumerate(self._offset):
            if offset == NOT_ACKNOWLEDGED or self._is_stored(number, offset):
                continue
            is_changed = self._stored.get(offset, (0,))[0] == STRANGER
            if not is_changed and self._may_be_gone(number, offset):
                continue
            proof = (self._sent[number], self._acknowledged[number], *self._stored.get(offset, (0,))[1:])
            yield offset
            if self._stored_at[number] != NOWHERE:
                words = f"acknowledged at {offset}, found at {self._stored_at[number]}"
                self._report.add(Rule.MOVED, self.where, words, *proof, self._stored[self._stored_at[number]][1])
            elif is_changed:
                self._report.add(Rule.CHANGED, self.where, f"offset {offset}", *proof)
            elif self._kind(number).acks_all and (self._is_whole or offset < self._end):
                self._report.add(Rule.LOST, self.where, f"offset {offset}; the log ends at {self._end}", *proof)

    def _is_stored(self, number: int, offset: int) -> bool:
        found = self._stored_at[number]
        at_offset = self._stored.get(offset, (STRANGER,))[0]
        return found != NOWHERE and (at_offset == number or found == offset or offset == UNKNOWN_OFFSET)

    def _may_be_gone(self, number: int, offset: int) -> bool:
        """Return True if the record was deleted, a later one of its key is there, or final readers do not see its transaction."""
        if UNKNOWN_OFFSET < offset < self.deleted_before:
            return True
        if self._last_of_key.get(self._keys.get(number, ""), -1) > offset:
            return True
        return not self._sees_all and not self._is_visible(number)

    def _is_visible(self, number: int) -> bool:
        """Return True if a read_committed reader has to see the record."""
        transaction = self._transactions.get(number)
        return transaction is None or self._visible(self._producer[number], transaction)

    def _settle_strangers(self, missing: set[int]) -> None:
        for offset, (value, event) in self._strangers.items():
            if offset not in missing:
                number = self._numbers.get(value)
                sent = () if number is None else (self._sent[number],)
                self._report.add(Rule.INVENTED, self.where, f"{value!r} at {offset}", event, *sent)

    def _settle_refusals(self) -> None:
        for number, event in self._refused.items():
            if (offset := self._stored_at[number]) != NOWHERE:
                proof = (self._sent[number], event, self._stored[offset][1])
                self._report.add(Rule.REFUSED, self.where, f"at {offset}", *proof)

    def _settle_fenced(self) -> None:
        if not self._fenced:
            return
        for number, (producer, sent) in enumerate(zip(self._producer, self._sent, strict=True)):
            since, offset = self._fenced.get(producer, sent), self._stored_at[number]
            if since < sent and offset != NOWHERE:
                self._report.add(Rule.FENCED_WROTE, self.where, f"at {offset}", since, sent, self._stored[offset][1])

    def _settle_shown(self, missing: set[int]) -> None:
        once = ((offset, *known) for offset, known in self._shown.items())
        for offset, number, event in (*self._shown_otherwise, *once):
            if number == STRANGER or self._is_stored(number, offset) or offset in missing:
                continue
            if self._is_whole and not self._may_be_gone(number, offset):
                proof = (self._sent[number], event, *self._stored.get(offset, (0,))[1:])
                self._report.add(Rule.SHOWN_THEN_GONE, self.where, f"shown at {offset}", *proof)

    def _settle_gaps(self) -> None:
        for gap in self._gaps:
            first = bisect.bisect_left(self._offsets, gap.first)
            after = bisect.bisect_left(self._offsets, gap.after)
            behind = [offset for offset in self._offsets[first:after] if self._stored[offset][0] != STRANGER]
            rule = Rule.UNREAD if gap.at_end else Rule.SKIPPED
            unseen = next((each for each in behind if self._is_seen_by(gap, self._stored[each][0])), None)
            if unseen is None and gap.at_end and behind:
                rule, unseen = Rule.HANGING, behind[0]
            if unseen is not None:
                words = f"{gap.reader}: from {gap.first} to {gap.after}, and {unseen} is there"
                self._report.add(rule, self.where, words, gap.event, self._stored[unseen][1])

    def _is_seen_by(self, gap: Gap, number: int) -> bool:
        return not gap.committed_only or self._is_visible(number)

    def _settle_order(self) -> None:
        latest: dict[int, int] = {}
        for offset in self._offsets:
            number = self._stored[offset][0]
            if number == STRANGER or self._stored_at[number] != offset or not self._kind(number).idempotent:
                continue
            before = latest.setdefault(self._producer[number], number)
            if number >= before:
                latest[self._producer[number]] = number
                continue
            earlier = self._stored_at[before]
            proof = (self._sent[number], self._sent[before], self._stored[earlier][1], self._stored[offset][1])
            self._report.add(Rule.REORDERED, self.where, f"{earlier} was sent after {offset}", *proof)

    def _settle_holes(self, missing: set[int]) -> None:
        expected: int | None = None
        for offset in self._offsets:
            if expected is not None and offset > max(expected, self.deleted_before):
                self._settle_hole(expected, offset, missing)
            expected = offset + 1
        if expected is not None and self._is_whole and self._end > expected:
            self._settle_hole(expected, self._end, missing)

    def _settle_hole(self, first: int, after: int, missing: set[int]) -> None:
        if not any(first <= offset < after for offset in missing):
            beside = self._stored[first - 1][1]
            self._report.add(Rule.HOLE, self.where, f"from {first} to {after}", beside)

    def _kind(self, number: int) -> ProducerKind:
        return self._kinds[self._producer[number]]

    def _last_offsets_of_keys(self) -> dict[str, float]:
        """Return by keys the offsets before which records may be gone: of the last record, or behind a tombstone, which goes, too."""
        last: dict[str, float] = {}
        for offset in self._offsets:
            number = self._stored[offset][0]
            if (key := self._keys.get(number)) is not None:
                last[key] = offset
        for value, number in self._numbers.items():
            if value.startswith(told(None)) and (key := self._keys.get(number)) is not None:
                behind = self._offset[number] + 1 if self._offset[number] > UNKNOWN_OFFSET else math.inf
                last[key] = max(last.get(key, -1), behind)
        return last
