"""Directories to look at, and Kafka's DumpLogSegments to look with."""

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compat_tests.files import filling
from compat_tests.files.filling import GROUPS, TOPICS
from compat_tests.files.portrait import portrait
from compat_tests.support.brokers import OttlaProcess

DUMP = {"kafka_4": "org.apache.kafka.tools.DumpLogSegments", "kafka_3": "kafka.tools.DumpLogSegments"}
COMPLAINT = re.compile(r"isvalid: false|Found |mismatch|corrupt|exception|error|non-consecutive", re.IGNORECASE)
# How logging says that nobody has configured it.
LOGGING = re.compile(r"^(log4j|SLF4J):.*\n", re.MULTILINE)
# Kafka 4 says this of every segment that does not begin at offset 0, and of every compacted one.
BEGINS_LATER = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n(?!  )")
GAPS = re.compile(r"Non-consecutive offsets in .*\n(  -?\d+ is followed by \d+\n)+")


@pytest.fixture(scope="session")
def dump(java_tools) -> Callable[..., str]:
    """Runs a release's DumpLogSegments, which has to end well: `dump("kafka_4", files, "--deep-iteration")`.

    It must not complain of anything. `gaps=True` for a log that was compacted, `look=False` where records' own texts may
    contain what looks like a complaint.
    """

    def run(release: str, files: Iterable[Path], *options: str, look: bool = True, gaps: bool = False) -> str:
        named = ",".join(map(str, files))
        assert named, "there is nothing to dump"
        said = java_tools(release)(DUMP[release], "--files", named, *options)
        complaints = (GAPS if gaps else BEGINS_LATER).sub("", LOGGING.sub("", said.err))
        printed = said.out if look else ""
        assert [line for line in (printed + complaints).splitlines() if COMPLAINT.search(line)] == []
        return said.fine()

    return run


class Written(NamedTuple):
    """A data directory, and what its broker told of it."""

    data: Path
    told: dict[str, Any]


@pytest.fixture(scope="session")
def transactions(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of Transactions.java, up to its arguments. To compile it costs more than to run it."""
    *command, class_path = java
    folder = tmp_path_factory.mktemp("transactions")
    source = Path(__file__).parent / "Transactions.java"
    subprocess.run(["javac", "-cp", class_path, "-d", folder, source], check=True, timeout=240)
    return [*command, f"{folder}:{class_path}", "Transactions"]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """What Ottla fills and leaves in order. Not to be changed."""
    broker = OttlaProcess(tmp_path_factory.mktemp("ottla"), {"log.cleaner.backoff.ms": "100"})
    broker.start()
    try:
        filling.fill(broker, None)
        told = portrait((broker.host, broker.port), TOPICS, GROUPS)
    finally:
        broker.stop()
    return Written(broker.data_dir, told)
