"""Run test suites of published packages with `ottla.testing` in place of their container, or with Apache Kafka beside them.

suites/<name>/suite.toml says what is run. OTTLA_STRANGERS_WITH=apache starts Apache Kafka instead, once for each broker that
`ottla.testing` would start: that is how long the same tests take with what they have today.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from compat_tests.ecosystem.programs import python_of

SUITES = Path(__file__).parent / "suites"
REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / ".cache" / "strangers"
GO_CACHES = SOURCES / "go"
KAFKA_PYTHON = "kafka_python"
"""The suite that `make setup` brings, for the client in this environment; the others are of `make strangers`."""
APACHE = "apache"
WITH = os.environ.get("OTTLA_STRANGERS_WITH") or "ottla"
# Clients look up no IPv4 address where a machine has none but loopback.
OWN_NETWORK = 'ip link set lo up && ip link add d0 type bridge && ip address add 10.78.0.1/24 dev d0 && ip link set d0 up && exec "$@"'
LIMIT_S = 1500
TEST_LIMIT_S = 120


class Outcome(NamedTuple):
    """Tests of a suite by their ids, and what was printed."""

    passed: list[str]
    failed: list[str]
    skipped: list[str]
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
        how = f"put a checkout of it into {folder}" if suite["source"] == "checkout" else "`make strangers` brings it"
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


def run_suite(name: str, scratch: Path, *tests: str) -> Outcome:
    """Run a suite, or `tests` of it, with its stand-in; its folder is left as it is."""
    suite, folder = described(name), source_of(name)
    run = _run_go if suite["source"] == "go" else _run_pytest
    return run(name, suite, folder, scratch, tests or suite["tests"])


def _run_pytest(name: str, suite: dict[str, Any], folder: Path, scratch: Path, tests: Sequence[str]) -> Outcome:
    python = sys.executable if name == KAFKA_PYTHON else python_of(f"suites/{name}")
    ini, report = folder / suite["ini"] if "ini" in suite else scratch / "pytest.ini", scratch / "report.xml"
    if "ini" not in suite:
        ini.write_text("[pytest]\n")  # otherwise pytest finds that of a folder above
    command = [python, "-P", "-m", "pytest", "-q", "-c", str(ini), "--rootdir", ".", "--confcutdir", "."]
    command += ["-p", "no:cacheprovider", *(("-p", "apache_kafka") if WITH == APACHE else ()), "-p", "stand_in"]
    command += [f"--timeout={TEST_LIMIT_S}", f"--junitxml={report}", *suite.get("options", ())]
    command += [*(f"--deselect={each}" for each in suite["left_out"]), *tests]
    printed = _run(suite, command, folder, [REPOSITORY / "src", SUITES / name, folder, folder / "plugins"])
    assert report.exists(), printed[max(printed.find("Fatal Python error"), 0) :][:6000]
    return _sorted_report(report, printed)


def _run_go(name: str, suite: dict[str, Any], folder: Path, _: Path, tests: Sequence[str]) -> Outcome:
    """As a person would: `ottla test -- go test`."""
    if (go := shutil.which("go", path=_path_with_go())) is None:
        pytest.skip("go is not on this machine")
    beside = [str(SUITES / "apache_kafka.py")] if WITH == APACHE else ["-m", "ottla", "test"]
    command = [sys.executable, "-P", *beside, *suite.get("options", ()), "--", "sh", str(SUITES / name / "stand_in.sh")]
    command += [go, "test", "-json", "-count=1", f"-timeout={LIMIT_S}s"]
    command += ["-skip", skip_pattern(suite["left_out"]), *tests]
    return sort_events(_run(suite, command, folder, [REPOSITORY / "src"]))


def _run(suite: dict[str, Any], command: list[str], folder: Path, paths: list[Path]) -> str:
    own = {
        "PYTHONPATH": os.pathsep.join(map(str, [*paths, SUITES, REPOSITORY])),
        "PATH": _path_with_go(),
        "GOMODCACHE": str(GO_CACHES / "modules"),
        "GOCACHE": str(GO_CACHES / "cache"),
        "OTTLA_CONTAINER_SETTINGS": json.dumps(suite.get("container", {})),
    }
    done = subprocess.run(
        [*(in_own_network() if suite.get("own_network") else ()), *command],
        cwd=folder,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout


def _path_with_go() -> str:
    """Where commands are looked for: ottla beside this Python, and Go where its own archive puts it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/local/go/bin"])


def _sorted_report(report: Path, printed: str) -> Outcome:
    """Sort the tests of a JUnit report by their outcome."""
    passed, failed, skipped = [], [], []
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = {child.tag for child in case}
        into = failed if outcomes & {"failure", "error"} else skipped if "skipped" in outcomes else passed
        into.append(f"{case.get('classname')}::{case.get('name')}")
    return Outcome(passed, failed, skipped, printed)


def sort_events(printed: str) -> Outcome:
    """Sort the tests in what `go test -json` prints; a package that was not built or that broke off has failed."""
    outcomes: dict[str, list[str]] = {"pass": [], "fail": [], "skip": []}
    lines = []
    for line in printed.splitlines(keepends=True):
        event = _event(line)
        lines.append(event.get("Output", "") if event else line)
        test, action = event.get("Test", ""), event.get("Action", "")
        if action in outcomes and "/" not in test and (test or action == "fail"):
            outcomes[action].append(f"{event['Package']}::{test}")
    return Outcome(outcomes["pass"], outcomes["fail"], outcomes["skip"], "".join(lines))


def _event(line: str) -> dict[str, str]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) and "Package" in event else {}


def skip_pattern(tests: Iterable[str]) -> str:
    """What `go test -skip` takes for exactly these tests, subtests named as `Test/sub`; one that no test matches for none."""
    return "|".join("/".join(f"^{part}$" for part in test.split("/")) for test in tests) or "^$"
