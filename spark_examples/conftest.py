"""A broker process that the examples' tests may kill, and one Spark session for all of them.

OTTLA_COMPAT_BOOTSTRAP=host:port runs the tests against another broker; those that kill it are skipped then. Java, Maven
or pyspark missing is a skip that pytest counts, and a failure under CI=true.
"""

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark_examples.tests import submitting
from spark_examples.tests.broker import Broker, ForeignBroker, Registry

HERE = Path(__file__).resolve().parent
FORGOTTEN_SOCKET = r"unclosed <socket.*laddr=\('0\.0\.0\.0'"

# The programs of an example import each other by their plain names.
sys.path.insert(0, str(HERE / "flights"))


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


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | ForeignBroker]:
    if bootstrap := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
        yield ForeignBroker(bootstrap)
        return
    ottla = Broker(tmp_path_factory.mktemp("broker"))
    ottla.start()
    yield ottla
    ottla.stop()


@pytest.fixture(scope="session")
def registry(broker: Broker | ForeignBroker) -> Iterator[str]:
    """The address of a schema registry."""
    process = Registry(broker.bootstrap)
    yield process.url
    process.stop()


@pytest.fixture
def killable(broker: Broker | ForeignBroker) -> Broker:
    if not isinstance(broker, Broker):
        pytest.skip("needs to kill the broker, and OTTLA_COMPAT_BOOTSTRAP names a running one")
    return broker


@pytest.fixture
def run_example(broker: Broker | ForeignBroker, tmp_path: Path) -> Callable[..., str]:
    """Runs all of an example as its README says, from a folder of its own, and returns what it prints."""
    if shutil.which("java") is None:
        pytest.skip("the command java is not on this machine (`make setup` brings it)")

    def run(name: str, *more: str, **variables: str) -> str:
        return submitting.run_example(name, broker.bootstrap, tmp_path, *more, **variables)

    return run


@pytest.fixture(scope="session")
def with_delta(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a session that has Delta; none if it is not on this machine."""
    return submitting.delta_settings(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def spark(with_delta: dict[str, str]) -> Iterator[object]:
    """One session for all examples: starting one costs more than most jobs."""
    if shutil.which("java") is None:
        pytest.skip("the command java is not on this machine (`make setup` brings it)")
    import session

    with pytest.MonkeyPatch.context() as patched:  # also for those that a test starts beside it
        for name, value in submitting.jvm_options().items():
            patched.setenv(name, value)
        try:
            with pytest.MonkeyPatch.context() as short:
                for name, value in with_delta.items():
                    short.setenv(name, value)
                    short.setattr(session, "connector", lambda: ("spark.jars", submitting.jars_of_session(session)))
                spark = session.start()
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
        yield spark
        spark.stop()
