"""Faults by a seed: the same seed gives the same schedule, all is mended at the end, and the fewest faults are found."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.chaos.chaos import Chaos
from ottla.server.testing.chaos.shrinking import fewest
from ottla.server.testing.kafka import Kafka, Repeat
from ottla.server.testing.tests.pytest_words import WORDS

pytest_plugins = ["pytester"]


def made_by(kafka: Kafka, seed: int | None, seconds: float = 5, **how: object) -> Chaos:
    with kafka.chaos(seed, **how) as chaos:  # type: ignore[arg-type]
        kafka.clock.advance(seconds)
    return chaos


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_same_seed_makes_the_same_faults_and_all_is_well_afterwards(brokers: int):
    with Kafka(brokers) as kafka:
        kafka.topic("orders")
        kafka.clock.freeze()
        first, second = (made_by(kafka, 7) for _ in range(2))
        kafka.clock.speed(1)
        told = [[each.text for each in chaos.happened] for chaos in (first, second)]
        length = min(map(len, told))
        assert length >= 3 and told[0][:length] == told[1][:length]
        assert [each.text for each in made_by(kafka, 8).happened][:length] != told[0][:length]
        assert all(each.is_running for each in kafka.brokers)
        kafka.reset()
        kafka.topic("orders")
        assert kafka.produce("orders", "x")[0].offset == 0


def test_only_some_faults_of_a_seed_are_made():
    with Kafka() as kafka:
        whole = {each.number: each.text for each in made_by(kafka, 7).happened}
        kafka.repeat = Repeat(7, {2, 3})
        assert {each.number: each.text for each in made_by(kafka, None).happened} == {n: whole[n] for n in (2, 3)}
        assert kafka.faults[-1].seed == 7 and "chaos(seed=7): 2 faults" in kafka.report()


def test_a_broker_that_cannot_start_again_is_told_and_the_lab_lives_on():
    with Kafka() as kafka:
        kafka.broker(0).fill_disk()
        assert any("could not be mended: " in each.text for each in made_by(kafka, 7, faults=["kill"]).happened)
        kafka.broker(0).free_disk()
        kafka.broker(0).start()
        assert kafka.produce(kafka.topic("orders"), "x")[0].offset == 0


def test_faults_that_end_in_the_middle_of_a_stop_leave_no_broker_down():
    with Kafka() as kafka:
        kafka.topic("orders")
        for seed in range(8):
            with kafka.chaos(seed, ["stop"]) as chaos:
                node = kafka.world.node(0)
                while node.is_running and node._stop is not None and not node._stop.requested.is_set():
                    time.sleep(0.001)
            assert chaos.happened and kafka.broker(0).is_running


@pytest.mark.parametrize("from_", [None, 1])
def test_faults_heal_no_isolation_of_the_test(from_: int | None):
    with Kafka(3) as kafka:
        world = kafka.world
        kafka.broker(3).isolate(from_)
        with kafka.chaos(1, ["isolate", "cut_pair"]) as chaos:
            while sum("broker 3" in each.text or "and 3" in each.text for each in chaos.happened[:-1]) < 6:
                kafka.clock.advance(0.2)
        cut = kafka.loop.call_sync(
            lambda: [(one, two) for one in (1, 2, 3) for two in (1, 2, 3) if world.is_cut(one, two)]
        )
        assert set(cut) == {(1, 3), (3, 1)} | ({(2, 3), (3, 2)} if from_ is None else set())
        assert world.is_off_tree(3) == (from_ is None)
        kafka.broker(3).heal()
        assert not world.is_cut(3, 1) and not world.is_off_tree(3)


def test_faults_start_no_broker_and_free_no_disk_of_the_test():
    with Kafka() as kafka:
        kafka.broker(0).fill_disk()
        told = made_by(kafka, 1, faults=["fill_disk"]).happened
        assert told and all(each.text.endswith("not possible: the disk is full already") for each in told)
        assert kafka.world.node(0).storage.space_left == 0
        kafka.broker(0).free_disk()
        kafka.broker(0).stop()
        told = made_by(kafka, 1, faults=["kill", "stop"]).happened
        assert told and all(each.text.endswith("not possible: broker 0 is down already") for each in told)
        assert not kafka.broker(0).is_running


def test_faults_resume_no_broker_that_the_test_has_paused():
    with Kafka(3) as kafka:
        kafka.broker(3).pause()
        with kafka.chaos(1, ["kill"]) as chaos:
            while not any("broker 3" in each.text for each in chaos.happened[:-1]):
                kafka.clock.advance(0.2)
        told = [each.text for each in chaos.happened if "broker 3" in each.text]
        assert all(each.endswith("not possible: broker 3 is paused") for each in told)
        assert kafka.world.is_paused(3)


def test_a_snapshot_is_put_back_while_faults_are_made():
    with Kafka() as kafka:
        kafka.topic("orders")
        snapshot = kafka.snapshot()
        with kafka.chaos(1, ["kill", "stop", "fill_disk"]):
            for _ in range(30):
                kafka.restore(snapshot)
        assert kafka.broker(0).is_running and kafka.topics() == {"orders": 1}


@given(st.sets(st.integers(0, 30), max_size=12), st.integers(1, 30))
def test_the_fewest_that_fail_are_found(needed: set[int], count: int):
    elements = list(range(count))
    found = fewest(elements, lambda kept: needed <= set(kept), tries_max=10_000)
    assert found == (sorted(needed) if needed <= set(elements) else None)


def test_a_failing_test_tells_its_faults_and_they_are_shrunk(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        def test_stops_hurt(kafka):
            with kafka.chaos(faults=["stop", "disconnect", "late_answer"]):
                kafka.clock.advance(5)
            assert not any("is stopped" in each.text for each in kafka.faults)

        def test_errors_hurt(kafka):
            with kafka.chaos(faults=["late_answer", "error_answer"]):
                kafka.clock.advance(5)
            assert not any("Fetch requests are answered KAFKA" in each.text for each in kafka.faults)

        def test_is_well(kafka):
            with kafka.chaos(faults=["disconnect"]):
                kafka.clock.advance(1)
        """
    )
    result = pytester.runpytest_inprocess(*WORDS, "--ottla-seed", "7", "--ottla-shrink")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*test_stops_hurt fails with 1 of * faults (--ottla-seed 7):",
            "  broker 0 is stopped, and started after *",
            "*test_errors_hurt fails with 1 of * faults (--ottla-seed 7):",
            "  the next 2 Fetch requests are answered KAFKA_STORAGE_ERROR *8?",
            "*- Ottla -*",
            "chaos(seed=7): * faults",
        ]
    )


def test_faults_that_begin_while_their_kafka_is_closed_end_alone() -> None:
    """By another thread, as two clients of the control port do. An error in their task would end all brokers."""
    with Kafka() as other:
        closed = Kafka()
        chaos = Chaos(closed, 1, ["kill"], None)  # `closed` does not know them yet
        closed.close()
        other.clock.advance(minutes=5)
        assert other.loop.is_usable and chaos._ended.is_set() and not chaos.happened


def test_nothing_is_shrunk_where_nobody_would_see_it(pytester: pytest.Pytester):
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess(*WORDS, "-n", "1", "--ottla-shrink")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*prints nothing from processes of pytest-xdist; leave out -n*"])
    assert pytester.runpytest_subprocess(*WORDS, "-n", "0", "--ottla-shrink").ret == 0
