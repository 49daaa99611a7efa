from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.fetcher.throttle import Limit, ReplicationThrottle, ReplicationThrottles


def throttle(rate: int = 1000, *, windows: int = 11, seconds: int = 1) -> ReplicationThrottle:
    return ReplicationThrottle(
        1, limit=lambda: Limit(rate, windows, seconds), throttled_replicas=lambda topic: ("0:1", "1:2", "2:1")
    )


def test_topics_say_which_replicas_are_throttled() -> None:
    topics = {
        "some": LogConfig(leader_replication_throttled_replicas=("0:1", "1:2")),
        "all": LogConfig(leader_replication_throttled_replicas=("*",)),
        "none": LogConfig(follower_replication_throttled_replicas=("0:1",)),
    }
    throttles = ReplicationThrottles(1, config=ReplicationConfig, log_config=topics.__getitem__)
    leader, follower = throttles.leader, throttles.follower
    assert [leader.is_throttled("some", index) for index in range(3)] == [True, False, False]
    assert leader.is_throttled("all", 7)
    assert not leader.is_throttled("none", 0)
    assert follower.is_throttled("none", 0)
    assert not follower.is_throttled("none", 1)
    assert throttles.log_dirs.is_throttled("none", 5)


def test_a_burst_is_too_much_until_the_mean_is_below_the_limit_again() -> None:
    limited = throttle(1000)
    assert not limited.is_exceeded(0)
    limited.record(3000, 0)
    assert limited.is_exceeded(0)
    assert limited.is_exceeded(2999)
    assert not limited.is_exceeded(3000)


def test_the_first_window_counts_as_a_whole_one() -> None:
    limited = throttle(1000)
    limited.record(1000, 5)
    assert not limited.is_exceeded(6)
    limited.record(1, 7)
    assert limited.is_exceeded(8)


def test_what_was_moved_long_ago_is_forgotten() -> None:
    limited = throttle(10, windows=2)
    limited.record(1_000_000, 0)
    assert limited.is_exceeded(1999)
    assert not limited.is_exceeded(2000)


def test_limits_change_at_run_time() -> None:
    config = ReplicationConfig()
    throttles = ReplicationThrottles(1, config=lambda: config, log_config=lambda topic: LogConfig())
    for each in (throttles.leader, throttles.follower, throttles.log_dirs):
        each.record(5000, 0)
        assert not each.is_exceeded(0)
    config = replace(config, leader_replication_throttled_rate=4999)
    assert throttles.leader.is_exceeded(0)
    assert not throttles.follower.is_exceeded(0)
    config = replace(config, follower_replication_throttled_rate=4999)
    assert throttles.follower.is_exceeded(0)
    config = replace(config, replica_alter_log_dirs_io_max_bytes_per_second=4999)
    assert throttles.log_dirs.is_exceeded(0)


def test_a_limit_of_nothing_stops_after_the_first_bytes() -> None:
    limited = throttle(0)
    assert not limited.is_exceeded(0)
    limited.record(1, 0)
    assert limited.is_exceeded(1)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 10_000)), min_size=1, max_size=60), st.integers(100, 20_000)
)
def test_who_asks_first_keeps_to_the_limit_over_time(pieces: list[tuple[int, int]], rate: int) -> None:
    limited = throttle(rate)
    now_ms = moved = largest = 0
    for pause_ms, size in pieces:
        now_ms += pause_ms
        if not limited.is_exceeded(now_ms):
            limited.record(size, now_ms)
            moved += size
            largest = max(largest, size)
    # Silences are forgotten after eleven seconds, so the limit may have been used up once more for each window at most.
    assert moved <= rate * (now_ms / 1000 + 1) + largest * (1 + now_ms / 1000)
