"""Order in which generated records arrive: events as they happen, some of them late, some twice, and poison between them.

Position n of the topic is written at `begin_ms + n * 1000 / rate`, which is the record's timestamp; no clock is asked. A late event
is held back for up to DELAY_RECORDS records and written with the timestamp of its arrival, while its value keeps the time at which it
happened. A doubled event is written at once, and its copy, byte for byte, is held back. Poison has no place in any result.

The same seed gives the same bytes on every Python: of `random.Random` only `random()` is used, which Python promises never to change,
and there is no arithmetic of floats but one multiplication. Memory is bounded by DELAY_RECORDS.
"""

from __future__ import annotations

import heapq
import json
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

DELAY_RECORDS = 1000
"""Records that are written, at most, between the time of a held record and its own arrival."""

DAY_MS = 86_400_000
DATA_RATE = 10
"""Records a second, by their timestamps, without --rate."""

NULL = "null"
"""Poison of every format; it is left out where null is a tombstone."""

Row = dict[str, Any]


class Event(NamedTuple):
    """Event of the generated data. `value` None: a tombstone."""

    key: str
    value: Row | None
    can_be_late: bool = True


class Written(NamedTuple):
    """Generated record: key, value and timestamp."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


class Kind(Protocol):
    """Kind of generated data. It makes events in time order and computes the result that a consumer should get."""

    null_is_poison: bool

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        """Make one event, or several that must stay together, at most `room`. All of them count for the result."""

    def closing(self, time_ms: int) -> Event | None:
        """Make an event that advances event time and does not count for the result; None if the kind has no windows."""

    def finish(self) -> None:
        """Emit the last rows of the result."""


class Encoding(Protocol):
    """Encoding of values."""

    poison: tuple[str, ...]
    """Names of its kinds of poison but null, which take turns."""

    def encode(self, value: Row) -> bytes:
        """Encode a value."""

    def poisonous(self, name: str, number: int, time_ms: int) -> bytes:
        """Make a value that consumers cannot parse. `name`: kind of poison."""


class Shares(NamedTuple):
    """Fractions of late, duplicated and poisonous records, from 0 to 1."""

    late: float = 0.0
    doubled: float = 0.0
    poison: float = 0.0


class _Held(NamedTuple):
    due: int
    serial: int
    """Breaks ties, so that no records are compared."""

    made_at: int
    is_copy: bool
    key: bytes
    value: bytes | None


class Arrival:
    """Iterator over all generated records, in the order of the topic. It can be iterated only once.

    Each position in the topic gets one of these: a held record that is due or can no longer wait; the next one of
    several events that stay together; a poisonous record; a new event. If a new event is late, it is held, and another
    record takes its position.
    """

    def __init__(
        self,
        kind: Kind,
        count: int,
        seed: int,
        begin_ms: int,
        rate: int,
        shares: Shares,
        encoding: Encoding | None = None,
    ) -> None:
        """`encoding`: encoding of values; None means JSON."""
        self.events = self.late = self.doubled = self.tombstones = 0
        self.lateness_ms = 0
        """Longest time between an event and its first arrival."""

        self.poison: Counter[str] = Counter()
        self._kind, self._count, self._begin_ms, self._rate, self._shares = kind, count, begin_ms, rate, shares
        self._random = random.Random(seed)
        self._delay = max(1, min(DELAY_RECORDS, count // 10))
        self._held: list[_Held] = []
        self._serial = 0
        self._rest: deque[Event] = deque()
        self._encoding = encoding or Json()
        self._poisons = [*self._encoding.poison, NULL] if kind.null_is_poison else list(self._encoding.poison)

    def time_ms(self, position: int) -> int:
        """Return the timestamp of a position in ms."""
        return self._begin_ms + position * 1000 // self._rate

    def __iter__(self) -> Iterator[Written]:
        for position in range(self._count):
            yield self._at(position)
        self._kind.finish()

    def closing(self) -> Written | None:
        """Make a final record, one day later, that closes all windows; None if the kind has no windows."""
        at_ms = self.time_ms(self._count) + DAY_MS
        event = self._kind.closing(at_ms)
        return None if event is None else Written(event.key.encode(), self._encoded(event.value), at_ms)

    def _encoded(self, value: Row | None) -> bytes | None:
        return None if value is None else self._encoding.encode(value)

    def _at(self, position: int) -> Written:
        while True:
            room = self._count - position - len(self._held) - len(self._rest)
            if self._rest:
                return self._new(self._rest.popleft(), position)
            if self._held and (room <= 0 or self._held[0].due <= position):
                return self._released(heapq.heappop(self._held), position)
            drawn = self._random.random()
            late, doubled, poison = self._shares
            if drawn < poison:
                return self._poison(position)
            first, *rest = self._kind.make(self.events, self.time_ms(position), self._random, room)
            self.events += 1
            self._rest.extend(rest)
            if drawn < poison + late and first.can_be_late and room > 1:
                self._hold(first, position, is_copy=False)
                continue
            if poison + late <= drawn < poison + late + doubled and room > len(rest) + 1:
                self._hold(first, position, is_copy=True)
            return self._new(first, position)

    def _new(self, event: Event, position: int) -> Written:
        self.tombstones += event.value is None
        return Written(event.key.encode(), self._encoded(event.value), self.time_ms(position))

    def _hold(self, event: Event, position: int, *, is_copy: bool) -> None:
        due = position + 1 + int(self._random.random() * self._delay)
        self._serial += 1
        held = _Held(due, self._serial, position, is_copy, event.key.encode(), self._encoded(event.value))
        heapq.heappush(self._held, held)

    def _released(self, held: _Held, position: int) -> Written:
        if held.is_copy:
            self.doubled += 1
        elif position > held.made_at:
            self.late += 1
            self.lateness_ms = max(self.lateness_ms, self.time_ms(position) - self.time_ms(held.made_at))
        return Written(held.key, held.value, self.time_ms(position))

    def _poison(self, position: int) -> Written:
        number = self.poison.total()
        name = self._poisons[number % len(self._poisons)]
        self.poison[name] += 1
        at_ms = self.time_ms(position)
        value = None if name == NULL else self._encoding.poisonous(name, number, at_ms)
        return Written(b"poison-%d" % number, value, at_ms)


class Json(Encoding):
    """JSON encoding of values, without spaces."""

    poison = ("cut", "not_utf8", "not_an_object", "bad_time")

    def encode(self, value: Row) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    def poisonous(self, name: str, number: int, time_ms: int) -> bytes:
        whole = {"id": f"poison-{number}", "time": iso(time_ms)}
        match name:
            case "cut":
                return self.encode(whole)[:-9]
            case "not_utf8":
                return b"\xff\xfe\x00{\xc3("
            case "not_an_object":
                return b'["poison"]'
        return self.encode(whole | {"time": "yesterday"})


def iso(time_ms: int) -> str:
    """Format a time as ISO 8601 in UTC with milliseconds, which all JSON readers recognize as a timestamp."""
    seconds, ms = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ms:03}Z"
