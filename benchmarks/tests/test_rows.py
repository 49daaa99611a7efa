"""The arithmetic of rows: ratios by round, targets, alternate order, failures that stay in their row."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.rows import Line, Metric, Row, Spread, at_least, at_most, measure, within

OTTLA, KAFKA, PEER = (SimpleNamespace(name=name) for name in ("Ottla", "Apache Kafka", "tansu"))
FAR = math.inf


def line(ottla: list[float], kafka: list[float], **metric: Any) -> Line:
    return Line("group", "row", Metric("key", "unit", **metric), "", {"Ottla": ottla, "Apache Kafka": kafka})


def test_the_ratio_is_the_median_of_the_rounds_with_the_least_and_the_greatest():
    assert line([10, 30, 80], [10, 10, 20]).ratio == Spread(3, 1, 4)


def test_a_round_that_only_one_of_them_finished_does_not_count():
    assert line([10, 30], [10]).ratio == Spread(1, 1, 1)
    assert line([], [10]).ratio is None
    assert line([1.0], [0.0]).ratio is None


@pytest.mark.parametrize(
    ("target", "ratio", "verdict"),
    [
        (at_least(1.3), 1.3, "ok"),
        (at_least(1.3), 1.29, "BEHIND"),
        (at_most(0.5), 0.5, "ok"),
        (at_most(0.5), 0.51, "BEHIND"),
        (None, 9.0, ""),
    ],
)
def test_a_target_is_a_bound_of_the_median_ratio(target, ratio, verdict):
    assert line([ratio], [1.0], target=target).verdict == verdict


def test_a_target_with_a_unit_is_a_bound_of_ottlas_own_number():
    assert line([4, 9], [1.0], target=within(10, "s")).verdict == "ok"
    assert line([4, 19], [100.0], target=within(10, "s")).verdict == "BEHIND"
    assert line([], [1.0], target=within(10, "s")).verdict == "BEHIND"
    assert str(within(10, "s")) == "<= 10 s"


def test_without_a_ratio_a_target_is_not_met():
    assert line([], [1.0], target=at_least(1)).verdict == "BEHIND"


def test_times_better_turns_costs_around():
    assert line([1, 2], [4, 4]).times_better == Spread(1 / 0.375, 2, 4)
    assert line([1, 2], [4, 4], more_is_better=True).times_better == Spread(0.375, 0.25, 0.5)


def test_rounds_alternate():
    played = []

    def run(broker: Any) -> Mapping[str, float]:
        played.append(broker.name)
        return {"key": 1.0}

    measure("group", Row("row", [OTTLA, KAFKA], run, [Metric("key", "s")], rounds=3), FAR)
    assert played == ["Ottla", "Apache Kafka", "Apache Kafka", "Ottla", "Ottla", "Apache Kafka"]


def test_a_broker_that_fails_is_asked_no_more_and_the_others_go_on():
    played = []

    def run(broker: Any) -> Mapping[str, float]:
        played.append(broker.name)
        if broker is PEER:
            raise RuntimeError("cannot do that")
        return {"key": 2.0}

    (found,) = measure("group", Row("row", [OTTLA, KAFKA, PEER], run, [Metric("key", "s")], rounds=2), FAR)
    assert played.count("tansu") == 1
    assert found.errors == {"tansu": "RuntimeError: cannot do that"}
    assert found.numbers == {"Ottla": [2.0, 2.0], "Apache Kafka": [2.0, 2.0]}
    assert found.verdict == ""


def test_a_failure_of_one_of_the_two_is_the_verdict():
    def run(broker: Any) -> Mapping[str, float]:
        raise RuntimeError("no")

    (found,) = measure("group", Row("row", [OTTLA], run, [Metric("key", "s", at_most(1))], rounds=1), FAR)
    assert found.verdict == "failed"


def test_after_the_deadline_one_round_has_to_do():
    row = Row(
        "row", [OTTLA, KAFKA], lambda broker: {"a": 1.0, "b": 2.0}, [Metric("a", "s"), Metric("b", "s")], rounds=5
    )
    found = measure("group", row, -math.inf)
    assert [each.numbers["Ottla"] for each in found] == [[1.0], [2.0]]
