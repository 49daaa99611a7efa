"""Share groups as the history tells of them: who holds which record, how often it was delivered, and what became of it.

A lock begins when the broker acquires a record, which is after the member asked and before it heard. It ends when the member
says what became of the record, when its session ends, when another leader takes over, or when its time is over. A second holder
is a fault only if the session of the first one is proven by a later answer not to have ended (`_Doubt`).

Acquisitions are not stored: after the loss of a leader a record may be delivered under a count that it had before. Stored is
what members said, and was answered. So a delivery count is at most one more than there can have been deliveries, and at least
one more than that under which a record was released before; and exactly one more than the last one after a calm in which
nobody lost a session. Others may be given a record before its first holder hears that it had it, or gives up waiting: a fetch
that acknowledges is answered when that is stored, and its locks may end first. So a count that is too high is a fault only if no
fetch that was on its way explains it (`_Excess`).

A record that nobody accepts is archived when it has been delivered so often as may be. Deliveries that were lost on the way may
be among these; but not after somebody was given later records of the partition while this one should long have been free.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.server.testing.history.group_events import (
    ShareAcquired,
    ShareAnswered,
    ShareBegan,
    ShareSaid,
    ShareSessionLost,
    ShareTold,
)
from ottla.server.testing.history.history import FaultBegan, FaultEnded
from ottla.server.testing.history.rules import Report, Rule

CALM_S = 30.0
"""So long after the last fault or lost session what it had caused is over."""
SLACK_S = 0.01
"""Brokers count locks in milliseconds."""

FREE_S = 15.0
"""So long after all locks that are known of have ended nobody can hold a record, and nothing of it waits to be stored."""

Place = tuple[str, str, int]
"""A group, a topic and a partition."""

DONE = ("accept", "reject")
RENEW = "renew"


class _Hold(NamedTuple):
    session: str
    until: float
    """At least so long, if nothing ends it before."""
    leader_epoch: int | None
    event: int


class _Stored(NamedTuple):
    """A member's word about a record, of which it was told that it is stored."""

    at: float
    leader_epoch: int
    event: int
    delivery_count: int

    def counts_for(self, event: ShareAcquired) -> bool:
        """Return True if the leader that acquired records for `event` has to know this word."""
        return event.leader_epoch is not None and event.leader_epoch >= self.leader_epoch and event.asked > self.at


class _Doubt(NamedTuple):
    """Suspicion: a member got a record while another one held it."""

    at: float
    where: tuple[str, int]
    words: str
    events: tuple[int, int]


@dataclass(slots=True)
class _Excess:
    """A delivery count that is too high by `by`, as far as is known."""

    at: float
    where: tuple[str, int]
    offset: int
    by: int
    words: str
    events: tuple[int, ...]


class _Record:
    __slots__ = ("acquired", "deliveries", "done", "holds", "losses", "passed_at", "released", "said", "told_at")

    def __init__(self) -> None:
        self.holds: list[_Hold] = []
        self.deliveries = 0
        self.acquired: tuple[ShareAcquired, int] | None = None  # the last one
        self.losses = 0  # of fetches of the partition when that was
        self.passed_at: int | None = None  # the number of losses when later records were acquired in its place
        self.told_at = 0.0
        self.released: _Stored | None = None
        self.done: _Stored | None = None
        self.said = 0  # how often it was accepted or rejected and not refused


class Shares:
    """`acquired` and the others are called for every event of their kind, in order; `settle` at the end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._limits: dict[tuple[str, str], int] = {}
        self._records: dict[Place, dict[int, _Record]] = {}
        self._held: dict[str, dict[tuple[Place, int], None]] = {}  # by session
        self._doubts: dict[str, list[_Doubt]] = {}
        self._open: dict[Place, dict[int, _Record]] = {}  # those that nobody has accepted or rejected
        self._losses: dict[Place, int] = {}  # fetches without an answer
        self._excesses: dict[Place, list[_Excess]] = {}
        self._trouble_at: dict[Place, float] = {}
        self._last_fault_at = 0.0

    # --- what went wrong ----------------------------------------------------------------------------------------------

    def fault(self, event: FaultBegan | FaultEnded, number: int) -> None:
        self._last_fault_at = event.at

    def session_lost(self, event: ShareSessionLost, number: int) -> None:
        place = (event.group, event.topic, event.partition)
        if event.unanswered is not None:
            self._losses[place] = self._losses.get(place, 0) + 1
            self._explain(place, event.unanswered)
        self._trouble_at[place] = event.at
        self._doubts.pop(event.session, None)
        for held, offset in self._held.pop(event.session, ()):
            self._end_hold(self._records[held][offset], event.session)

    def answered(self, event: ShareAnswered, number: int) -> None:
        doubts = self._doubts.get(event.session, [])
        for doubt in doubts:
            if doubt.at < event.asked:
                self._report.add(Rule.TWO_HOLDERS, doubt.where, doubt.words, *doubt.events, number)
        doubts[:] = [doubt for doubt in doubts if doubt.at >= event.asked]

    # --- who holds what -----------------------------------------------------------------------------------------------

    def began(self, event: ShareBegan, number: int) -> None:
        self._limits[event.group, event.topic] = event.delivery_count_limit

    def acquired(self, event: ShareAcquired, number: int) -> None:
        place = (event.group, event.topic, event.partition)
        records = self._records.setdefault(place, {})
        held = self._held.setdefault(event.session, {})
        hold = _Hold(event.session, event.asked + event.lock_s - SLACK_S, event.leader_epoch, number)
        self._explain(place, event.asked, event)
        for offset in range(event.first, event.last + 1):
            record = records.setdefault(offset, _Record())
            self._look_whether_done(record, event, offset, number)
            self._look_at_count(record, event, offset, number)
            self._look_at_holders(record, event, offset, number)
            record.holds.append(hold)
            held[place, offset] = None
            record.deliveries += 1
            record.acquired, record.losses, record.passed_at = (event, number), self._losses.get(place, 0), None
            record.told_at = event.at
            if not record.said:
                self._open.setdefault(place, {})[offset] = record
        self._note_passed(place, event)

    def _note_passed(self, place: Place, event: ShareAcquired) -> None:
        """Whoever gets records gets the first ones that are free."""
        losses = self._losses.get(place, 0)
        free_s = event.lock_s + FREE_S
        if place in self._trouble_at and event.asked < self._trouble_at[place] + free_s:
            return
        for offset, record in self._open.get(place, {}).items():
            if offset < event.first and event.asked > record.told_at + free_s and record.passed_at is None:
                record.passed_at = losses

    def _look_whether_done(self, record: _Record, event: ShareAcquired, offset: int, number: int) -> None:
        if record.done is not None and record.done.counts_for(event):
            words = f"{event.group}: offset {offset}"
            self._report.add(Rule.DONE_AGAIN, (event.topic, event.partition), words, record.done.event, number)

    def _look_at_holders(self, record: _Record, event: ShareAcquired, offset: int, number: int) -> None:
        record.holds = [hold for hold in record.holds if hold.until > event.at]
        if event.leader_epoch is None or event.asked + event.lock_s - SLACK_S <= event.at:
            return
        for hold in record.holds:
            if hold.leader_epoch == event.leader_epoch:
                words = f"{event.group}: offset {offset} by {hold.session} and {event.session}"
                doubt = _Doubt(event.at, (event.topic, event.partition), words, (hold.event, number))
                self._doubts.setdefault(hold.session, []).append(doubt)

    def _end_hold(self, record: _Record, session: str) -> None:
        record.holds = [hold for hold in record.holds if hold.session != session]

    # --- delivery counts ----------------------------------------------------------------------------------------------

    def _look_at_count(self, record: _Record, event: ShareAcquired, offset: int, number: int) -> None:
        count, where = event.delivery_count, (event.topic, event.partition)
        words = f"{event.group}: offset {offset}: {count}"
        place = (event.group, *where)
        highest = record.deliveries + self._losses.get(place, 0) + 1
        limit = self._limits[event.group, event.topic]
        if count > limit:
            self._report.add(Rule.DELIVERY_COUNT, where, f"{words} of {limit}", number)
        elif count > highest:
            words = f"{words}, and {highest} at most"
            self._exceeds(place, _Excess(event.at, where, offset, count - highest, words, (number,)))
        elif (
            record.released is not None
            and record.released.counts_for(event)
            and count <= record.released.delivery_count
        ):
            words = f"{words} after {record.released.delivery_count}"
            self._report.add(Rule.DELIVERY_COUNT, where, words, record.released.event, number)
        elif record.acquired is not None and self._was_calm(place, record.acquired[0], event):
            before, its_number = record.acquired
            words = f"{words} after {before.delivery_count}"
            by = count - before.delivery_count - 1
            if by < 0:
                self._report.add(Rule.DELIVERY_COUNT, where, words, its_number, number)
            elif by > 0:
                self._exceeds(place, _Excess(event.at, where, offset, by, words, (its_number, number)))

    def _exceeds(self, place: Place, excess: _Excess) -> None:
        self._excesses.setdefault(place, []).append(excess)

    def _explain(self, place: Place, asked: float, acquired: ShareAcquired | None = None) -> None:
        """A fetch of this time has acquired records, or any without an answer: that is known now, and was not before."""
        for excess in self._excesses.get(place, ()):
            if asked < excess.at and (acquired is None or acquired.first <= excess.offset <= acquired.last):
                excess.by -= 1

    def _was_calm(self, place: Place, before: ShareAcquired, event: ShareAcquired) -> bool:
        """Return True if nothing went wrong shortly before the last delivery or since, and both came in their order."""
        trouble_at = max(self._last_fault_at, self._trouble_at.get(place, 0.0))
        is_same_leader = event.leader_epoch is not None and before.leader_epoch == event.leader_epoch
        return is_same_leader and before.at < event.asked and before.at > trouble_at + CALM_S

    # --- what became of records ---------------------------------------------------------------------------------------

    def said(self, event: ShareSaid, number: int) -> None:
        place, held = (event.group, event.topic, event.partition), self._held.get(event.session, {})
        for offset, record in self._of(event):
            if event.what != RENEW:
                self._end_hold(record, event.session)
                held.pop((place, offset), None)
            record.told_at = event.at
            if event.what in DONE:
                record.said += 1
                self._open.get(place, {}).pop(offset, None)

    def told(self, event: ShareTold, number: int) -> None:
        for offset, record in self._of(event):
            record.told_at = event.at
            if event.error:
                if event.what in DONE and not event.may_count:
                    self._refused(event, offset, record)
                if event.what == RENEW:
                    self._end_hold(record, event.session)
            elif event.what == RENEW:
                self._renew(record, event)
            elif event.leader_epoch is not None:
                stored = _Stored(event.at, event.leader_epoch, number, event.delivery_count)
                if event.what in DONE:
                    record.done = record.done or stored
                elif record.released is None or record.released.leader_epoch <= stored.leader_epoch:
                    record.released = stored

    def _refused(self, event: ShareTold, offset: int, record: _Record) -> None:
        record.said -= 1
        if not record.said:
            self._open.setdefault((event.group, event.topic, event.partition), {})[offset] = record

    def _of(self, event: ShareSaid | ShareTold) -> Iterable[tuple[int, _Record]]:
        records = self._records.setdefault((event.group, event.topic, event.partition), {})
        return ((offset, records[offset]) for offset in range(event.first, event.last + 1) if offset in records)

    def _renew(self, record: _Record, event: ShareTold) -> None:
        until = event.asked + self._lock_s(record) - SLACK_S
        record.holds = [
            hold._replace(until=max(hold.until, until)) if hold.session == event.session else hold
            for hold in record.holds
        ]

    @staticmethod
    def _lock_s(record: _Record) -> float:
        return record.acquired[0].lock_s if record.acquired is not None else 0.0

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self, stored: Callable[[str], Iterable[tuple[int, int, int]]]) -> None:
        """`stored(topic)` gives (partition, offset, event) of all records that final readers found."""
        for excesses in self._excesses.values():
            for excess in excesses:
                if excess.by > 0:
                    self._report.add(Rule.DELIVERY_COUNT, excess.where, excess.words, *excess.events)
        for (group, topic), limit in self._limits.items():
            for partition, offset, event in stored(topic):
                record = self._records.get((group, topic, partition), {}).get(offset)
                if record is None or not record.said:
                    self._settle(group, (topic, partition), offset, record, limit, event)

    def _settle(
        self, group: str, where: tuple[str, int], offset: int, record: _Record | None, limit: int, event: int
    ) -> None:
        """Judge a record that no member has accepted: whether it was delivered too often, as far as is known."""
        losses = self._losses.get((group, *where), 0)
        if record is None or record.acquired is None:
            count, proof = losses, [event]
        else:
            last, number = record.acquired
            losses = losses if record.passed_at is None else record.passed_at
            count, proof = last.delivery_count + losses - record.losses, [event, number]
        if count < limit:
            words = f"{group}: offset {offset}, delivered {count} times at most"
            self._report.add(Rule.UNSETTLED, where, words, *proof)
