"""A broker process for the examples, one that is there already, and a schema registry."""

import signal
import subprocess
import sys
from pathlib import Path

from compat_tests.support.brokers import free_port


class Broker:
    """`ottla start` on a data directory of its own; it keeps its port when it is started again."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.settings = settings
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla", "start"]
        for setting in (
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}",
            f"log.dirs={self.directory / 'data'}",
            *self.settings,
        ):
            command += ["--override", setting]
        with open(self.directory / "stderr.log", "a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._wait_until_it_listens(self.process)

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

    def _wait_until_it_listens(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "listening on" in line:
                return
        raise AssertionError("the broker did not start:\n" + (self.directory / "stderr.log").read_text())


class Registry:
    """`ottla registry` over a broker; `url` is where it answers."""

    def __init__(self, bootstrap: str) -> None:
        command = [sys.executable, "-m", "ottla", "registry", "--alone", "--listen", "127.0.0.1:0", "-b", bootstrap]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("registry at "), "the registry did not start"
        self.url = line.split()[-1]

    def stop(self) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(timeout=60)
        self._process.stdout.close()


class ForeignBroker:
    """A running broker that is not ours to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
