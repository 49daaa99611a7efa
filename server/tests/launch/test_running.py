"""A process that is a broker: how its interpreter is set up, and what it tells systemd."""

from __future__ import annotations

import logging
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.server.launch.running import EXTENSION_S, INTERVAL_S, ServiceManager

YOUNG_OBJECTS_MAX = 20_000

PROGRAM = """
import gc
from ottla.server.launch.running import settle_interpreter

seen = [0]

def look(phase, about):
    if phase == "start":
        seen.append(sum(len(gc.get_objects(each)) for each in range(about["generation"] + 1)))

settle_interpreter()
gc.callbacks.append(look)
kept = [[number] for number in range(500_000)]
print(max(seen))
"""


def test_a_collection_looks_at_few_objects_however_many_there_are() -> None:
    """A thousand take up to a millisecond."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert 0 < int(told.stdout) <= YOUNG_OBJECTS_MAX


EXTEND = f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}\n"


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def all_of(sock: socket.socket) -> list[str]:
    texts = []
    while select.select([sock], [], [], 0)[0]:
        texts.append(sock.recv(4096).decode())
    return texts


def manager_of(sock: socket.socket, **environment: str) -> ServiceManager:
    manager = ServiceManager.of({"NOTIFY_SOCKET": sock.getsockname(), **environment})
    assert manager is not None
    return manager


async def test_a_start_asks_for_time_until_clients_are_served(heard: socket.socket, autojump_clock: object) -> None:
    manager = manager_of(heard)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.keep_informed)
        await trio.sleep(3.5 * INTERVAL_S)
        assert all_of(heard) == [EXTEND] * 4
        manager.serving()
        assert all_of(heard) == ["READY=1\nSTATUS=Serving clients\n"]
        await trio.sleep(100)
        assert all_of(heard) == []
        manager.stopping()
        await trio.sleep(INTERVAL_S)
        said = all_of(heard)
        assert said[0] == f"STOPPING=1\nSTATUS=Handing over and flushing\n{EXTEND}"
        assert set(said[1:]) == {EXTEND}
        nursery.cancel_scope.cancel()


async def test_a_watchdog_is_fed_twice_in_its_time(heard: socket.socket, autojump_clock: object) -> None:
    manager = manager_of(heard, WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
    manager.serving()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.keep_informed)
        await trio.sleep(14.9)
        nursery.cancel_scope.cancel()
    assert all_of(heard) == ["READY=1\nSTATUS=Serving clients\nWATCHDOG=1\n"] + ["WATCHDOG=1\n"] * 10


@pytest.mark.parametrize(
    "environment",
    [
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
        {"WATCHDOG_PID": "1"},
    ],
)
async def test_a_watchdog_of_nobody_or_of_another_process_is_not_fed(
    heard: socket.socket, environment: dict[str, str], autojump_clock: object
) -> None:
    manager = manager_of(heard, **environment)
    manager.serving()
    with trio.move_on_after(60):
        await manager.keep_informed()
    assert all_of(heard) == ["READY=1\nSTATUS=Serving clients\n"]


@pytest.mark.parametrize("address", ["", "@", "/", "relative", "vsock:2:1234"])
def test_without_a_socket_there_is_no_manager(address: str) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "5", "WATCHDOG_PID": "7", "PATH": "/bin"}
    assert ServiceManager.of(environment) is None
    assert environment == {"PATH": "/bin"}, "children would believe that they are the service"


def test_an_abstract_socket_is_heard() -> None:
    name = f"ottla-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        manager = ServiceManager.of({"NOTIFY_SOCKET": f"@{name}"})
        assert manager is not None
        manager.serving()
        assert all_of(sock) == ["READY=1\nSTATUS=Serving clients\n"]


def test_a_manager_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert manager is not None
    with caplog.at_level(logging.WARNING):
        manager.serving()
        manager.stopping()
    assert len(caplog.records) == 1


def test_a_manager_that_does_not_listen_holds_nobody_up(heard: socket.socket) -> None:
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    manager = manager_of(heard)
    for _ in range(2_000):  # the queue of a socket has room for much fewer
        manager.serving()
