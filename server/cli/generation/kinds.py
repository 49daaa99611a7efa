"""Kinds of generated data, with the result that a job has to find.

    clicks    visitors of a shop, key: user      result: sessions, which end after 30 s without a click
    posts     a feed of short posts, key: author result: posts of each tag in each minute
    metrics   readings of hosts, key: host       result: count, min, max and sum of each metric of each host in each minute
    changes   a table's changes as Debezium tells them, key: the primary key    result: the rows of the table at the end

Events are generated in order of time, so a window's result is final when an event after the window comes. Then its rows are
yielded; only open windows are kept. Numbers are integers, so that sums do not depend on the order in which they were added.

`changes` can be written as the SQL statements that make them, too (`Stated`). A statement stands in a line of its own, in the order of
time, for `psql -f`. The balance is changed by a difference, so that a table to which a statement was applied twice, or not at all, is
another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from ottla.server.cli.generation.arrival import Event, Kind, Row, iso

Emit = Callable[[Row], None]
"""Take a row of the result."""

SESSION_GAP_MS = 30_000
MINUTE_MS = 60_000
TABLE = "accounts"
TABLE_ROWS_MAX = 1000
"""Rows that the table of `changes` has at once."""

_VISITORS = 40
"""Visitors at a time."""

_PAGES = ("/", "/search", "/cart", "/pay", *(f"/item/{number}" for number in range(1, 30)))
_DEVICES = ("phone", "phone", "phone", "laptop", "laptop", "tablet")
_TAGS = (
    "kafka", "spark", "python", "prague", "trains", "books", "coffee", "rivers", "bridges", "letters",
    "castles", "trials", "bread", "chess", "night", "rain", "winter", "maps", "stars", "keys", "clocks",
    "ink", "paper", "birds", "bees", "cats", "snow", "sand", "moss", "rust",
)  # fmt: skip
_LANGUAGES = ("cs", "de", "en", "en", "en", "fr")
_HOSTS = tuple(f"host-{number:02}" for number in range(20))
_METRICS = ("cpu_percent", "latency_ms", "open_files")
_NAMES = ("Ottla", "Franz", "Elli", "Valli", "Milena", "Max", "Felice", "Dora", "Gregor", "Grete", "Josef", "Leni")


def pick(random_source: random.Random, count: int) -> int:
    """Return a random integer from 0 to `count` - 1. It uses only `random()` of the source."""
    return int(random_source.random() * count)


class Minutes:
    """Totals by minute and name. When the next minute begins, the totals of the last one are emitted."""

    def __init__(self, emit: Emit, row: Callable[[str, tuple[str, ...], list[int]], Row]) -> None:
        self._emit, self._row = emit, row
        self._minute = -1
        self._totals: dict[tuple[str, ...], list[int]] = {}

    def add(self, time_ms: int, name: tuple[str, ...], value: int) -> None:
        """Add a value to the count, minimum, maximum and sum of its minute and name."""
        if time_ms // MINUTE_MS != self._minute:
            self.finish()
            self._minute = time_ms // MINUTE_MS
        totals = self._totals.get(name)
        if totals is None:
            self._totals[name] = [1, value, value, value]
        else:
            totals[:] = totals[0] + 1, min(totals[1], value), max(totals[2], value), totals[3] + value

    def finish(self) -> None:
        """Emit the totals of the minute that is still open."""
        begin = iso(self._minute * MINUTE_MS)
        for name in sorted(self._totals):
            self._emit(self._row(begin, name, self._totals[name]))
        self._totals.clear()


class Clicks(Kind):
    """Generator of the clicks of visitors of a shop. A visitor clicks about ten times, leaves, and may come again."""

    null_is_poison = True

    def __init__(self, emit: Emit, rate: int, seed: int) -> None:
        self._emit, self._seed = emit, seed
        self._population = 100 * rate  # so that who comes again has been away for long
        self._visitors: list[str] = []
        self._open: dict[str, list[int]] = {}
        """First and last click, and their number, by user; the one who clicked last is at the end."""

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        del room
        self._close(time_ms - SESSION_GAP_MS)
        place, is_new = pick(random_source, _VISITORS), pick(random_source, 10) == 0
        someone = f"u{pick(random_source, self._population)}"
        if place >= len(self._visitors):
            self._visitors.append(someone)
            place = len(self._visitors) - 1
        elif is_new:
            self._visitors[place] = someone
        user = self._visitors[place]
        known = self._open.pop(user, None)
        # A pause of exactly the gap is read in two ways: nobody makes one.
        if known is not None and known[1] == time_ms - SESSION_GAP_MS:
            self._give_out(user, known)
            user, known = f"{user}-{number}", None
        first, _, count = known or (time_ms, time_ms, 0)
        self._open[user] = [first, time_ms, count + 1]
        page, device = _PAGES[pick(random_source, len(_PAGES))], _DEVICES[pick(random_source, len(_DEVICES))]
        value = {"id": f"c{self._seed}-{number}", "user": user, "page": page, "device": device, "time": iso(time_ms)}
        return (Event(user, value),)

    def closing(self, time_ms: int) -> Event | None:
        value = {"id": "end", "user": "nobody", "page": "/", "device": "none", "time": iso(time_ms)}
        return Event("nobody", value)

    def finish(self) -> None:
        for user, session in self._open.items():
            self._give_out(user, session)
        self._open.clear()

    def _close(self, before_ms: int) -> None:
        while self._open:
            user = next(iter(self._open))
            if self._open[user][1] >= before_ms:
                return
            self._give_out(user, self._open.pop(user))

    def _give_out(self, user: str, session: list[int]) -> None:
        first, last, count = session
        self._emit({"user": user, "first": iso(first), "last": iso(last), "clicks": count})


class Posts(Kind):
    """Generator of short posts with one to three tags; some tags are much more frequent than others."""

    null_is_poison = True

    def __init__(self, emit: Emit, rate: int, seed: int) -> None:
        del rate
        self._seed = seed
        self._minutes = Minutes(emit, lambda begin, name, totals: {"minute": begin, "tag": name[0], "posts": totals[0]})

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        del room
        tags = sorted({_common(random_source, _TAGS) for _ in range(1 + pick(random_source, 3))})
        for tag in tags:
            self._minutes.add(time_ms, (tag,), 1)
        author = f"a{pick(random_source, 500)}"
        words = [_TAGS[pick(random_source, len(_TAGS))] for _ in range(4 + pick(random_source, 12))]
        value = {
            "id": f"p{self._seed}-{number}",
            "author": author,
            "text": " ".join(words),
            "tags": tags,
            "lang": _LANGUAGES[pick(random_source, len(_LANGUAGES))],
            "time": iso(time_ms),
        }
        return (Event(author, value),)

    def closing(self, time_ms: int) -> Event | None:
        value = {"id": "end", "author": "nobody", "text": "", "tags": [], "lang": "en", "time": iso(time_ms)}
        return Event("nobody", value)

    def finish(self) -> None:
        self._minutes.finish()


def _common(random_source: random.Random, names: Sequence[str]) -> str:
    """Choose a name; the first names are chosen more often."""
    return names[min(pick(random_source, len(names)), pick(random_source, len(names)))]


class Metrics(Kind):
    """Generator of the metrics of twenty hosts. The load of the hosts rises and falls."""

    null_is_poison = True

    def __init__(self, emit: Emit, rate: int, seed: int) -> None:
        del rate
        self._seed = seed
        self._minutes = Minutes(emit, _metric_row)
        self._load = dict.fromkeys(_HOSTS, 30)

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        del room
        host, metric = _HOSTS[pick(random_source, len(_HOSTS))], _METRICS[pick(random_source, len(_METRICS))]
        load = self._load[host] = min(100, max(0, self._load[host] + pick(random_source, 31) - 15))
        noise = pick(random_source, 20)
        reading = {"cpu_percent": load, "latency_ms": 5 + load * load // 50 + noise, "open_files": 100 + 3 * noise}
        self._minutes.add(time_ms, (host, metric), reading[metric])
        return (Event(host, _reading(f"m{self._seed}-{number}", host, metric, reading[metric], time_ms)),)

    def closing(self, time_ms: int) -> Event | None:
        return Event("nobody", _reading("end", "nobody", "none", 0, time_ms))

    def finish(self) -> None:
        self._minutes.finish()


def _reading(identity: str, host: str, metric: str, value: int, time_ms: int) -> Row:
    return {"id": identity, "host": host, "metric": metric, "value": value, "time": iso(time_ms)}


def _metric_row(begin: str, name: tuple[str, ...], totals: list[int]) -> Row:
    host, metric = name
    count, least, most, total = totals
    return {"minute": begin, "host": host, "metric": metric, "count": count, "min": least, "max": most, "sum": total}


class Changes(Kind):
    """Generator of changes to a table of accounts, in Debezium's envelope.

    Operations are c, u and d; a tombstone follows each d. Ids are never reused. `source.lsn` rises: for each row, the
    change with the highest lsn counts, even if others arrive later. Existing rows come first: operation r, all with the
    same lsn.
    """

    null_is_poison = False

    def __init__(self, emit: Emit, rate: int, seed: int, snapshot: int = 0) -> None:
        """`snapshot`: number of rows that existed before the changes."""
        del rate, seed
        self._emit, self._snapshot = emit, snapshot
        self._rows: list[Row] = []
        self._next_id = 1

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        what, place = pick(random_source, 10), pick(random_source, len(self._rows) or 1)
        amount = pick(random_source, 1000)
        is_there_before = number < self._snapshot
        if is_there_before or not self._rows or (what < 3 and len(self._rows) < TABLE_ROWS_MAX):
            row: Row = {"id": self._next_id, "name": _NAMES[pick(random_source, len(_NAMES))], "balance": amount}
            self._next_id += 1
            self._rows.append(row)
            if is_there_before:
                return (_change("r", None, row, self._snapshot - 1, time_ms),)
            return (_change("c", None, row, number, time_ms),)
        row = self._rows[place]
        if what == 3 and room > 1:
            self._rows[place] = self._rows[-1]
            self._rows.pop()
            event = _change("d", row, None, number, time_ms)
            return event, Event(event.key, None)
        self._rows[place] = row | {"balance": row["balance"] + amount - 400}
        return (_change("u", row, self._rows[place], number, time_ms),)

    def closing(self, time_ms: int) -> Event | None:
        del time_ms
        return None

    def finish(self) -> None:
        for row in sorted(self._rows, key=lambda row: int(row["id"])):
            self._emit(row)


def _change(operation: str, before: Row | None, after: Row | None, number: int, time_ms: int) -> Event:
    source = {"connector": "postgresql", "db": "bank", "schema": "public", "table": "accounts", "lsn": number + 1}
    value = {"before": before, "after": after, "source": source, "op": operation, "ts_ms": time_ms}
    key = f'{{"id":{(after or before or {})["id"]}}}'
    # A tombstone follows its delete at once, as Debezium writes it.
    return Event(key, value, can_be_late=operation != "d")


KINDS: dict[str, Callable[[Emit, int, int], Kind]] = {
    "clicks": Clicks,
    "posts": Posts,
    "metrics": Metrics,
    "changes": Changes,
}
"""Makers of each kind: they take what takes the rows of the result, the records a second, and the seed, which is part of ids."""


def names() -> Iterable[str]:
    """Return the names of all kinds, in the order of the help."""
    return KINDS


# --- statements


class Stated(Kind):
    """Wrapper of the kind `changes`. It also writes each change as an SQL statement."""

    def __init__(self, changes: Kind, write: Callable[[str], object]) -> None:
        """`write` is called with one line, including the line end."""
        self.null_is_poison = changes.null_is_poison
        self._changes, self._write = changes, write

    def make(self, number: int, time_ms: int, random_source: random.Random, room: int) -> Sequence[Event]:
        events = self._changes.make(number, time_ms, random_source, room)
        for event in events:
            if event.value is not None:
                self._write(statement(event.value) + "\n")
        return events

    def closing(self, time_ms: int) -> Event | None:
        return self._changes.closing(time_ms)

    def finish(self) -> None:
        self._changes.finish()


def statement(change: Row) -> str:
    """Format a change in Debezium's envelope as an SQL statement. The generated names contain no quotes."""
    before, after = change["before"], change["after"]
    if change["op"] == "d":
        return f"DELETE FROM {TABLE} WHERE id = {before['id']};"
    if change["op"] == "u":
        return (
            f"UPDATE {TABLE} SET balance = balance + {after['balance'] - before['balance']} WHERE id = {after['id']};"
        )
    return f"INSERT INTO {TABLE} (id, name, balance) VALUES ({after['id']}, '{after['name']}', {after['balance']});"
