"""Holds a history against the rules of `compat_tests.history.rules` and names every violation with the events that prove it.

    for proof in check(history, logs):
        print(proof)

The history is read as a stream, once, in time linear in its events; and once more if something was found, to fetch the
events that prove it. What can be judged at once (a reader going backwards, an end going back, an open transaction shown, a
committed offset lost) is judged while it streams; what needs the whole (lost, twice, reordered, skipped) is kept in a
`Ledger` for each partition and settled at the end against what final readers found.

A history that is to be judged ends with final readers of every partition, at least one of them not read_committed if there
are transactions, and better two, of both kinds: a record that only one of them misses was SKIPPED, one that both miss is LOST.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from compat_tests.history.availability import Availability
from compat_tests.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EndAsked,
    Ended,
    EndSeen,
    Event,
    Failed,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
    ProbeBegan,
    ProducerBegan,
    ReachedEnd,
    Read,
    ReadBegan,
    ReadFailed,
    RecordsDeleted,
    Sent,
    Served,
    TopicBegan,
    TroubleBegan,
    TroubleEnded,
)
from compat_tests.history.ledger import Gap, Ledger, ProducerKind
from compat_tests.history.replica_logs import Replicas, compare, events_of
from compat_tests.history.rules import Proof, Report, Rule, Violation

OPEN, TO_COMMIT, TO_ABORT, COMMITTED, ABORTED = "open", "to be committed", "to be aborted", "committed", "aborted"


def check(history: Iterable[Event], logs: Sequence[Replicas] = ()) -> list[Proof]:
    """All violations, with their events. The history must allow to be read twice: a list, or a HistoryFile."""
    report = Report()
    checker = Checker(report)
    for replicas in logs:
        compare(replicas, report)
    for event in chain(history, *map(events_of, logs)):
        checker.feed(event)
    checker.finish()
    return list(explain(report.violations, chain(history, *map(events_of, logs)))) if report.violations else []


def explain(violations: Sequence[Violation], history: Iterable[Event]) -> Iterator[Proof]:
    wanted = {number for violation in violations for number in violation.events}
    found = {number: event for number, event in enumerate(history) if number in wanted}
    for violation in violations:
        yield Proof(violation, [found[number] for number in sorted(set(violation.events))])


class _Reader:
    """Where a reader stands in a partition: it is to be given `position` or, if that is missing, a later offset."""

    __slots__ = ("committed_only", "final", "position")

    def __init__(self, began: ReadBegan) -> None:
        self.position, self.committed_only, self.final = began.offset, began.committed_only, began.final


class _Committed:
    """Of a group and partition: what was acknowledged last, and what may have been written as well, before or after."""

    def __init__(self) -> None:
        self.offset, self.event = UNKNOWN_OFFSET, -1
        self.possible: dict[int, int] = {}


class Checker:
    """`feed` it every event in order, then `finish` it; the report then has all violations."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._availability = Availability(report)
        self._count = 0
        self._ledgers: dict[tuple[str, int], Ledger] = {}
        self._producers: dict[str, int] = {}
        self._kinds: list[ProducerKind] = []
        self._transactions: dict[tuple[int, int], tuple[str, int]] = {}  # state, event
        self._readers: dict[tuple[str, str, int], _Reader] = {}
        self._ends: dict[tuple[str, str, int], tuple[int, int | None, int]] = {}
        self._offsets: dict[tuple[str, str, int], _Committed] = {}
        self._handlers: dict[type[Event], Callable[..., None]] = {
            TopicBegan: self._topic,
            ProducerBegan: self._producer,
            Sent: self._sent,
            Acknowledged: self._acknowledged,
            Failed: self._failed,
            EndAsked: self._end_asked,
            Ended: self._ended,
            ReadBegan: self._read_began,
            Read: self._read,
            ReachedEnd: self._reached_end,
            ReadFailed: self._read_failed,
            EndSeen: self._end_seen,
            ProbeBegan: self._availability.began,
            Served: self._availability.served,
            TroubleBegan: self._availability.trouble_began,
            TroubleEnded: self._availability.trouble_ended,
            OffsetSent: self._offset_sent,
            OffsetCommitted: self._offset_committed,
            OffsetFailed: self._offset_failed,
            OffsetFetched: self._offset_fetched,
            RecordsDeleted: self._deleted,
        }

    def feed(self, event: Event) -> None:
        if handler := self._handlers.get(type(event)):
            handler(event, self._count)
        self._count += 1

    def finish(self) -> None:
        for ledger in self._ledgers.values():
            ledger.settle()
        self._availability.finish()

    # --- what is there and who takes part -----------------------------------------------------------------------------

    def _topic(self, event: TopicBegan, number: int) -> None:
        for partition in range(event.partitions):
            ledger = Ledger((event.topic, partition), self._report, self._kinds, self._is_committed)
            ledger.compacted, ledger.transactional = event.compacted, event.transactional
            self._ledgers[event.topic, partition] = ledger

    def _producer(self, event: ProducerBegan, number: int) -> None:
        self._producers[event.producer] = len(self._kinds)
        self._kinds.append(ProducerKind(event.producer, event.idempotent, event.acks == -1))

    def _deleted(self, event: RecordsDeleted, number: int) -> None:
        ledger = self._ledgers[event.topic, event.partition]
        ledger.deleted_before = max(ledger.deleted_before, event.before)

    # --- producing ----------------------------------------------------------------------------------------------------

    def _sent(self, event: Sent, number: int) -> None:
        producer = self._producers[event.producer]
        if event.transaction is not None:
            self._transactions.setdefault((producer, event.transaction), (OPEN, number))
        self._ledgers[event.topic, event.partition].sent(event.value, producer, event.key, event.transaction, number)

    def _acknowledged(self, event: Acknowledged, number: int) -> None:
        self._ledgers[event.topic, event.partition].acknowledged(event.value, event.offset, number)

    def _failed(self, event: Failed, number: int) -> None:
        if not event.may_be_written:
            self._ledgers[event.topic, event.partition].refused(event.value, number)

    def _end_asked(self, event: EndAsked, number: int) -> None:
        key = (self._producers[event.producer], event.transaction)
        self._transactions[key] = (TO_COMMIT if event.commit else TO_ABORT, number)

    def _ended(self, event: Ended, number: int) -> None:
        key = (self._producers[event.producer], event.transaction)
        self._transactions[key] = (COMMITTED if event.committed else ABORTED, number)

    def _is_committed(self, producer: int, transaction: int) -> bool:
        return self._transactions[producer, transaction][0] == COMMITTED

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_began(self, event: ReadBegan, number: int) -> None:
        self._readers[event.reader, event.topic, event.partition] = _Reader(event)
        if event.final:
            ledger = self._ledgers[event.topic, event.partition]
            ledger.final_reader_began(event.reader, event.committed_only, number)

    def _read(self, event: Read, number: int) -> None:
        reader = self._readers[event.reader, event.topic, event.partition]
        ledger = self._ledgers[event.topic, event.partition]
        for offset, value in event.records:
            is_first_there = ledger.shown(offset, value, number, reader.final)
            if reader.committed_only:
                self._look_at_transaction(ledger, value, offset, number)
            if offset < reader.position:
                if is_first_there:  # else the two records of this offset are what is wrong
                    words = f"{event.reader}: {offset} when it stood at {reader.position}"
                    self._report.add(Rule.BACKWARDS, ledger.where, words, number)
            else:
                self._go_on(ledger, event.reader, reader, offset, number)
                reader.position = offset + 1

    def _go_on(self, ledger: Ledger, name: str, reader: _Reader, offset: int, number: int) -> None:
        if offset > reader.position:
            ledger.led_past(Gap(name, reader.committed_only, reader.position, offset, number, at_end=False))

    def _look_at_transaction(self, ledger: Ledger, value: str, offset: int, number: int) -> None:
        found = ledger.transaction_of(value)
        if found is None:
            return
        state, because = self._transactions[found]
        if state == OPEN:
            self._report.add(Rule.OPEN_SHOWN, ledger.where, f"{value!r} at {offset}", because, number)
        elif state in (TO_ABORT, ABORTED):
            self._report.add(Rule.ABORTED_SHOWN, ledger.where, f"{value!r} at {offset}", because, number)

    def _reached_end(self, event: ReachedEnd, number: int) -> None:
        reader = self._readers[event.reader, event.topic, event.partition]
        ledger = self._ledgers[event.topic, event.partition]
        self._go_on(ledger, event.reader, reader, event.offset, number)
        reader.position = max(reader.position, event.offset)
        if reader.final:
            ledger.final_reader_ended(event.reader, event.offset, number, "")

    def _read_failed(self, event: ReadFailed, number: int) -> None:
        reader = self._readers[event.reader, event.topic, event.partition]
        ledger = self._ledgers[event.topic, event.partition]
        if reader.final:
            ledger.final_reader_ended(event.reader, None, number, event.error)
        else:
            self._report.add(Rule.UNREAD, ledger.where, f"{event.reader} at {reader.position}: {event.error}", number)

    def _end_seen(self, event: EndSeen, number: int) -> None:
        key = (event.viewer, event.topic, event.partition)
        end, epoch, seen = self._ends.get(key, (0, None, -1))
        if epoch is not None and epoch == event.leader_epoch and event.end < end:
            words = f"{event.viewer}: from {end} to {event.end} in leader epoch {epoch}"
            self._report.add(Rule.END_BACK, key[1:], words, seen, number)
        self._ends[key] = (event.end, event.leader_epoch, number)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _of_group(self, event: OffsetSent | OffsetCommitted | OffsetFailed | OffsetFetched) -> _Committed:
        return self._offsets.setdefault((event.group, event.topic, event.partition), _Committed())

    def _offset_sent(self, event: OffsetSent, number: int) -> None:
        self._of_group(event).possible[event.offset] = number

    def _offset_committed(self, event: OffsetCommitted, number: int) -> None:
        known = self._of_group(event)
        known.offset, known.event = event.offset, number
        known.possible.pop(event.offset, None)

    def _offset_failed(self, event: OffsetFailed, number: int) -> None:
        if not event.may_be_written:
            self._of_group(event).possible.pop(event.offset, None)

    def _offset_fetched(self, event: OffsetFetched, number: int) -> None:
        known = self._of_group(event)
        if event.offset != known.offset and event.offset not in known.possible:
            words = f"{event.group}: {event.offset} instead of {known.offset}"
            proof = (known.event, number) if known.event >= 0 else (number,)
            self._report.add(Rule.OFFSET_LOST, (event.topic, event.partition), words, *proof)
