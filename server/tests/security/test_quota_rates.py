"""The arithmetic of quotas, and which quota holds for whom."""

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.security.quotas import meters
from ottla.server.security.quotas.client_quotas import Charge, ClientQuotas
from ottla.server.security.quotas.entities import Entity, Limits
from ottla.server.security.quotas.meters import THROTTLE_MS_MAX, MutationMeters, Rate, RateMeters, TokenBucket, Windows

WINDOWS = Windows(11, 1000)


def test_the_first_bytes_count_over_all_windows_but_one() -> None:
    rate = Rate(WINDOWS)
    rate.record(20_000, 50_000)
    # 2000 a second over ten seconds; to be 1000 a second it takes another ten.
    assert rate.throttle_ms(1000, 50_000) == 10_000
    assert rate.throttle_ms(2000, 50_000) == 0
    assert rate.throttle_ms(1000, 50_000 + 500) == 9524 or rate.throttle_ms(1000, 50_500) == 9500


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(1e9, 0)
    assert rate.throttle_ms(1, 10_999) > 0 and rate.throttle_ms(1, 11_000) == 0


def test_a_sample_that_reaches_into_the_windows_counts_as_a_whole() -> None:
    rate = Rate(WINDOWS)
    rate.record(10_000, 0)
    rate.record(10_000, 999)
    assert rate.throttle_ms(1000, 11_900) == math.floor((20_000 / 11.9 - 1000) / 1000 * 11_900 + 0.5)


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(WINDOWS)
    rate.record(50_000, 10)
    rate.record(-50_000, 10)
    assert rate.throttle_ms(1, 10) == 0


def test_a_pause_fits_into_its_field() -> None:
    rate, bucket = Rate(WINDOWS), TokenBucket(WINDOWS)
    rate.record(1e18, 1)
    bucket.record(1e18, 1, 1)
    assert rate.throttle_ms(1, 1) == bucket.throttle_ms(1, 1) == THROTTLE_MS_MAX


def test_tokens_are_taken_and_come_back() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.record(560, 50, 1000)  # 550 fit
    assert bucket.throttle_ms(50, 1000) == 200
    assert bucket.throttle_ms(50, 1199) == 1 and bucket.throttle_ms(50, 1200) == 0
    bucket.record(1, 50, 1200)
    assert bucket.throttle_ms(50, 1200) == 20


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(-(1 << 40), 1 << 40))),
    st.floats(0.001, 1e15),
    st.integers(1, 20),
    st.integers(1, 5),
)
def test_whatever_is_used_a_pause_is_bounded(
    uses: list[tuple[int, int]], bound: float, number: int, seconds: int
) -> None:
    rate, bucket, now_ms = Rate(Windows(number, seconds * 1000)), TokenBucket(Windows(number, seconds * 1000)), 0
    for later, amount in uses:
        now_ms += later
        rate.record(amount, now_ms)
        bucket.record(amount, bound, now_ms)
        assert 0 <= rate.throttle_ms(bound, now_ms) <= THROTTLE_MS_MAX
        assert 0 <= bucket.throttle_ms(bound, now_ms) <= THROTTLE_MS_MAX
    assert len(rate._sums) <= number + 1


# ------------------------------------------------------------------ whose quota


def entity(user: Any = "", client: Any = "") -> Entity:
    return tuple((kind, name) for kind, name in (("user", user), ("client-id", client)) if name != "")


LEVELS = [
    entity("u", "c"),
    entity("u", None),
    entity("u"),
    entity(None, "c"),
    entity(None, None),
    entity(None),
    entity("", "c"),
    entity("", None),
]


@given(st.sets(st.integers(0, 7)))
def test_the_first_of_the_levels_counts(given_levels: set[int]) -> None:
    limits = Limits()
    for level in given_levels:
        limits.put(LEVELS[level], 1000.0 + level)
    bound = limits.bound(limits.sharers("u", "c"))
    assert bound == (1000.0 + min(given_levels) if given_levels else None)


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_what_was_taken_away_leaves_nothing(put: set[int], removed: set[int]) -> None:
    limits, expected = Limits(), Limits()
    for level in put:
        limits.put(LEVELS[level], 1.0)
        limits.put(LEVELS[level], 2.0)
    for level in removed:
        limits.put(LEVELS[level], None)
    for level in put - removed:
        expected.put(LEVELS[level], 2.0)
    for user in ("u", "v"):
        for client in ("c", "d", ""):
            sharers = limits.sharers(user, client)
            assert sharers == expected.sharers(user, client) and limits.bound(sharers) == expected.bound(sharers)


@pytest.mark.parametrize(
    ("levels", "sharers"),
    [
        ([0], ("u", "c")),
        ([1], ("u", "c")),
        ([2], ("u", "")),
        ([3], ("u", "c")),
        ([5], ("u", "")),
        ([6], ("", "c")),
        ([7], ("", "c")),
        ([2, 7], ("u", "")),
        ([5, 6], ("u", "")),
        ([1, 2, 6], ("u", "c")),
        ([4, 6], ("u", "c")),
        ([2, 4], ("u", "")),
    ],
)
def test_who_is_counted_together(levels: list[int], sharers: tuple[str, str]) -> None:
    limits = Limits()
    for level in levels:
        limits.put(LEVELS[level], 1.0)
    assert limits.sharers("u", "c") == sharers


# ------------------------------------------------------------------ meters


def test_a_stranger_cannot_make_meters_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "METERS_MAX", 10)
    produce = RateMeters(WINDOWS)
    produce.put(entity("", None), 1000.0)
    assert produce.record("u", "steady", 100_000, 0) > 0
    for number in range(100):
        produce.record("u", f"client-{number}", 1, number)
        assert produce.record("u", "steady", 0, number) > 0, "who is used stays"
    assert len(produce) == 10


def test_made_up_client_ids_do_not_make_a_user_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "METERS_MAX", 3)
    quotas = ClientQuotas()
    quotas.take("users/u", {"producer_byte_rate": "1"})
    quotas.take("clients/<default>", {"producer_byte_rate": "1000"})
    pause_ms = quotas.produce.record("u", "c", 100, 0)
    assert pause_ms > 0
    for number in range(10):
        quotas.produce.record("other", str(number), 1, 0)
    assert quotas.produce.record("u", "d", 100, 0) > pause_ms


def test_long_names_of_strangers_are_not_kept() -> None:
    quotas = ClientQuotas()
    quotas.take("clients/<default>", {"producer_byte_rate": "1"})
    tracemalloc.start()
    try:
        for number in range(100):
            # One character beyond Latin-1 makes all of them take more.
            quotas.produce.record("u", f"{number}\N{SNOWMAN}" + "x" * 30_000, 1, 0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 300_000
    assert len(quotas.produce) == 100
    long = "x" * 30_000
    assert quotas.produce.record("u", long, 100, 0) == quotas.produce.record("u", "short", 100, 0) > 0
    assert quotas.produce.record("u", long, 100, 0) > quotas.produce.record("u", long + "y", 100, 0)


def test_a_meter_that_nobody_used_for_an_hour_goes() -> None:
    produce = RateMeters(WINDOWS)
    produce.put(entity("", None), 1000.0)
    for client in "abc":
        produce.record("u", client, 1, 0)
    produce.record("u", "a", 1, 3_000_000)
    produce.record("u", "d", 1, 3_600_000)
    assert len(produce) == 2


def test_a_changed_quota_counts_at_once_for_what_was_used() -> None:
    produce = RateMeters(WINDOWS)
    produce.put(entity("", "c"), 1000.0)
    assert produce.record("u", "c", 20_000, 0) == 10_000
    produce.put(entity("", "c"), 4000.0)
    assert produce.record("u", "c", 0, 0) == 0
    produce.put(entity("u"), 1.0)
    assert produce.record("u", "c", 0, 0) == 0, "counted with all clients of the user from now on"
    produce.put(entity("u"), None)
    produce.put(entity("", "c"), None)
    assert not produce.is_on and len(produce) == 0


def test_strict_and_permissive_changes() -> None:
    mutations = MutationMeters(WINDOWS)
    mutations.put(entity("u"), 2.0)
    assert mutations.try_to_record("u", "c", 23, 0) == 0, "the last one may go beyond"
    assert mutations.try_to_record("u", "c", 1, 0) == 500 and mutations.record("u", "c", 1, 0) == 1000
    assert mutations.try_to_record("v", "c", 1000, 0) == 0


# ------------------------------------------------------------------ charges


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def charge(quotas: ClientQuotas, clock: Clock, **options: Any) -> Charge:
    return Charge(quotas, clock, "User:u", "c", **options)


def test_the_longer_pause_of_bytes_and_time_counts() -> None:
    quotas, clock = ClientQuotas(), Clock()
    quotas.take("users/u", {"producer_byte_rate": "1000", "request_percentage": "1.0"})
    one = charge(quotas, clock, produced_bytes=20_000)
    one.spent_ns = 200_000_000  # 2 percent of ten seconds
    assert one.is_timed and one.settle() == 10_000
    assert one.settle() == 10_000, "once"
    other = charge(quotas, clock)
    assert other.settle() == 1000, "at most a window"


def test_a_request_without_an_answer_pays_for_its_bytes_only() -> None:
    quotas, clock = ClientQuotas(), Clock()
    quotas.take("users/u", {"producer_byte_rate": "1000", "request_percentage": "0.001"})
    one = charge(quotas, clock, produced_bytes=11_000)
    one.spent_ns = 10**9
    assert one.settle(is_answered=False) == 1000
    exempt = charge(quotas, clock, is_exempt=True)
    exempt.spent_ns = 10**9
    assert exempt.settle() == 0


def test_an_empty_answer_to_a_fetch_does_not_count() -> None:
    quotas, clock = ClientQuotas(), Clock()
    quotas.take("clients/c", {"consumer_byte_rate": "1000"})
    assert charge(quotas, clock).fetched_bytes_max == 10_000
    assert charge(quotas, clock).settle_fetch(9_000) == 0
    assert charge(quotas, clock).settle_fetch(2_000) == 1000
    assert charge(quotas, clock).settle_fetch(1_000) == 0
    assert charge(quotas, clock).settle_fetch(1_000, is_given=True) == 1000
    follower = charge(quotas, clock)
    follower.exempt()
    assert (follower.fetched_bytes_max, follower.settle_fetch(10**6)) == (math.inf, 0)


def test_a_fetch_that_pauses_for_its_time_is_not_charged_for_its_bytes() -> None:
    quotas, clock = ClientQuotas(), Clock()
    quotas.take("clients/c", {"consumer_byte_rate": "1000", "request_percentage": "1"})
    one = charge(quotas, clock)
    one.spent_ns = 10**9
    assert one.settle_fetch(10_000) == 1000
    quotas.take("clients/c", {"consumer_byte_rate": "1000"})
    assert charge(quotas, clock).settle_fetch(10_000) == 0


def test_changes_of_topics_that_take_long_shorten_the_pause() -> None:
    quotas, clock = ClientQuotas(), Clock()
    quotas.take("users/u", {"controller_mutation_rate": "1"})
    one = charge(quotas, clock)
    assert one.take_mutations(13, is_strict=False)
    clock.now_ms = 500
    assert one.settle() == 1500
    strict = charge(quotas, clock)
    assert not strict.take_mutations(1, is_strict=True) and strict.settle() == 1500
    assert strict.take_mutations(1, is_strict=True), "it is over"
