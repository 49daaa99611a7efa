"""Happenings: what a broker did out of the ordinary, with its cause, for people who ask why.

A machine or a handler notes a happening where it removes a member, fences a producer, refuses a write or ends a connection.
That place alone has all facts. Nothing is noted for requests that go well.

Memory is bounded: KEPT_PER_KIND happenings of each kind, with texts cut to TEXT_LENGTH_MAX. If a kind has no room, the source
with the most happenings of that kind loses its oldest one. A source is the address, or the topic or group, that makes them
come. So a client that fails all the time pushes out its own causes first. Repetitions within REPEATED_MS are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

KEPT_PER_KIND = 200
TEXT_LENGTH_MAX = 600
NAME_LENGTH_MAX = 200
REPEATED_MS = 60_000

REBALANCE = "rebalance"
MEMBER_REMOVED = "member removed"
MEMBER_FENCED = "member fenced"
MEMBER_REFUSED = "member refused"
COMMIT_REFUSED = "commit refused"
PRODUCER_FENCED = "producer fenced"
TRANSACTION_ABORTED = "transaction aborted"
WRITE_REFUSED = "write refused"
DISCONNECT = "disconnect"
LOGIN_FAILED = "login failed"
THROTTLE = "throttle"
LEADER_CHANGE = "leader change"
ISR_CHANGE = "isr change"
REMOVAL = "removal"
TOPIC_DELETED = "topic deleted"
KINDS = (
    REBALANCE,
    MEMBER_REMOVED,
    MEMBER_FENCED,
    MEMBER_REFUSED,
    COMMIT_REFUSED,
    PRODUCER_FENCED,
    TRANSACTION_ABORTED,
    WRITE_REFUSED,
    DISCONNECT,
    LOGIN_FAILED,
    THROTTLE,
    LEADER_CHANGE,
    ISR_CHANGE,
    REMOVAL,
    TOPIC_DELETED,
)

SUBJECTS = ("group", "member", "transactional_id", "topic", "partition", "client_id", "host", "error")
"""Names of facts that tell one happening of a kind from another one."""

Fact = str | int


class Note(Protocol):
    """Function that takes a happening; `Happenings.note` is one."""

    def __call__(self, kind: str, cause: str, /, *, source: str = "", **facts: Fact) -> None: ...


def note_nothing(kind: str, cause: str, /, *, source: str = "", **facts: Fact) -> None:
    """Ignore a happening."""


class Happening:
    """One event out of the ordinary: its kind, its cause as a sentence, and its facts by name.

    `count` says how often it came from `first_ms` to `last_ms`, wall-clock times in ms.
    """

    __slots__ = ("cause", "count", "facts", "first_ms", "kind", "last_ms", "number", "source")

    def __init__(
        self, kind: str, cause: str, facts: Mapping[str, Fact], time_ms: int, *, number: int = 0, source: str = ""
    ) -> None:
        """`number`: place in the order in which the broker noted its happenings."""
        self.kind, self.cause, self.facts = kind, cause, facts
        self.first_ms = self.last_ms = time_ms
        self.count, self.number, self.source = 1, number, source

    def is_about(self, wanted: Mapping[str, Fact]) -> bool:
        """Return True if all `wanted` facts are known of this happening with these values."""
        return all(self.facts.get(name) == _short(value, NAME_LENGTH_MAX) for name, value in wanted.items())

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.first_ms}: {self.cause}>"


class Happenings:
    """Happenings of one broker, the latest of each kind."""

    __slots__ = ("_clock_ms", "_count", "_kinds")

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._kinds: dict[str, _Kind] = {}
        self._count = 0

    def note(self, kind: str, cause: str, /, *, source: str = "", **facts: Fact) -> None:
        """Keep a happening of now. `source`: who makes it come, such as an address; empty: nobody in particular."""
        kept = self._kinds.get(kind)
        if kept is None:
            kept = self._kinds[kind] = _Kind()
        known = {name: _short(value, NAME_LENGTH_MAX) for name, value in facts.items()}
        self._count += 1
        happening = Happening(
            kind, cut(cause, TEXT_LENGTH_MAX), known, self._clock_ms(), number=self._count, source=cut(source)
        )
        kept.add(happening)

    def __iter__(self) -> Iterator[Happening]:
        """Iterate over all kept happenings in the order in which they began."""
        found = [each for kind in self._kinds.values() for each in kind]
        return iter(sorted(found, key=lambda each: each.number))


class _Kind:
    """Happenings of one kind by their sources, each source's oldest first."""

    __slots__ = ("_by_source", "_count", "_latest")

    def __init__(self) -> None:
        self._by_source: dict[str, deque[Happening]] = {}
        self._latest: dict[tuple[Fact | None, ...], Happening] = {}
        self._count = 0

    def add(self, happening: Happening) -> None:
        identity = _identity(happening)
        known = self._latest.get(identity)
        if known is not None and happening.first_ms < known.last_ms + REPEATED_MS:
            known.count += 1
            known.last_ms = max(known.last_ms, happening.first_ms)
            known.cause, known.facts = happening.cause, happening.facts
            return
        self._latest[identity] = happening
        self._by_source.setdefault(happening.source, deque()).append(happening)
        self._count += 1
        if self._count > KEPT_PER_KIND:
            self._forget_one()

    def _forget_one(self) -> None:
        source, happenings = max(self._by_source.items(), key=lambda each: len(each[1]))
        forgotten = happenings.popleft()
        self._count -= 1
        if not happenings:
            del self._by_source[source]
        identity = _identity(forgotten)
        if self._latest.get(identity) is forgotten:
            del self._latest[identity]

    def __iter__(self) -> Iterator[Happening]:
        for happenings in self._by_source.values():
            yield from happenings


def _identity(happening: Happening) -> tuple[Fact | None, ...]:
    # A request that is sent again gets the same error, though its numbers differ. All else repeats word by word.
    facts = happening.facts
    return (*(facts.get(name) for name in SUBJECTS), None if "error" in facts else happening.cause)


def cut(text: str, length_max: int = NAME_LENGTH_MAX) -> str:
    """Shorten a text to `length_max` characters, with "..." in the place of its end."""
    return text if len(text) <= length_max else text[: length_max - 3] + "..."


def _short(value: Fact, length_max: int) -> Fact:
    return cut(value, length_max) if isinstance(value, str) else value


def in_seconds(milliseconds: float) -> str:
    """Return a duration as text: "10 s", "0.25 s"."""
    return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".") + " s"


def as_json(happening: Happening) -> dict[str, Any]:
    """Return a happening as a JSON object; `from_json` reads it."""
    return {
        "kind": happening.kind,
        "cause": happening.cause,
        "facts": dict(happening.facts),
        "count": happening.count,
        "firstMs": happening.first_ms,
        "lastMs": happening.last_ms,
        "number": happening.number,
    }


def from_json(value: Any) -> Happening:
    """Read a happening from what `as_json` made. Raises ValueError if it is something else."""
    try:
        facts = {str(name): fact for name, fact in value["facts"].items() if isinstance(fact, (str, int))}
        made = Happening(
            str(value["kind"]), str(value["cause"]), facts, int(value["firstMs"]), number=int(value["number"])
        )
        made.count, made.last_ms = int(value["count"]), int(value["lastMs"])
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"no happening: {error!r}") from None
    return made


def sentence_of(happening: Happening) -> str:
    """Return the cause as a sentence of its own, with the number of repetitions."""
    cause = happening.cause[:1].upper() + happening.cause[1:]
    if happening.count > 1:
        cause += f" ({happening.count} times until {utc_ms(happening.last_ms)})"
    return cause + "."


def utc_ms(time_ms: int) -> str:
    """Return a time in ms since 1970 as text in UTC: 2026-11-28 12:03:04.100Z; beyond the year 9999 as "N ms"."""
    from datetime import UTC, datetime, timedelta  # here, because a start needs none

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"
