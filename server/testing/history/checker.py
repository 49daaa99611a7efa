"""Holds a history against the rules of `ottla.server.testing.history.rules` and names every violation with the events that prove it.

    for proof in check(history, logs):
        print(proof)

The history is read as a stream, once, in time linear in its events; and once more if something was found, to fetch the
events that prove it. What can be judged at once (a reader going backwards, an end going back, an open transaction shown, a
committed offset lost) is judged while it streams; what needs the whole (lost, twice, reordered, skipped) is kept in a
`Ledger` for each partition and settled at the end against what final readers found. `Transactions` goes beyond one partition,
`Offsets` has the groups, `Owners` who owns
which partition in them, and `Shares` the share groups.

A history that is to be judged ends with final readers of every partition, at least one of them not read_committed if there
are transactions, and better two, of both kinds (and before them all transactions have ended): a record that only one of them misses was SKIPPED, one that both miss is LOST.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from ottla.server.testing.history.availability import Availability
from ottla.server.testing.history.group_events import (
    Disowned,
    Owned,
    ShareAcquired,
    ShareAnswered,
    ShareBegan,
    ShareSaid,
    ShareSessionLost,
    ShareTold,
)
from ottla.server.testing.history.history import (
    TIMED_OUT,
    Acknowledged,
    EndAsked,
    Ended,
    EndSeen,
    EpochRaised,
    Event,
    Failed,
    FaultBegan,
    FaultEnded,
    Fenced,
    OffsetAdded,
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
from ottla.server.testing.history.ledger import Gap, Ledger, ProducerKind
from ottla.server.testing.history.offsets import Offsets
from ottla.server.testing.history.owners import Owners
from ottla.server.testing.history.replica_logs import Replicas, compare, events_of
from ottla.server.testing.history.rules import Proof, Report, Rule, Violation
from ottla.server.testing.history.shares import Shares
from ottla.server.testing.history.transactions import Transactions


def check(history: Iterable[Event], logs: Sequence[Replicas] = ()) -> list[Proof]:
    """Return the proof of each violation. The history is read twice: a list, or a HistoryFile."""
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
    """Position of a reader in a partition: it is to be given `position` or, if that is missing, a later offset."""

    __slots__ = ("committed_only", "final", "position")

    def __init__(self, began: ReadBegan) -> None:
        self.position, self.committed_only, self.final = began.offset, began.committed_only, began.final


class Checker:
    """`feed` it every event in order, then `finish` it; the report then has all violations."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._availability = Availability(report)
        self._count = 0
        self._ledgers: dict[tuple[str, int], Ledger] = {}
        self._producers: dict[str, int] = {}
        self._kinds: list[ProducerKind] = []
        self._gave_up: dict[int, list[int]] = {}  # of producers, the events that say so
        self._transactions = Transactions(report)
        self._offsets = Offsets(report, self._transactions)
        self._shares, self._owners = Shares(report), Owners(report)
        self._readers: dict[tuple[str, str, int], _Reader] = {}
        self._ends: dict[tuple[str, str, int], tuple[int, int | None, int]] = {}
        self._handlers: dict[type[Event], Callable[..., None]] = {
            TopicBegan: self._topic,
            ProducerBegan: self._producer,
            EpochRaised: self._epoch_raised,
            Sent: self._sent,
            Acknowledged: self._acknowledged,
            Failed: self._failed,
            EndAsked: self._end_asked,
            Ended: self._ended,
            Fenced: self._fenced,
            ReadBegan: self._read_began,
            Read: self._read,
            ReachedEnd: self._reached_end,
            ReadFailed: self._read_failed,
            EndSeen: self._end_seen,
            ProbeBegan: self._availability.began,
            Served: self._availability.served,
            TroubleBegan: self._availability.trouble_began,
            TroubleEnded: self._availability.trouble_ended,
            OffsetAdded: self._offset_added,
            OffsetSent: self._offsets.sent,
            OffsetCommitted: self._offsets.committed,
            OffsetFailed: self._offsets.failed,
            OffsetFetched: self._offsets.fetched,
            RecordsDeleted: self._deleted,
            FaultBegan: self._shares.fault,
            FaultEnded: self._shares.fault,
            ShareBegan: self._shares.began,
            ShareAcquired: self._shares.acquired,
            ShareSaid: self._shares.said,
            ShareTold: self._shares.told,
            ShareAnswered: self._shares.answered,
            ShareSessionLost: self._shares.session_lost,
            Owned: self._owners.owned,
            Disowned: self._owners.disowned,
        }

    def feed(self, event: Event) -> None:
        if handler := self._handlers.get(type(event)):
            handler(event, self._count)
        self._count += 1

    def finish(self) -> None:
        for ledger in self._ledgers.values():
            ledger.settle()
        self._transactions.settle(lambda where, value: self._ledgers[where].is_settled(value))
        self._shares.settle(self._stored)
        self._availability.finish()

    def _stored(self, topic: str) -> Iterator[tuple[int, int, int]]:
        for (name, partition), ledger in self._ledgers.items():
            if name == topic:
                yield from ((partition, offset, event) for offset, event in ledger.stored())

    # --- what is there and who takes part -----------------------------------------------------------------------------

    def _topic(self, event: TopicBegan, number: int) -> None:
        for partition in range(event.partitions):
            ledger = Ledger(
                (event.topic, partition),
                self._report,
                self._kinds,
                self._transactions.is_committed,
                self._transactions.fenced,
                self._gave_up,
            )
            ledger.compacted, ledger.transactional = event.compacted, event.transactional
            self._ledgers[event.topic, partition] = ledger

    def _producer(self, event: ProducerBegan, number: int) -> None:
        self._producers[event.producer] = len(self._kinds)
        self._kinds.append(ProducerKind(event.producer, event.idempotent, event.acks == -1))

    def _epoch_raised(self, event: EpochRaised, number: int) -> None:
        if TIMED_OUT in event.words:
            self._gave_up.setdefault(self._producers[event.producer], []).append(number)

    def _deleted(self, event: RecordsDeleted, number: int) -> None:
        ledger = self._ledgers[event.topic, event.partition]
        ledger.deleted_before = max(ledger.deleted_before, event.before)

    # --- producing ----------------------------------------------------------------------------------------------------

    def _sent(self, event: Sent, number: int) -> None:
        producer = self._producers[event.producer]
        if event.transaction is not None:
            self._transactions.begun((producer, event.transaction), number)
        self._ledgers[event.topic, event.partition].sent(event.value, producer, event.key, event.transaction, number)

    def _acknowledged(self, event: Acknowledged, number: int) -> None:
        ledger = self._ledgers[event.topic, event.partition]
        ledger.acknowledged(event.value, event.offset, number)
        if transaction := ledger.transaction_of(event.value):
            self._transactions.acknowledged(transaction, ledger.where, event.value, number)

    def _failed(self, event: Failed, number: int) -> None:
        if not event.may_be_written:
            self._ledgers[event.topic, event.partition].refused(event.value, number)

    def _end_asked(self, event: EndAsked, number: int) -> None:
        self._transactions.end_asked((self._producers[event.producer], event.transaction), event.commit, number)

    def _ended(self, event: Ended, number: int) -> None:
        key = (self._producers[event.producer], event.transaction)
        self._transactions.ended(key, event.committed, number)
        self._offsets.ended(key, event.committed, number)

    def _fenced(self, event: Fenced, number: int) -> None:
        self._transactions.fenced[self._producers[event.producer]] = number

    def _offset_added(self, event: OffsetAdded, number: int) -> None:
        key = (self._producers[event.producer], event.transaction)
        self._transactions.begun(key, number)
        self._offsets.added(key, (event.group, event.topic, event.partition), event.offset, number)

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
            if reader.committed_only and (transaction := ledger.transaction_of(value)):
                self._transactions.shown(transaction, ledger.where, value, number, final=reader.final)
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
