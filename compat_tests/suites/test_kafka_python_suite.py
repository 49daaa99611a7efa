"""kafka-python's own integration tests, from its source distribution, against our broker.

`kafka_python/expected.txt` says for each of them whether it has to pass or why it is left out; a test that the file
does not know (a newer kafka-python) fails here, so that the list is kept. Against four workers some tests are run here, and
all by `make proofs`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compat_tests.support.brokers import free_port
from compat_tests.support.workers import WorkersProcess

HERE = Path(__file__).parent / "kafka_python"
REPOSITORY = Path(__file__).parents[2]
SUITE = REPOSITORY / ".cache" / "suites" / "kafka_python"

pytestmark = pytest.mark.timeout(900)


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
        "PYTHONPATH": os.pathsep.join(map(str, [suite / "plugins", REPOSITORY])),
    }
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "log_level=INFO"]
    command += ["-p", "compat_tests.support.asking_again"]
    try:
        done = subprocess.run(
            [*command, *arguments], cwd=suite, env=environment, capture_output=True, text=True, timeout=840, check=False
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"the suite did not end:\n{(error.stdout or b'').decode()[-6000:]}")
    return done.stdout + done.stderr


def test_every_test_of_the_suite_is_on_the_list(suite: Path) -> None:
    listing = run_pytest(suite, "127.0.0.1:9", "--collect-only", "-qq", "test/integration")
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


def wanted(*verdicts: str) -> list[str]:
    return [test for test, verdict in expected().items() if verdict in verdicts]


def check(suite: Path, bootstrap: str, directory: Path, tests: list[str]) -> None:
    failed, printed = failures(suite, bootstrap, directory / "first.xml", tests)
    if failed:
        # A second try for a few, because its consumer may get stuck with any broker: see test_kafka_python.py.
        assert len(failed) <= 2, printed
        failed, printed = failures(suite, bootstrap, directory / "second.xml", failed)
    assert not failed, printed


def test_the_suite_passes(suite: Path, start_broker, tmp_path: Path) -> None:
    # A broker of its own, because one of its tests wants advertised.listeners to be a static setting.
    port = free_port()
    bootstrap = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}, port=port).bootstrap
    check(suite, bootstrap, tmp_path, wanted("pass", "alone"))


# --- four workers, which are one cluster to it


@pytest.fixture
def four_workers(tmp_path: Path) -> Iterator[WorkersProcess]:
    workers = WorkersProcess(
        tmp_path, {"num.workers": "4", "node.id": "0"}
    )  # which one of its tests assigns replicas to
    workers.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{workers.port}"
    yield workers.start()
    workers.stop()


SHORT = (
    "test_admin_integration.py::test_create_partitions",
    "test_admin_integration.py::test_delete_groups",
    "test_admin_integration.py::test_list_partition_offsets",
    "test_admin_integration.py::test_elect_leaders",
    "test_consumer_integration.py::test_group",
    "test_consumer_integration.py::test_kafka_consumer__offset_commit_resume",
    "test_consumer_integration.py::test_kafka_consumer_offsets_for_time",
    "test_producer_integration.py::test_end_to_end[lz4]",
    "test_producer_integration.py::test_idempotent_producer_high_throughput",
    "test_producer_integration.py::test_transactional_producer_offsets",
)


def test_a_part_of_the_suite_passes_with_four_workers(
    suite: Path, four_workers: WorkersProcess, tmp_path: Path
) -> None:
    check(suite, four_workers.bootstrap, tmp_path, [f"test/integration/{test}" for test in SHORT])


@pytest.mark.long
def test_the_suite_passes_with_four_workers(suite: Path, four_workers: WorkersProcess, tmp_path: Path) -> None:
    check(suite, four_workers.bootstrap, tmp_path, wanted("pass"))
