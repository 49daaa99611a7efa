"""kafka-python's own integration tests, from its source distribution, against our broker.

`kafka_python/expected.txt` says for each of them whether it has to pass or why it is left out; a test that the file
does not know (a newer kafka-python) fails here, so that the list is kept.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compat_tests.support.brokers import free_port

HERE = Path(__file__).parent / "kafka_python"
SUITE = Path(__file__).parents[2] / ".cache" / "suites" / "kafka_python"


@pytest.fixture(scope="module")
def suite() -> Path:
    if not (SUITE / ".ready").exists():
        pytest.skip("kafka-python's source distribution is not on this machine (`make setup` brings it)")
    return SUITE


def expected() -> dict[str, str]:
    lines = (HERE / "expected.txt").read_text().splitlines()
    verdicts = (line.split("#")[0].split() for line in lines if line.split("#")[0].strip())
    return {f"test/integration/{test}": verdict for verdict, test in verdicts}


def run_pytest(suite: Path, bootstrap: str, *arguments: str) -> str:
    environment = os.environ | {
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.4",
        "KAFKA_ROOT": str(suite),  # only has to be a folder
        "PYTHONPATH": str(suite / "plugins"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "log_level=INFO"]
    done = subprocess.run(
        [*command, *arguments], cwd=suite, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    return done.stdout + done.stderr


def test_every_test_of_the_suite_is_on_the_list(suite: Path) -> None:
    listing = run_pytest(suite, "127.0.0.1:9", "--collect-only", "test/integration")
    collected = {line for line in listing.splitlines() if line.startswith("test/integration/") and "::" in line}
    assert collected == set(expected())


def failures(suite: Path, bootstrap: str, report: Path, tests: list[str]) -> tuple[list[str], str]:
    """The tests that do not pass, and what was printed."""
    printed = run_pytest(suite, bootstrap, "--timeout=60", f"--junitxml={report}", *tests)
    assert report.exists(), printed[-6000:]
    passed = [
        f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"
        for case in ElementTree.parse(report).iter("testcase")
        if not {"failure", "error", "skipped"} & {child.tag for child in case}
    ]
    return sorted(set(tests) - set(passed)), printed[-12000:]


def test_the_suite_passes(suite: Path, start_broker, tmp_path: Path) -> None:
    # A broker of its own, because one of its tests wants advertised.listeners to be a static setting.
    port = free_port()
    bootstrap = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port=port).bootstrap
    wanted = [test for test, verdict in expected().items() if verdict == "pass"]
    failed, printed = failures(suite, bootstrap, tmp_path / "first.xml", wanted)
    if failed:
        # A second try for a few, because its consumer may get stuck with any broker: see test_kafka_python.py.
        assert len(failed) <= 2, printed
        failed, printed = failures(suite, bootstrap, tmp_path / "second.xml", failed)
    assert not failed, printed
