"""Test suites of published packages that start a Kafka in a container, with `ottla.testing` in its place.

suites/<name>/suite.toml says what is run and how many tests pass at least; no test fails but those left out there. The seconds that
each takes are printed and are in docs/testing-strangers.md.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from pathlib import Path

import pytest
from compat_tests.ecosystem.suites_of_others import (
    APACHE,
    KAFKA_PYTHON,
    LIMIT_S,
    REPOSITORY,
    SUITES,
    WITH,
    described,
    names,
    run_suite,
    skip_pattern,
    sort_events,
)


@pytest.mark.ecosystem
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", names())
def test_a_suite_of_others_passes(name: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = run_suite(name, tmp_path)
    counts = f"{len(outcome.passed)} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped"
    print(f"{name} with {WITH}: {counts} in {time.monotonic() - begun:.1f} s")
    failed = "\n".join(outcome.failed)
    if WITH == APACHE:
        # It is here to be measured. A test that it fails is named, not judged.
        print(failed)
        assert len(outcome.passed) + len(outcome.failed) >= described(name)["at_least"], outcome.printed[-6000:]
        return
    assert not outcome.failed, failed + "\n" + outcome.printed[-12000:]
    assert len(outcome.passed) >= described(name)["at_least"], outcome.printed[-6000:]


SHORT = (
    "test_admin_integration.py::test_create_partitions",
    "test_consumer_integration.py::test_group",
    "test_producer_integration.py::test_transactional_producer_offsets",
)


def test_a_part_of_a_suite_passes_with_its_stand_in(tmp_path: Path) -> None:
    outcome = run_suite(KAFKA_PYTHON, tmp_path, *(f"test/integration/{test}" for test in SHORT))
    assert len(outcome.passed) == len(SHORT), outcome.printed[-6000:]


def test_each_suite_names_versions_and_reasons() -> None:
    for name in names():
        suite = described(name)
        requirements = SUITES / name / "requirements.txt"
        if suite["source"] != "go" and name != KAFKA_PYTHON:
            assert re.search(
                rf"^{suite['package']}(\[.*\])?=={suite['version']}$", requirements.read_text(), re.MULTILINE
            )
        assert suite["at_least"] > 0 and all(suite["left_out"].values())


def test_what_ottla_needs_is_in_their_environments() -> None:
    own = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    theirs = (SUITES / "ottla.txt").read_text()
    assert {re.split("[ >;]", each)[0] for each in own} <= {re.split("[ >;]", line)[0] for line in theirs.splitlines()}


def test_tests_in_go_are_sorted_by_their_outcome() -> None:
    def event(action: str, test: str = "", **more: str) -> str:
        return json.dumps({"Action": action, "Package": "p", **({"Test": test} if test else {}), **more})

    printed = [
        "a line of the broker",
        event("output", "TestOne", Output="=== RUN   TestOne\n"),
        event("pass", "TestOne/sub"),
        event("pass", "TestOne"),
        event("skip", "TestTwo"),
        event("fail", "TestThree"),
        event("pass"),
    ]
    outcome = sort_events("\n".join(printed))
    assert (outcome.passed, outcome.failed, outcome.skipped) == (["p::TestOne"], ["p::TestThree"], ["p::TestTwo"])
    assert outcome.printed == "a line of the broker\n=== RUN   TestOne\n"


def test_a_package_in_go_that_breaks_off_has_failed() -> None:
    assert sort_events('{"Action": "fail", "Package": "p"}\n').failed == ["p::"]


def test_tests_in_go_are_left_out_by_their_whole_names() -> None:
    assert re.search(skip_pattern(()), "TestOne") is None
    assert skip_pattern(("TestOne", "TestTwo/sub")) == "^TestOne$|^TestTwo$/^sub$"
