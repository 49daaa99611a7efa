"""A broker process to be measured: started on a free port and a data directory of its own, and gone afterwards."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

# Data of finished measurements goes at once, or it would still be written to the disk under the next one.
SETTINGS = {"log.segment.delete.delay.ms": "0", "num.partitions": "1"}


class Broker:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
        }
        overrides = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
        with open(self.directory / "stderr.log", "a") as errors:
            command = [*ottla_command(), "start", *overrides]
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=ordinary_environment()
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"listening on \S*?127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise RuntimeError("the broker did not start:\n" + (self.directory / "stderr.log").read_text())

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process so far, in clock ticks of usually 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def ordinary_environment() -> dict[str, str]:
    """As people have it: Python keeps what it has compiled, which some development machines forbid it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ottla_command() -> list[str]:
    """The command as it was installed beside this interpreter."""
    installed = shutil.which("ottla", path=str(Path(sys.executable).parent))
    return [installed] if installed else [sys.executable, "-m", "ottla"]


@contextlib.contextmanager
def running_broker(cpu: int | None = None) -> Iterator[Broker]:
    """A broker for as long as it is needed, on any processor or on this one."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        broker = Broker(Path(directory))
        try:
            with on_cpu(cpu) if cpu is not None else contextlib.nullcontext():
                broker.start()
            yield broker
        finally:
            broker.stop()


@contextlib.contextmanager
def on_cpu(index: int) -> Iterator[None]:
    """What is started in here runs on this processor only, if there are at least two to tell apart."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        yield
        return
    os.sched_setaffinity(0, {sorted(before)[index]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wait_until_quiet(broker: Broker, seconds: float = 0.5, patience_s: float = 20.0) -> None:
    """Returns when the broker has used less than a tenth of a processor for a while."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = broker.cpu_seconds()
        time.sleep(seconds)
        if broker.cpu_seconds() - before < seconds / 10:
            return
