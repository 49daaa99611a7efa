"""Generated data: the same bytes for a seed, and a result that a plain computation over the records finds, too."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.cli.command_line import EXIT_USAGE
from ottla.server.cli.generation.arrival import DAY_MS, DELAY_RECORDS, NULL, Arrival, Json, Shares, Written
from ottla.server.cli.generation.generate import _begin
from ottla.server.cli.generation.kinds import KINDS

BEGIN_MS = 1_767_225_600_000
Rows = list[dict[str, Any]]


def generated(kind: str, count: int, seed: int, rate: int, shares: Shares) -> tuple[Arrival, list[Written], Rows]:
    rows: Rows = []
    arrival = Arrival(KINDS[kind](rows.append, rate, seed), count, seed, BEGIN_MS, rate, shares)
    return arrival, list(arrival), rows


DIGESTS = {
    "clicks": "2301c6e1baaba5e3",
    "posts": "404e56dc71268cd1",
    "metrics": "67d2334640fb0112",
    "changes": "4cd65f73c85c5a3a",
}
"""Of 5,000 records. Whoever compares with an expected result of last year relies on them."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_bytes_everywhere(kind: str):
    _, records, rows = generated(kind, 5000, 7, 10, Shares(0.05, 0.02, 0.01))
    digest = hashlib.sha256(repr(records).encode() + json.dumps(rows).encode()).hexdigest()
    assert digest[:16] == DIGESTS[kind]
    assert records != generated(kind, 5000, 8, 10, Shares(0.05, 0.02, 0.01))[1]


# --- the result, computed from the records


def valid(records: Iterable[Written]) -> Rows:
    """Objects with a time, each once; by id or lsn."""
    found = {}
    for each in records:
        try:
            value = json.loads(each.value or b"null")
            time_text = value["time"] if "time" in value else value["ts_ms"] / 1000
            value["at"] = datetime.fromisoformat(time_text) if isinstance(time_text, str) else time_text
        except (ValueError, TypeError):
            continue
        found[value.get("id") or value["source"]["lsn"]] = value
    return sorted(found.values(), key=lambda value: value["at"])


def shown(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sessions(records: Iterable[Written]) -> Rows:
    clicks: dict[str, list[datetime]] = defaultdict(list)
    for each in valid(records):
        clicks[each["user"]].append(each["at"])
    found = []
    for user, times in clicks.items():
        session: list[datetime] = []
        for moment in (*times, None):
            if session and (moment is None or moment - session[-1] > timedelta(seconds=30)):
                first, last = shown(session[0]), shown(session[-1])
                found.append({"user": user, "first": first, "last": last, "clicks": len(session)})
                session = []
            if moment is not None:
                session.append(moment)
    return found


def minute(value: dict[str, Any]) -> str:
    return shown(value["at"].replace(second=0, microsecond=0))


def tags(records: Iterable[Written]) -> Rows:
    counts = Counter((minute(each), tag) for each in valid(records) for tag in each["tags"])
    return [{"minute": begin, "tag": tag, "posts": count} for (begin, tag), count in counts.items()]


def readings(records: Iterable[Written]) -> Rows:
    values: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for each in valid(records):
        values[minute(each), each["host"], each["metric"]].append(each["value"])
    names = ("minute", "host", "metric", "count", "min", "max", "sum")
    return [
        dict(zip(names, (*key, len(some), min(some), max(some), sum(some)), strict=True))
        for key, some in values.items()
    ]


def table(records: Iterable[Written]) -> Rows:
    last: dict[int, dict[str, Any]] = {}
    for each in sorted(valid(records), key=lambda value: value["source"]["lsn"]):
        last[(each["before"] or each["after"])["id"]] = each["after"]
    return [row for row in last.values() if row is not None]


RESULTS: dict[str, Callable[[Iterable[Written]], Rows]] = {
    "clicks": sessions,
    "posts": tags,
    "metrics": readings,
    "changes": table,
}


def in_order(rows: Rows) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(KINDS)),
    st.integers(1, 700),
    st.integers(1, 1 << 40),
    st.sampled_from((1, 10, 333, 100_000)),
    st.tuples(*[st.sampled_from((0.0, 0.05, 0.16))] * 3),
)
def test_the_result_is_what_the_records_say(kind, count, seed, rate, shares):
    arrival, records, rows = generated(kind, count, seed, rate, Shares(*shares))
    assert len(records) == count == arrival.events + arrival.doubled + arrival.tombstones + arrival.poison.total()
    assert in_order(RESULTS[kind](records)) == in_order(rows)
    assert [each.timestamp_ms for each in records] == [arrival.time_ms(position) for position in range(count)]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_are_those_that_were_asked_for(kind: str):
    arrival, records, rows = generated(kind, 20_000, 3, 10, Shares(0.05, 0.02, 0.01))
    events = arrival.events
    assert 0.04 * events < arrival.late < 0.06 * events
    assert 0.015 * events < arrival.doubled < 0.025 * events
    assert 150 < arrival.poison.total() < 250
    kinds = {*Json.poison} | (set() if kind == "changes" else {NULL})
    assert arrival.poison.keys() == kinds and max(arrival.poison.values()) - min(arrival.poison.values()) <= 1
    # What is due at one position goes one by one.
    assert 0 < arrival.lateness_ms <= 1.2 * DELAY_RECORDS * 1000 / 10
    keys = Counter(each.key for each in records)
    assert len(keys) > 15 and rows


def test_memory_is_bounded_whatever_is_late():
    held = 0
    arrival = Arrival(KINDS["clicks"](lambda row: None, 10, 1), 30_000, 1, BEGIN_MS, 10, Shares(0.25, 0.25, 0.0))
    for _ in arrival:
        held = max(held, len(arrival._held))
    assert DELAY_RECORDS / 5 < held < 2 * DELAY_RECORDS


def test_without_shares_all_is_in_order():
    arrival, records, _ = generated("metrics", 3000, 1, 10, Shares())
    assert (arrival.events, arrival.late, arrival.doubled, arrival.poison.total()) == (3000, 0, 0, 0)
    times = [json.loads(each.value or b"")["time"] for each in records]
    assert times == sorted(times)


def test_a_compacted_topic_of_changes_is_the_table():
    """The last record of each key, if none is late or doubled."""
    _, records, rows = generated("changes", 4000, 5, 10, Shares())
    last = {each.key: each.value for each in records}
    assert in_order([json.loads(value)["after"] for value in last.values() if value is not None]) == in_order(rows)
    assert sum(value is None for value in last.values()) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_one_more_record_closes_the_windows(kind: str):
    arrival, records, _ = generated(kind, 100, 1, 10, Shares())
    closing = arrival.closing()
    if kind == "changes":
        assert closing is None
    else:
        assert closing is not None and closing.timestamp_ms == BEGIN_MS + 100 * 100 + DAY_MS
        assert json.loads(closing.value or b"").keys() == json.loads(records[0].value or b"").keys()


# --- the command line


def test_a_time_is_read():
    assert _begin("2026-01-01T00:00:00Z") == _begin("2026-01-01") == _begin("2026-01-01T01:00:00+01:00") == BEGIN_MS
    assert _begin("now") > BEGIN_MS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "nonsense: must be clicks, posts, metrics or changes"),
        (["clicks", "--late", "0.6"], "0.6 is not a share from 0 to 0.5"),
        (["clicks", "--poison", "nan"], "nan is not a share"),
        (["clicks", "--rate", "100001"], "more than 100000 records a second"),
        (["clicks", "--begin", "yesterday"], "yesterday is not a time such as 2026"),
        (["clicks", "--begin", "0001-01-01"], "0001-01-01 is not a time such as 2026"),
        (["clicks", "--begin", "1700-01-01T00:00:00Z"], "is not a time"),
        (["clicks", "--begin", "-60w1"], "-60w1 is not a time such as 2026-01-01T00:00:00Z, -1h or now"),
        (["clicks", "--format", "xml"], "--format xml: must be json or avro"),
        (["clicks", "--records", "0"], "0 is not a number from 1 on"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(["generate", *words])
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
