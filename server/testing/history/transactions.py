"""Transactions as the history tells of them, over all partitions, and that each is there as a whole or not at all.

| state | what is known | records and offsets may be shown |
|-|-|-|
| open | nobody asked for its end | no |
| to be committed | its commit was asked for and nobody learned the outcome, whatever was asked for later | all or nothing |
| to be aborted | only its abort was asked for | no |
| committed | somebody was told so | yes; whoever misses one is the ledger's business |
| aborted | somebody was told so | no |

All or nothing is settled at the end, for those that stayed "to be committed": what a reader or a group was shown of one is
held against what final read_committed readers were not shown of it, and what a group did not get.
"""

from collections.abc import Callable
from enum import StrEnum

from ottla.server.testing.history.rules import Report, Rule

Key = tuple[int, int]
"""A producer's number and the number of its transaction."""

Where = tuple[str, int]
IsSettled = Callable[[Where, str], bool]


class State(StrEnum):
    OPEN = "open"
    TO_COMMIT = "to be committed"
    TO_ABORT = "to be aborted"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """`known` and `hidden` name events: what was acknowledged, what was shown, and an offset that a group did not get."""

    __slots__ = ("because", "known", "offset_hidden", "offset_shown", "shown", "shown_finally", "state")

    def __init__(self, event: int) -> None:
        self.state, self.because = State.OPEN, event
        self.known: dict[tuple[Where, str], int] = {}
        self.shown: dict[tuple[Where, str], int] = {}
        self.shown_finally: set[tuple[Where, str]] = set()
        self.offset_shown: tuple[Where, int] | None = None
        self.offset_hidden: tuple[Where, int] | None = None


class Transactions:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._all: dict[Key, Transaction] = {}
        self.fenced: dict[int, int] = {}
        """Of producers by their numbers, the event that says so."""

    def __getitem__(self, key: Key) -> Transaction:
        return self._all[key]

    def is_committed(self, producer: int, transaction: int) -> bool:
        return self._all[producer, transaction].state == State.COMMITTED

    # --- what producers did -------------------------------------------------------------------------------------------

    def begun(self, key: Key, event: int) -> None:
        if key not in self._all:
            self._all[key] = Transaction(event)

    def acknowledged(self, key: Key, where: Where, value: str, event: int) -> None:
        self._all[key].known[where, value] = event

    def end_asked(self, key: Key, commit: bool, event: int) -> None:
        self.begun(key, event)
        found = self._all[key]
        if found.state in (State.OPEN, State.TO_ABORT):
            found.state, found.because = State.TO_COMMIT if commit else State.TO_ABORT, event

    def ended(self, key: Key, committed: bool, event: int) -> None:
        """Note a known end, and forget what need not be settled any more."""
        found = self._all[key]
        found.state, found.because = State.COMMITTED if committed else State.ABORTED, event
        if not committed and found.shown:
            (where, value), shown = next(iter(found.shown.items()))
            self._report.add(Rule.ABORTED_SHOWN, where, f"{value!r}", shown, event)
        if not committed and found.offset_shown:
            self._report.add(Rule.OFFSET_OF_ABORTED, found.offset_shown[0], "", found.offset_shown[1], event)
        found.known, found.shown, found.shown_finally = {}, {}, set()

    # --- what was seen of them ----------------------------------------------------------------------------------------

    def shown(self, key: Key, where: Where, value: str, event: int, *, final: bool) -> None:
        """Note that a read_committed reader was shown a record of the transaction."""
        found = self._all[key]
        if found.state == State.OPEN:
            self._report.add(Rule.OPEN_SHOWN, where, f"{value!r}", found.because, event)
        elif found.state in (State.TO_ABORT, State.ABORTED):
            self._report.add(Rule.ABORTED_SHOWN, where, f"{value!r}", found.because, event)
        elif found.state == State.TO_COMMIT:
            found.shown.setdefault((where, value), event)
            if final:
                found.shown_finally.add((where, value))

    # --- all or nothing -----------------------------------------------------------------------------------------------

    def settle(self, is_settled: IsSettled) -> None:
        for found in self._all.values():
            if found.state == State.TO_COMMIT:
                self._settle(found, is_settled)

    def _settle(self, found: Transaction, is_settled: IsSettled) -> None:
        places = ((record, event) for record, event in (found.known | found.shown).items())
        unseen = ((record, event) for record, event in places if record not in found.shown_finally)
        hidden = next(((where, event) for (where, value), event in unseen if is_settled(where, value)), None)
        shown = next(((where, event) for (where, _), event in found.shown.items()), None)
        there, missing = shown or found.offset_shown, hidden or found.offset_hidden
        if there and missing:
            words = f"there in {there[0][0]}-{there[0][1]}, not in {missing[0][0]}-{missing[0][1]}"
            self._report.add(Rule.TORN, missing[0], words, found.because, there[1], missing[1])
