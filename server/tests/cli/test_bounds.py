"""Option -o of `ottla consume`: where reading begins and ends."""

import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.server.cli.client.output import UsageError
from ottla.server.cli.records.bounds import Bounds, parse_bounds
from ottla.server.tests.cli.commanded import local_zone
from ottla.wire.tests.effort import examples

HALF_PAST_TEN = 1_795_861_800_000  # 2026-11-28T10:30Z


@pytest.fixture
def in_new_york():
    with local_zone("America/New_York"):
        yield


def test_words_and_offsets():
    for text in ("beginning", "start", "earliest", "oldest"):
        assert parse_bounds([text]) == Bounds("beginning") == parse_bounds([])
    for text in ("end", "latest", "newest"):
        assert parse_bounds([text]) == Bounds("end")
    assert parse_bounds(["5"]) == Bounds("offset", 5)
    assert parse_bounds(["-5"]) == Bounds("before_end", 5)
    assert parse_bounds(["-0"]) == Bounds("before_end", 0)
    assert parse_bounds(["stored", "latest"]) == Bounds("end", is_stored=True)


def test_times():
    assert parse_bounds(["s@7", "e@9"]) == Bounds("time", 7, 9)
    assert parse_bounds(["@1700000000000"]) == parse_bounds(["@1700000000"]) == Bounds("time", 1_700_000_000_000)
    # kcat's are always ms.
    assert parse_bounds(["s@1700000000"]) == Bounds("time", 1_700_000_000)
    for text in ("2026-11-28T10:30Z", "2026-11-28T11:30+01:00", "2026-11-28 10:30:00.000+00:00"):
        assert parse_bounds([f"@{text}", f"e@{text}"]) == Bounds("time", HALF_PAST_TEN, HALF_PAST_TEN)


@pytest.mark.usefixtures("in_new_york")
def test_a_time_without_a_zone_is_local():
    assert parse_bounds(["@2026-11-28T05:30"]) == Bounds("time", HALF_PAST_TEN)
    midnight = datetime(2026, 7, 1, 4, tzinfo=UTC)  # in summer
    assert parse_bounds(["@2026-07-01"]) == Bounds("time", int(midnight.timestamp() * 1000))


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [("-1h", 3_600_000), ("-2d12h", 216_000_000), ("-90s", 90_000), ("-1w", 604_800_000), ("-1m5ms", 60_005)],
)
def test_a_while_ago(text, ago_ms):
    before_ms = int(time.time() * 1000)
    found = parse_bounds([f"@{text}"])
    assert found.kind == "time" and before_ms <= found.number + ago_ms <= int(time.time() * 1000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be earliest, latest"),
        ("x", "must be earliest, latest"),
        ("1.5", "must be earliest, latest"),
        ("9" * 30, "must be earliest, latest"),
        ("x@1", "must be earliest, latest"),
        ("s@", "'' is no time"),
        ("@yesterday", "'yesterday' is no time"),
        ("@-1y", "'-1y' is no time"),
        ("@-1", "'-1' is no time"),
        ("@2026-02-30", "'2026-02-30' is no time"),
        ("@1960-01-01", "before 1970"),
        ("@-999999w", "before 1970"),
    ],
)
def test_what_is_no_bound(text, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        parse_bounds([text])


@settings(max_examples=examples(200), deadline=None)
@example("@-" + "9" * 12 + "w")
@example("@0001-01-01")
@example("@9999-12-31T23:59:59-23:59")
@given(st.text("@se-+:.TZ0123456789hdwm \u0663", max_size=24))
def test_any_text_is_a_bound_or_refused(text):
    try:
        found = parse_bounds([text])
    except UsageError as error:
        assert text in str(error)
    else:
        assert found.number >= 0
