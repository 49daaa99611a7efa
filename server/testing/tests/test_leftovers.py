"""Nothing is left of a lab, however its process or its test ends: no process, port or file, and no thread in one that lives on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.tests.pytest_words import WORDS
from ottla.server.testing.world.loop import LabLoop
from ottla.server.testing.world.node import Node

ENDS = {
    "passes": "pass",
    "is interrupted": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "ends its process": "os._exit(3)",
    "forks and the child ends as pytest does": "child = os.fork(); child or sys.exit(0); os.waitpid(child, 0)",
    "takes too long": "threading.Event().wait()",
}
EXIT_CODES = {
    "passes": 0,
    "forks and the child ends as pytest does": 0,
    "is interrupted": 2,
    "is killed": -signal.SIGKILL,
    "ends its process": 3,
}

TEST = """
import os, pathlib, signal, sys, threading, time, pytest

def test_ends(kafka):
    kafka.topic("orders")
    kafka.produce("orders", "x")
    pathlib.Path({told!r}).write_text(kafka.bootstrap)
    {end}
"""


def open_sockets() -> set[str]:
    """Return what tells each socket of this process from all others. Those of earlier tests may go at any time."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return {each for each in found if each.startswith("socket:")}


def test_nothing_is_left_of_a_closed_lab():
    threads, sockets = {*threading.enumerate()}, open_sockets()
    loop = LabLoop()
    assert open_sockets() - sockets and {*threading.enumerate()} - threads
    loop.close()
    loop.close()
    assert not open_sockets() - sockets and not {*threading.enumerate()} - threads
    with pytest.raises(LabError, match="closed"):
        loop.call_sync(len, "")


def test_sockets_and_tasks_of_a_process_that_lives_on():
    with Kafka(3) as kafka:  # whoever comes first starts the thread of all
        kafka.topic("orders")
    before = open_sockets()
    for brokers in (1, 3):
        with pytest.raises(ValueError), Kafka(brokers) as kafka:
            kafka.topic("orders")
            kafka.produce("orders", "x")
            kafka.chaos(seed=1)
            raise ValueError
        tasks = kafka.loop.call_sync(lambda: len(kafka.loop.nursery.child_tasks))
        assert tasks == 0
    assert not open_sockets() - before


def test_a_child_that_lives_on_keeps_no_connection_open():
    with Kafka() as kafka:
        host, _, port = kafka.bootstrap.partition(":")
        with socket.create_connection((host, int(port))) as client:
            kafka.topic("orders")  # by then the connection is accepted
            child = os.fork()
            if not child:
                client.close()
                signal.pause()
            try:
                kafka.close()
                client.settimeout(10)
                assert client.recv(1) == b""
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((host, int(port)))
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def interrupt() -> None:
    """Interrupt the main thread as Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.parametrize("begins", ["with nothing", "as a snapshot"])
def test_nothing_is_left_of_a_kafka_whose_start_is_interrupted(begins: str, monkeypatch: pytest.MonkeyPatch):
    with Kafka(3) as kafka:
        snapshot, loop = kafka.snapshot(), kafka.loop
    start, interrupts = Node.start, iter([interrupt])

    async def start_and_wait(self: Node, *, reserved: bool = False) -> None:
        await start(self, reserved=reserved)
        if all(each.is_running for world in loop.worlds for each in world.nodes.values()):  # type: ignore[attr-defined]
            for each in interrupts:  # once, although several brokers may be the last to run
                each()
        await trio.sleep_forever()

    monkeypatch.setattr(Node, "start", start_and_wait)
    with pytest.raises(KeyboardInterrupt):
        Kafka(3) if begins == "with nothing" else Kafka.of(snapshot)
    assert not loop.worlds
    assert loop.call_sync(lambda: len(loop.nursery.child_tasks)) == 0


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_a_test_that(end: str, tmp_path: Path):
    folder, told, test = tmp_path / "tmp", tmp_path / "told", tmp_path / "test_ends.py"
    folder.mkdir()
    test.write_text(TEST.format(told=str(told), end=ENDS[end]))
    words = ["-q", *WORDS, "-o", "timeout_method=thread"]
    words += ["--timeout", "5" if end == "takes too long" else "100", str(test)]
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    # A group of its own shows whether a process is left in it.
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=tmp_path,
        start_new_session=True,
    )
    code = process.wait(90)
    assert code == EXIT_CODES.get(end, 1)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    host, _, port = told.read_text().partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert list(folder.iterdir()) == []
