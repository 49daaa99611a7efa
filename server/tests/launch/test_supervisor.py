"""A supervisor and what it forks, as a process of its own."""

import errno
import os
import signal
import socket
import subprocess
import sys

import pytest

from ottla.replication import system
from ottla.server.launch.signals import ALL_STOP
from ottla.server.launch.supervisor import Report, Supervisor

pytestmark = pytest.mark.skipif(not system.SHARES_PORTS, reason="several workers need Linux")

PROGRAM = """
import logging, os, sys, time
from ottla.server.launch.running import ServiceManager
from ottla.server.launch.supervisor import Supervisor

def serve(report):
    import signal
    report.ready(pid=os.getpid())
    while True:
        report.beat()
        time.sleep(0.02)

def stand_still(report):
    report.ready(pid=os.getpid())
    time.sleep(3600)

def babble(report):
    os.write(report._descriptor, b"no JSON\\n[]\\n")
    return serve(report)

def refuse(report):
    report.problem("there is no room")
    return 1

def announce(told):
    if "ANNOUNCING" in os.environ:
        raise RuntimeError("it cannot be announced")
    print("all serve", *[each["pid"] for each in told], flush=True)

logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stderr)
programs = {name: globals()[kind] for name, kind in (each.split("=") for each in sys.argv[1:])}
supervisor = Supervisor(
    programs,
    keeper=None,
    hand_over_s=1,
    announce=announce,
    announce_again=lambda number, told: print("again", number, told["pid"], flush=True),
    manager=ServiceManager.of(os.environ),
)
print("over:", supervisor.run(), flush=True)
"""


class Running:
    """A supervisor; lines of both outputs in the order in which they were said."""

    def __init__(self, *programs: str, **environment: str) -> None:
        self.told: dict[str, str] = {}
        """The number of each process that has begun, by its name."""

        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, *programs],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )

    def line_with(self, words: str) -> str:
        """The next line with these words in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if " begins as process " in line:
                self.told[line.split()[0]] = line.split()[-1]
            if words in line:
                return line
        raise AssertionError(f"it has ended without a word of {words!r}")

    def end(self) -> str:
        """What it says after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.line_with("over:")


@pytest.fixture
def run():
    started = []

    def start(*programs: str, **environment: str) -> Running:
        started.append(Running(*programs, **environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        with each.process:  # closes its pipe and waits for it
            pass


def test_what_ends_is_started_again_and_all_end_together(run):
    supervisor = run("first=serve", "second=serve")
    _, _, first, second = supervisor.line_with("all serve").split()
    os.kill(int(first), signal.SIGKILL)
    supervisor.line_with("first has ended (signal 9, SIGKILL) and is started again")
    again = supervisor.line_with("first begins as process").split()[-1]
    assert again != first
    supervisor.line_with("first serves again")
    assert supervisor.line_with("again 0") == f"again 0 {again}\n"
    assert supervisor.end() == "over: \n"
    for pid in (again, second):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_bug_in_the_supervisor_leaves_nobody_alone(run):
    """What a worker says is no JSON, and nobody can read the announcement."""
    supervisor = run("first=babble", "second=serve", ANNOUNCING="fails")
    supervisor.line_with("bug: a process tells the supervisor b'no JSON'")
    supervisor.line_with("bug: the supervisor of the workers goes on")
    supervisor.line_with("RuntimeError: it cannot be announced")
    os.kill(int(supervisor.told["second"]), signal.SIGKILL)
    supervisor.line_with("second has ended (signal 9, SIGKILL) and is started again")
    supervisor.line_with("second serves again")
    assert supervisor.end() == "over: \n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(supervisor.told["first"]), 0)


def test_a_signal_that_is_meant_for_brokers_stops_all_in_order(run):
    supervisor = run("first=serve", "second=serve")
    _, _, first, _ = supervisor.line_with("all serve").split()
    supervisor.process.send_signal(ALL_STOP)
    assert supervisor.line_with("over:") == "over: \n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)


def test_why_a_start_fails_is_told(run):
    assert run("first=serve", "second=refuse").line_with("over:") == "over: second: there is no room\n"


def test_the_service_manager_hears_of_all_and_who_stands_still_is_ended(run, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        supervisor = run("first=serve", "second=stand_still", **environment)
        heard = manager.recv(4096)
        while b"READY=1" not in heard:
            heard = manager.recv(4096)
        supervisor.line_with("second has not answered for")
        supervisor.line_with("second has ended (signal 6, SIGABRT) and is started again")
        supervisor.end()
        while b"STOPPING=1" not in heard:
            heard = manager.recv(4096)


def test_a_process_that_cannot_be_forked_is_told_and_leaves_nothing_open(monkeypatch):
    supervisor = Supervisor({"first": lambda report: 0}, keeper=None, hand_over_s=0, announce=lambda told: None)

    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    open_before = len(os.listdir("/proc/self/fd"))
    assert supervisor.run() == "first has ended (it cannot begin: Resource temporarily unavailable)"
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_fork_that_is_refused_while_others_are_being_started_ends_those_that_were(monkeypatch):
    fork, pids = os.fork, []

    def refuse_the_second() -> int:
        pids.append(0 if len(pids) == 1 else fork())
        if not pids[-1] and len(pids) == 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return pids[-1]

    def serve(report: Report) -> int:
        signal.pause()  # SIGTERM ends it
        return 0

    names = ["first", "second", "third"]
    supervisor = Supervisor(dict.fromkeys(names, serve), keeper=None, hand_over_s=0, announce=lambda told: None)
    monkeypatch.setattr(os, "fork", refuse_the_second)
    assert supervisor.run() == "second has ended (it cannot begin: Resource temporarily unavailable)"
    for pid in (pids[0], pids[2]):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
