"""Registries as processes of their own, over the brokers of a test."""

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

READY_S = 60


class RegistryProcess:
    """A running `ottla registry`; `url` is where it answers."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla", "registry", "--listen", "127.0.0.1:0", "-b", bootstrap, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        takes = ((self.process.stdout, self._lines.put), (self.process.stderr, self.log.append))
        self._readers = [threading.Thread(target=_read, args=each, daemon=True) for each in takes]
        for each in self._readers:
            each.start()
        self.url = ""

    def wait(self) -> "RegistryProcess":
        """Return when it has announced itself."""
        line = self._lines.get(timeout=READY_S)
        assert line.startswith("registry at "), (line, self.log)
        self.url = line.split()[-1]
        return self

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.terminate()
        assert self.process.wait(READY_S) == 0, self.log
        self._close()

    def kill(self) -> None:
        """End it, whatever it is at."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for each in self._readers:
            each.join()


def _read(stream, take: Callable[[str], object]) -> None:
    with stream:
        for line in stream:
            take(line)


@pytest.fixture
def start_registry() -> Iterator[Callable[..., RegistryProcess]]:
    started: list[RegistryProcess] = []

    def start(bootstrap: str, *arguments: str, waits: bool = True, alone: bool = True) -> RegistryProcess:
        started.append(RegistryProcess(bootstrap, *arguments, *(["--alone"] if alone else [])))
        return started[-1].wait() if waits else started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()
