"""Times of requests in buckets: every time has one, quantiles are near the truth, and what is told is what was counted."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.http.metrics.process import (
    EXPONENTS,
    SHARES,
    TIMES_LOOK_S,
    WINDOW_S,
    ApiTotals,
    RecentTimes,
    requests,
)
from ottla.server.dispatch.apis import Api
from ottla.server.dispatch.dispatch import (
    ALL_TIMED,
    BUCKETS,
    PER_OCTAVE,
    STANDS_FOR,
    Route,
    count,
    no_times,
    quantiles,
    shorter_than,
    upper_end,
)
from ottla.server.tests.admin.test_http_metrics import both
from ottla.wire.schema import VersionRange


@given(st.floats(0, 2.0**29))
def test_every_time_has_a_bucket_that_it_lies_in(seconds: float) -> None:
    times = no_times()
    count(times, seconds)
    index = times.index(1)
    begin = upper_end(index - 1) if index else 0.0
    assert begin - 2**-21 <= seconds <= upper_end(index)
    assert len(times) == BUCKETS


def test_buckets_are_eighths_of_octaves() -> None:
    assert upper_end(PER_OCTAVE - 1) == 2.0**-20
    assert upper_end(20 * PER_OCTAVE - 1) == 2.0**-1
    assert [upper_end(20 * PER_OCTAVE + eighth) for eighth in range(8)] == [
        0.5625,
        0.625,
        0.6875,
        0.75,
        0.8125,
        0.875,
        0.9375,
        1,
    ]


@given(st.lists(st.floats(1e-5, 100), min_size=1, max_size=200))
def test_quantiles_are_near_the_truth(seconds: list[float]) -> None:
    times, ordered = no_times(), sorted(seconds)
    for each in seconds:
        count(times, each)
    shares = [0.0, 0.5, 0.75, 0.99, 0.999, 1.0]
    found = list(quantiles(times, shares))
    assert found == sorted(found)
    for share, value in zip(shares, found, strict=True):
        true = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        assert true * 0.87 - 1e-6 <= value <= true * 1.13 + 1e-6


def test_how_many_were_shorter() -> None:
    times = no_times()
    for seconds in (0.0001, 0.3, 0.7, 3.0, 5000.0):
        count(times, seconds)
    assert shorter_than(times, [-20, -1, 0, 2, 6]) == [0, 2, 3, 4, 4]


def test_of_very_many_requests_every_sixteenth_stands_for_all() -> None:
    route = Route(Api("Fetch", 1, VersionRange(0, 0), "fetch"), lambda: None)  # type: ignore[arg-type,return-value]
    route.times = no_times()
    for _ in range(10_000):
        route.request_count += 1
        route.note_time(0.01)
    assert 10_000 - STANDS_FOR <= sum(route.times) <= 10_000 + STANDS_FOR
    assert max(route.times) == sum(route.times)
    few = Route(Api("Fetch", 1, VersionRange(0, 0), "fetch"), lambda: None)  # type: ignore[arg-type,return-value]
    few.times = no_times()
    for number in range(ALL_TIMED):
        few.request_count += 1
        few.note_time(number)
        few.note_time(1, is_answered=False)
    assert sum(few.times) == ALL_TIMED
    assert few.seconds == sum(range(ALL_TIMED)) + ALL_TIMED


def told(*seconds: float) -> dict[str, ApiTotals]:
    one = ApiTotals()
    for each in seconds:
        count(one.times, each)
    return {"Fetch": one}


def test_quantiles_are_those_of_the_last_minutes() -> None:
    def much(recent: RecentTimes, apis: dict[str, ApiTotals], now_s: float) -> int:
        return sum(recent.since(apis, now_s).get("Fetch", []))

    recent = RecentTimes(1000.0)
    assert much(recent, {}, 1000) == 0
    assert much(recent, told(1), 1000 + TIMES_LOOK_S) == 1
    assert much(recent, told(1, 1), 1000 + WINDOW_S) == 2
    # What was there at the first look is now too old.
    assert much(recent, told(1, 1, 1), 1000 + TIMES_LOOK_S + WINDOW_S) == 2
    assert much(recent, told(1, 1, 1), 1000 + 3 * WINDOW_S) == 0
    # Nobody scraped for long: since the last time.
    assert much(recent, told(1, 1, 1, 1), 1000 + 100 * WINDOW_S) == 1
    for look in range(1000):
        recent.since(told(1), 1_000_000 + look * TIMES_LOOK_S)
    assert len(recent._looks) <= WINDOW_S / TIMES_LOOK_S + 2


def test_what_is_told() -> None:
    route = SimpleNamespace(
        name="Fetch", request_count=4, request_bytes=1, response_bytes=1, seconds=1.03, errors={}, times=no_times()
    )
    for seconds in (0.01, 0.01, 0.01, 1.0):
        count(route.times, seconds)
    listener: Any = SimpleNamespace(calls=SimpleNamespace(routes=[route]), name="PLAINTEXT", connections=[])
    families = both(lambda exposition: requests([listener], RecentTimes(0.0), 1.0, exposition))
    milliseconds = {
        each.labels["quantile"]: each.value for each in families["kafka_network_requestmetrics_totaltimems"].samples
    }
    assert list(milliseconds) == list(SHARES)
    assert milliseconds["0.50"] == pytest.approx(10, rel=0.13)
    assert milliseconds["0.999"] == pytest.approx(1000, rel=0.13)
    assert families["kafka_network_requestmetrics_totaltimems_count"].samples[0].value == 4
    histogram = {each.labels.get("le", each.name): each.value for each in families["ottla_request_seconds"].samples}
    assert (
        histogram["0.015625"] == 3
        and histogram["2.0"] == histogram["+Inf"] == histogram["ottla_request_seconds_count"] == 4
    )
    assert histogram["ottla_request_seconds_sum"] == 1.03
    assert len(histogram) == len(EXPONENTS) + 3
