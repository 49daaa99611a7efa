"""Groups and their offsets as the history tells of them: of those that a member commits by itself, and of those in transactions.

An offset that was acknowledged is the group's until another one is that was asked for later: of two that were under way together
either may be. One without an answer may take its place at any time. So may that of a transaction whose commit was asked for, but not after a later transaction of its id was committed, which ends it before.
"""

from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
)
from ottla.server.testing.history.rules import Report, Rule
from ottla.server.testing.history.transactions import Key, State, Transactions

Place = tuple[str, str, int]
"""A group, a topic and a partition."""


class _Committed:
    """Commits of a place: the acknowledged ones of which any may be the last, those that may have been written, and their events."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = {UNKNOWN_OFFSET: -1}
        self.possible: dict[int, int] = {}
        self.added: dict[int, Key] = {}
        """In transactions whose end is not known."""


class Offsets:
    def __init__(self, report: Report, transactions: Transactions) -> None:
        self._report = report
        self._transactions = transactions
        self._places: dict[Place, _Committed] = {}
        self._of_transactions: dict[Key, list[tuple[Place, int]]] = {}

    def _of(self, event: OffsetSent | OffsetCommitted | OffsetFailed | OffsetFetched) -> _Committed:
        return self._places.setdefault((event.group, event.topic, event.partition), _Committed())

    # --- what was asked for -------------------------------------------------------------------------------------------

    def sent(self, event: OffsetSent, number: int) -> None:
        self._of(event).possible.setdefault(event.offset, number)

    def committed(self, event: OffsetCommitted, number: int) -> None:
        known = self._of(event)
        began = known.possible.pop(event.offset, -1)
        known.acknowledged = {offset: answered for offset, answered in known.acknowledged.items() if answered > began}
        known.acknowledged[event.offset] = number

    def failed(self, event: OffsetFailed, number: int) -> None:
        if not event.may_be_written:
            self._of(event).possible.pop(event.offset, None)

    def added(self, key: Key, place: Place, offset: int, number: int) -> None:
        self._places.setdefault(place, _Committed()).added[offset] = key
        self._of_transactions.setdefault(key, []).append((place, offset))

    def ended(self, key: Key, committed: bool, number: int) -> None:
        if committed:
            for place, offset in self._of_transactions.pop(key, ()):
                known = self._places[place]
                known.acknowledged = {offset: number}
                known.added.clear()

    # --- what a group is given ----------------------------------------------------------------------------------------

    def fetched(self, event: OffsetFetched, number: int) -> None:
        known = self._of(event)
        self._look_for_hidden(known, event, number)
        if event.offset in known.acknowledged or event.offset in known.possible:
            return
        where = (event.topic, event.partition)
        if (key := known.added.get(event.offset)) is not None:
            self._look_at_transaction(key, where, event, number)
            return
        offset, answered = next(reversed(known.acknowledged.items()))
        words = f"{event.group}: {event.offset} instead of {offset}"
        proof = (answered, number) if answered >= 0 else (number,)
        self._report.add(Rule.OFFSET_LOST, where, words, *proof)

    def _look_at_transaction(self, key: Key, where: tuple[str, int], event: OffsetFetched, number: int) -> None:
        transaction = self._transactions[key]
        words = f"{event.group}: {event.offset}"
        if transaction.state == State.OPEN:
            self._report.add(Rule.OFFSET_OF_OPEN, where, words, transaction.because, number)
        elif transaction.state in (State.TO_ABORT, State.ABORTED):
            self._report.add(Rule.OFFSET_OF_ABORTED, where, words, transaction.because, number)
        else:
            transaction.offset_shown = transaction.offset_shown or (where, number)

    def _look_for_hidden(self, known: _Committed, event: OffsetFetched, number: int) -> None:
        """The last transaction that added an offset has ended, as its producer was fenced; either its offset is there or it was aborted."""
        if not known.added:
            return
        offset, key = next(reversed(known.added.items()))
        transaction = self._transactions[key]
        if transaction.state == State.TO_COMMIT and key[0] in self._transactions.fenced and event.offset != offset:
            transaction.offset_hidden = transaction.offset_hidden or ((event.topic, event.partition), number)
