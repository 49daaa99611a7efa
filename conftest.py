"""What holds for all tests, wherever they stand: their patience, their names, and which of them are run in one process."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings

FILES = 20_000

# A busy machine may be away for longer than any example takes.
settings.register_profile("thorough", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)  # of `make check`
settings.load_profile("thorough")

# Brokers keep files beside Python's own as most users' do, whatever the environment says of the one who tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files are for others to read, unless whoever makes them wants it otherwise: as with most users.
os.umask(0o022)

# Some open a thousand files at a time, which is what a shell often allows.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if 0 <= soft < FILES and (hard < 0 or hard > soft):
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard < 0 else min(FILES, hard), hard))

# Who runs them in the background of a script has Ctrl-C ignored, and all that they start would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nobody stands between the tests and their own servers, whatever proxy the environment names for others.
for name in ("no_proxy", "NO_PROXY"):
    if (others := os.environ.get(name, "")) != "*":
        os.environ[name] = ",".join(filter(None, (others, "127.0.0.1", "localhost")))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A test is named after its argument and a number where the value is bytes.

    Bytes may hold a time or a chance, as gzip's header does. Two workers of one run must call a test the same.
    """
    return argname if isinstance(val, (bytes, bytearray)) else None


def pytest_collection_finish() -> None:
    """Spare garbage collections the modules and the thousands of tests, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A clock that a fixture asked for is the test's. pytest-trio takes only one that the test names itself, and else real time passes."""
    named = getattr(item, "_fixtureinfo", None)
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, trio.abc.Clock) and named is not None and name not in named.argnames:
            item.add_marker(pytest.mark.trio(run=partial(_run_on, value)), append=False)


def _run_on(of_fixture: trio.abc.Clock, test: Any, *, clock: trio.abc.Clock | None, **options: Any) -> Any:
    return trio.run(test, clock=clock or of_fixture, **options)


WATCHED_S, WATCHED_TIMES = 0.2, 5


@pytest.fixture(scope="session", autouse=True)
def spinning_threads() -> Iterator[Callable[[], list[str]]]:
    """Return a function that names the other threads that never wait. One that a test leaves behind slows all tests after it."""
    yield _spinning_threads
    assert not (left := _spinning_threads()), f"tests have left threads behind that never wait: {left}"


def _spinning_threads() -> list[str]:
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    for _ in range(WATCHED_TIMES):
        before = [_busy_ns(each) for each in others]
        time.sleep(WATCHED_S)
        # Two of them share the interpreter's lock.
        others = [
            each
            for each, then in zip(others, before, strict=True)
            if _busy_ns(each) - then > 0.4 * WATCHED_S * 1_000_000_000
        ]
        if not others:
            break
    return [each.name for each in others]


def _busy_ns(thread: threading.Thread) -> int:
    """Time that a thread had a processor or waited for one; 0 if it has ended or if the system does not say."""
    try:
        told = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
        return int(told[0]) + int(told[1])
    except (OSError, IndexError):
        return 0


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line at the end: what was left out, and why."""
    skipped = Counter(_file_and_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        told = "; ".join(f"{count} of {file} ({reason})" for (file, reason), count in skipped.most_common())
        terminalreporter.write_line(f"{skipped.total()} skipped: {told}")


def _file_and_reason(report: Any) -> tuple[str, str]:
    reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    return report.nodeid.partition("::")[0], " ".join(reason.removeprefix("Skipped: ").split())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A process takes a file at a time, but all examples with Spark, which starts in more time than most files take."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark_examples" if nodeid.startswith("spark_examples/") else super()._split_scope(nodeid)

    return ByFile(config, log)
