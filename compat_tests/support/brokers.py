"""Broker processes for tests: what every kind has in common, and Ottla. Apache Kafka is in compat_tests/apache."""

import atexit
import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from compat_tests.support import portable, secrecy

Answer = TypeVar("Answer")

# One broker serves nearly all tests; its settings make waits short and suit kafka-python's own suite as well.
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
}


def suspend(process: subprocess.Popen[Any]) -> None:
    """SIGSTOP; returns when all threads of the process stand still, which may still answer when the signal has been sent."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class BrokerProcess:
    """A broker in a process of its own, whose data directory outlives any number of stops, kills and restarts."""

    clean_exit_status = 0
    protocol = "PLAINTEXT"
    """What its only listener speaks, unless the settings name listeners."""

    start_timeout_s = 120.0  # less than one on a machine that has nothing else to do
    stop_timeout_s = 60.0  # as long

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "log.txt"
        self.settings = SETTINGS | settings
        self.host, self.port = "127.0.0.1", 0
        self.inside: list[str] = []
        """A prefix for the command, which puts the process somewhere: `nsenter ...`. It must not fork."""

        self.secrets: set[str] = set()
        """Passwords beside those in the settings."""

        self.process: subprocess.Popen[bytes] | None = None
        self._already_logged = 0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def command(self) -> list[str]:
        """The command that runs this broker in the foreground on self.port."""
        raise NotImplementedError

    def address(self, log: str) -> tuple[str, int] | None:
        """Where it listens, once its log says so."""
        raise NotImplementedError

    def start(self) -> "BrokerProcess":
        self.launch()
        return self.wait_until_serving()

    def launch(self) -> None:
        """The first half of `start`: several brokers can start at a time."""
        self._already_logged = self.log_path.stat().st_size if self.log_path.exists() else 0
        secrecy.keep(self._all_secrets())
        self.port = self.port or free_port()
        command = [*self.inside, *self.command()]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def wait_until_serving(self) -> "BrokerProcess":
        found = wait_until(
            lambda: self.address(self.log[self._already_logged :]) or self.died(),
            "the broker listens",
            self.start_timeout_s,
        )
        assert isinstance(found, tuple), f"the broker ended with status {self.process.returncode}:\n{self.log}"
        self.host, self.port = found
        return self

    def died(self) -> bool:
        return self.process.poll() is not None

    def _all_secrets(self) -> set[str]:
        return self.secrets | secrecy.secrets_of(self.settings)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no marker is written."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, which has to end in a clean exit and an unexcited log."""
        if self.process is not None and not self.died():
            self.terminate()
            self.wait_for_clean_end()

    def terminate(self) -> None:
        """The first half of `stop`: several brokers can stop at a time."""
        self.process.send_signal(signal.SIGTERM)

    def wait_for_clean_end(self) -> None:
        try:
            status = self.process.wait(timeout=self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker did not stop within {self.stop_timeout_s} s of SIGTERM:\n{self.log[-4000:]}"
            ) from None
        assert status == self.clean_exit_status, f"exit status {status} after SIGTERM:\n{self.log[-4000:]}"
        assert "Traceback" not in self.log, f"the broker logged a traceback:\n{self.log[-8000:]}"

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers, until `resume`."""
        suspend(self.process)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """The same data directory and the same port again, after stop() or kill()."""
        self.start()


class OttlaProcess(BrokerProcess):
    def wait_for_clean_end(self) -> None:
        super().wait_for_clean_end()
        portable.check(self.log)
        log = self.log
        told = [each for each in self._all_secrets() if each in log]
        assert not told, f"the broker's log has the passwords {told}"

    def kill(self) -> None:
        super().kill()
        portable.check(self.log)

    def command(self) -> list[str]:
        overrides = {"listeners": f"{self.protocol}://{self.host}:{self.port}", "log.dirs": str(self.data_dir)}
        overrides |= self.settings
        pairs = [("--override", f"{name}={value}") for name, value in overrides.items()]
        return [sys.executable, "-m", "ottla", "start", *itertools.chain.from_iterable(pairs)]

    def address(self, log: str) -> tuple[str, int] | None:
        found = re.search(r"listening on (?:\w+://)?([\w.]+):(\d+)", log)
        return (found[1], int(found[2])) if found else None


FIRST_PORT, EPHEMERAL_PORTS = 10_000, 32_768
"""The system gives the latter and those above to whoever wants any port, as Linux has it by default."""

HELD_MAX = 200
"""Ports that are kept, each by a descriptor, of which a process often may have 1,024."""

_held: dict[int, socket.socket] = {}
"""Those that were given last."""


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popitem()[1].close()


def free_port() -> int:
    """A port that nobody has, and that nobody else is given until this process has asked for two hundred others.

    A broker that ends and starts again finds it free: no client's connection is given it meanwhile, and no other test. A
    socket of ours keeps it from them that does not listen. It keeps it from no server, since servers set SO_REUSEADDR.
    """

    def look() -> int:
        port = random.randrange(FIRST_PORT, EPHEMERAL_PORTS)
        with contextlib.suppress(OSError):
            _held[port] = _alone_at(port)
            return port
        return 0

    while len(_held) >= HELD_MAX:
        _held.pop(next(iter(_held))).close()
    port = wait_until(look, "a free port")
    if sys.platform == "linux":
        _held[port].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    else:  # there it would keep it from servers
        _held.pop(port).close()
    return port


def free_ports_in_a_row(count: int) -> int:
    """The first of so many ports that nobody has now, and that the system gives to nobody who wants any port.

    They are not kept: who starts several workers holds their ports in a way of its own.
    """

    def look() -> int:
        first = random.randrange(FIRST_PORT, EPHEMERAL_PORTS - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(_alone_at(port))
            return first
        return 0

    return wait_until(look, f"{count} free ports in a row")


def _alone_at(port: int) -> socket.socket:
    """A socket that has the port. OSError if anybody else has it, listening or not."""
    sock = socket.socket()
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


class RunningBroker:
    """A broker that somebody else runs: an address and nothing more."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.host, port = bootstrap.rsplit(":", 1)
        self.port = int(port)
        self.resident_bytes = 0


def wait_until(probe: Callable[[], Answer], what: str, timeout_s: float = 120) -> Answer:
    """The probe's first true answer."""
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)
    return answer


def serve_until(client: Any, condition: Callable[[], Answer], what: str, timeout_s: float = 120) -> Answer:
    """Let a client of librdkafka work until something is true. That its `poll` returns something only says that it has worked."""
    return wait_until(lambda: (client.poll(0.1), condition())[1], what, timeout_s)


def exists(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
