"""Test suites of published packages that start a Kafka in a container, with `ottla.testing` in its place.

suites/<name>/suite.toml says what is run and how many tests pass at least; no test fails but those left out there. The seconds that
each takes are printed and are in docs/testing-strangers.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from compat_tests.ecosystem.programs import python_of

SUITES = Path(__file__).parent / "suites"
REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / ".cache" / "strangers"
KAFKA_PYTHON = "kafka_python"
"""The suite that `make setup` brings, for the client in this environment; the others are of `make strangers`."""
# Clients look up no IPv4 address where a machine has none but loopback.
OWN_NETWORK = 'ip link set lo up && ip link add d0 type bridge && ip address add 10.78.0.1/24 dev d0 && ip link set d0 up && exec "$@"'
LIMIT_S = 1500
TEST_LIMIT_S = 120


class Outcome(NamedTuple):
    """Tests of a suite by their ids, and what pytest printed."""

    passed: list[str]
    failed: list[str]
    printed: str


def described(name: str) -> dict[str, Any]:
    return tomllib.loads((SUITES / name / "suite.toml").read_text())


def names() -> list[str]:
    return sorted(path.parent.name for path in SUITES.glob("*/suite.toml"))


def source_of(name: str) -> Path:
    """The folder of a suite's tests."""
    suite = described(name)
    folder = SOURCES / name if name != KAFKA_PYTHON else SOURCES.with_name("suites") / name
    if not all((folder / each).exists() for each in suite["keep"]):
        how = "`make strangers` brings it" if suite["source"] == "sdist" else f"put a checkout of it into {folder}"
        pytest.skip(f"the tests of {suite['package']} {suite['version']} are not on this machine ({how})")
    return folder


def in_own_network() -> list[str]:
    """Before a command whose ports are fixed: a network namespace, if this machine allows one, so that all are free."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = ["unshare", *root, "--net", "sh", "-c", OWN_NETWORK, "sh"]
    allowed = subprocess.run([*inside, "true"], check=False, capture_output=True).returncode == 0
    return inside if allowed else []


def run_suite(python: str, name: str, folder: Path, report: Path, *tests: str) -> Outcome:
    """Run a suite, or `tests` of it, with its stand-in; its folder is left as it is."""
    suite = described(name)
    ini = folder / suite["ini"] if "ini" in suite else report.with_name("pytest.ini")
    if "ini" not in suite:
        ini.write_text("[pytest]\n")  # otherwise pytest finds that of a folder above
    paths = [REPOSITORY / "src", SUITES / name, folder, folder / "plugins"]
    command = [python, "-P", "-m", "pytest", "-q", "-c", str(ini), "--rootdir", ".", "--confcutdir", "."]
    command += ["-p", "no:cacheprovider", "-p", "stand_in", f"--timeout={TEST_LIMIT_S}", f"--junitxml={report}"]
    command += [
        *suite.get("options", ()),
        *(f"--deselect={each}" for each in suite["left_out"]),
        *(tests or suite["tests"]),
    ]
    done = subprocess.run(
        [*(in_own_network() if suite.get("own_network") else ()), *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    return read_report(report, done.stdout)


def read_report(report: Path, printed: str) -> Outcome:
    """Sort the tests of a JUnit report by their outcome; skipped ones are neither passed nor failed."""
    assert report.exists(), printed[-6000:]
    passed, failed = [], []
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        outcomes = {child.tag for child in case} & {"failure", "error", "skipped"}
        if outcomes & {"failure", "error"}:
            failed.append(test)
        elif not outcomes:
            passed.append(test)
    return Outcome(passed, failed, printed)


@pytest.mark.ecosystem
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", names())
def test_a_suite_of_others_passes(name: str, tmp_path: Path) -> None:
    python = sys.executable if name == KAFKA_PYTHON else python_of(f"suites/{name}")
    folder = source_of(name)
    begun = time.monotonic()
    outcome = run_suite(python, name, folder, tmp_path / "report.xml")
    print(f"{name}: {len(outcome.passed)} passed in {time.monotonic() - begun:.1f} s")
    assert not outcome.failed, outcome.printed[-12000:]
    assert len(outcome.passed) >= described(name)["at_least"], outcome.printed[-6000:]


SHORT = (
    "test_admin_integration.py::test_create_partitions",
    "test_consumer_integration.py::test_group",
    "test_producer_integration.py::test_transactional_producer_offsets",
)


def test_a_part_of_a_suite_passes_with_its_stand_in(tmp_path: Path) -> None:
    tests = [f"test/integration/{test}" for test in SHORT]
    outcome = run_suite(sys.executable, KAFKA_PYTHON, source_of(KAFKA_PYTHON), tmp_path / "report.xml", *tests)
    assert len(outcome.passed) == len(SHORT), outcome.printed[-6000:]


def test_each_suite_names_versions_and_reasons() -> None:
    for name in names():
        suite = described(name)
        requirements = SUITES / name / "requirements.txt"
        if name != KAFKA_PYTHON:
            assert re.search(
                rf"^{suite['package']}(\[.*\])?=={suite['version']}$", requirements.read_text(), re.MULTILINE
            )
        assert suite["at_least"] > 0 and all(suite["left_out"].values())


def test_what_ottla_needs_is_in_their_environments() -> None:
    own = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    theirs = (SUITES / "ottla.txt").read_text()
    assert {re.split("[ >;]", each)[0] for each in own} <= {re.split("[ >;]", line)[0] for line in theirs.splitlines()}
