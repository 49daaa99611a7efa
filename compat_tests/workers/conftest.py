"""One start of two workers for the tests of this folder that only use it, and starts of a test's own."""

import pytest
from compat_tests.support.workers import WorkersProcess


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    process = WorkersProcess(tmp_path_factory.mktemp("workers"), {"http.listener": "127.0.0.1:0"})
    process.start()
    yield process
    process.stop()


@pytest.fixture
def start_workers(tmp_path):
    """Starts workers of the test's own."""
    started = []

    def start(settings=None, kind=WorkersProcess):
        directory = tmp_path / f"workers-{len(started)}"
        directory.mkdir()
        started.append(kind(directory, settings or {}))
        return started[-1].start()

    yield start
    for process in started:
        if process.process is not None and not process.died():
            process.kill()
