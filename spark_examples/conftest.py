"""A broker process that the examples' tests may kill, and one Spark session for all of them.

OTTLA_COMPAT_BOOTSTRAP=host:port runs the tests against another broker; those that kill it are skipped then. Java, Maven
or pyspark missing is a skip that pytest counts, and a failure under CI=true.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FORGOTTEN_SOCKET = r"unclosed <socket.*laddr=\('0\.0\.0\.0'"

# The examples are scripts that import each other by their plain names.
for example in ("flights", "payments"):
    sys.path.insert(0, str(HERE / example))


def pytest_configure(config: pytest.Config) -> None:
    # Warnings about the clients' own code are not ours to mend; these come while kafka-python is being imported.
    for module in ("kafka", "importlib.resources"):
        config.addinivalue_line("filterwarnings", rf"ignore::DeprecationWarning:{re.escape(module)}.*")
    # kafka-python forgets the socket of every refused connection; some are found while later tests run.
    config.addinivalue_line("filterwarnings", rf"ignore:{FORGOTTEN_SOCKET}:ResourceWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    return _no_skips_in_ci(report, item.path)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    return _no_skips_in_ci(report, collector.path)


def _no_skips_in_ci(report, path: Path):
    if os.environ.get("CI") == "true" and report.skipped and path.is_relative_to(HERE):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, which CI does not allow: {reason}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Some are found only when pytest looks a last time."""
    warnings.filterwarnings("ignore", FORGOTTEN_SOCKET, ResourceWarning)


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
    if shutil.which("java") is None:
        pytest.skip("the command java is not on this machine (`make setup` brings it)")
    import session

    try:
        spark = session.start()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    yield spark
    spark.stop()
