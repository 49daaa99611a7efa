"""A way that is cut lets nothing through, each direction by itself, and what was held up arrives in the end."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.proxies import ZOOKEEPER, Proxies, inode

HERE, THERE = "broker-0", "broker-1"


class Both:
    """The two ends of a connection that leads through proxies."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        for end in (near, far):
            end.settimeout(60)

    def arrives(self, data: bytes, *, from_near: bool) -> bool:
        """Whether the other end gets something that is sent now."""
        source, target = (self.near, self.far) if from_near else (self.far, self.near)
        source.sendall(data)
        return target.recv(100) == data

    def is_held_up(self, data: bytes, *, from_near: bool) -> bool:
        """Whether the other end gets nothing for a while of what is sent now."""
        target = self.far if from_near else self.near
        target.settimeout(0.3)
        try:
            self.arrives(data, from_near=from_near)
        except TimeoutError:
            return True
        finally:
            target.settimeout(60)
        return False


@pytest.fixture
def proxies() -> Proxies:
    return Proxies()


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    """This process, as if it were a broker."""
    broker = BrokerProcess(tmp_path, {})
    broker.process = SimpleNamespace(pid=os.getpid())
    return broker


@pytest.fixture
def other(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, {})
    broker.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield broker
    broker.process.communicate()


def joined(server: socket.socket, port: int) -> Both:
    near = socket.create_connection(("127.0.0.1", port))
    server.settimeout(60)
    return Both(near, server.accept()[0])


def ports(settings: dict[str, str], name: str) -> list[int]:
    return [int(found) for found in re.findall(r"127\.0\.0\.1:(\d+)", settings[name])]


def to_zookeeper(proxies: Proxies, broker: BrokerProcess) -> Both:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = proxies.connect(HERE, broker, [server.getsockname()])
        return joined(server, ports(settings, "zookeeper.connect")[0])


def to_peer(proxies: Proxies, broker: BrokerProcess, other: BrokerProcess) -> Both:
    proxies.connect(HERE, broker, [])
    settings = proxies.connect(THERE, other, [])
    with socket.create_server(("127.0.0.1", ports(settings, "listeners")[-1])) as server:
        return joined(server, ports(settings, "advertised.listeners")[-1])


def test_one_way_is_cut_and_the_other_is_not(proxies: Proxies, broker: BrokerProcess) -> None:
    way = to_zookeeper(proxies, broker)
    assert way.arrives(b"1", from_near=True)
    assert way.arrives(b"2", from_near=False)
    proxies.lose(HERE, ZOOKEEPER)
    assert way.is_held_up(b"3", from_near=True)
    assert way.arrives(b"4", from_near=False)
    proxies.mend()
    assert way.far.recv(1) == b"3"
    proxies.lose(ZOOKEEPER, HERE)
    assert way.arrives(b"5", from_near=True)
    assert way.is_held_up(b"6", from_near=False)
    proxies.mend()
    assert way.near.recv(1) == b"6"


def test_who_comes_to_a_peer_is_known_by_its_process(
    proxies: Proxies, broker: BrokerProcess, other: BrokerProcess
) -> None:
    way = to_peer(proxies, broker, other)
    proxies.lose(HERE, "broker-2")
    proxies.lose("broker-2", THERE)
    assert way.arrives(b"1", from_near=True)
    proxies.lose(HERE, THERE)
    assert way.is_held_up(b"2", from_near=True)
    assert way.arrives(b"3", from_near=False)
    proxies.mend()
    assert way.far.recv(1) == b"2"


def test_connections_from_one_port_are_told_apart() -> None:
    with contextlib.ExitStack() as opened:
        ours, theirs = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        nears = [opened.enter_context(socket.socket()) for _ in range(2)]
        for near in nears:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            near.bind(("127.0.0.1", nears[0].getsockname()[1]))
        for near, server in zip(nears, (theirs, ours), strict=True):
            near.connect(server.getsockname())
            ends = near.getsockname()[1], server.getsockname()[1]
            assert inode(ends) == str(os.fstat(near.fileno()).st_ino)
        assert nears[0].getsockname() == nears[1].getsockname()


def test_the_end_of_a_connection_is_told(proxies: Proxies, broker: BrokerProcess) -> None:
    way = to_zookeeper(proxies, broker)
    way.far.close()
    assert way.near.recv(1) == b""


def test_nothing_comes_of_a_connection_to_where_nobody_listens(proxies: Proxies, broker: BrokerProcess) -> None:
    settings = proxies.connect(HERE, broker, [("127.0.0.1", 1)])
    with socket.create_connection(("127.0.0.1", ports(settings, "zookeeper.connect")[0]), timeout=10) as near:
        assert wait_until(lambda: near.recv(1) == b"", "it is closed")
