"""A network that can be cut where there are no namespaces (`network.py`): brokers talk to each other, and to ZooKeeper, through us.

    proxies = Proxies()
    settings = proxies.connect("broker-0", broker, zookeeper)    # what the broker needs so that all its ways lead through here
    proxies.lose("broker-0", "broker-1")                          # what 0 sends to 1 gets no further; what 1 sends to 0 arrives
    proxies.mend()

Every broker has a listener of its own for its peers, which it advertises as a port of ours, and ports of ours for the
ZooKeepers. Who comes to a peer's port is found by the process that has the socket. What is lost is kept and arrives after
`mend`, as TCP would send it again; a connection that is opened meanwhile is accepted, and nothing comes of it. Clients come to
brokers directly.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from compat_tests.support.brokers import BrokerProcess, free_port

ZOOKEEPER = "zookeeper"
HOST = "127.0.0.1"
PIECE = 65536
LOOKS_MAX = 20

Way = tuple[str, str]
"""From one place to another."""

Ends = tuple[int, int]
"""The port of who has connected, and the port that it has connected to."""


class Proxies:
    """Has the same names for places as the network of namespaces: "broker-0", "broker-1", "zookeeper"."""

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerProcess] = {}
        self._lost: set[Way] = set()
        self._changed = threading.Condition()

    def connect(self, name: str, broker: BrokerProcess, zookeepers: Iterable[tuple[str, int]]) -> dict[str, str]:
        """The settings of a broker, which has its port for clients already; `zookeepers` are host and port of each."""
        self._brokers[name] = broker
        own = (HOST, free_port())
        ours = self._listen(own, self._owner, name)
        ways = [self._listen(each, lambda _: name, ZOOKEEPER) for each in zookeepers]
        return {
            "listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://{HOST}:{own[1]}",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://{HOST}:{ours}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "zookeeper.connect": ",".join(f"{HOST}:{port}" for port in ways),
        }

    def lose(self, source: str, target: str) -> None:
        """What is sent from one place to the other, until `mend`."""
        with self._changed:
            self._lost.add((source, target))

    def mend(self) -> None:
        with self._changed:
            self._lost.clear()
            self._changed.notify_all()

    # --- what goes through --------------------------------------------------------------------------------------------

    def _listen(self, target: tuple[str, int], who: Callable[[Ends], str], name: str) -> int:
        """A port that leads to `target`, which is at the place `name`; `who` tells who has come from a port."""
        listener = socket.create_server((HOST, 0), backlog=100)
        threading.Thread(target=self._accept, args=(listener, target, who, name), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def _accept(self, listener: socket.socket, target: tuple[str, int], who: Callable[[Ends], str], name: str) -> None:
        while True:
            outer, (_, port) = listener.accept()
            ends = port, listener.getsockname()[1]
            threading.Thread(target=self._join, args=(outer, target, who, ends, name), daemon=True).start()

    def _join(
        self, outer: socket.socket, target: tuple[str, int], who: Callable[[Ends], str], ends: Ends, name: str
    ) -> None:
        source = who(ends)
        self._wait_for((source, name))
        try:
            inner = socket.create_connection(target)
        except OSError:
            outer.close()
            return
        for end in (outer, inner):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pump, args=(inner, outer, (name, source)), daemon=True).start()
        self._pump(outer, inner, (source, name))

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        """Until one of the two ends; then the other one is told, and nothing is lost of what was sent before."""
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                self._wait_for(way)
                sink.sendall(data)
        self._wait_for(way)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()

    def _wait_for(self, way: Way) -> None:
        with self._changed:
            self._changed.wait_for(lambda: way not in self._lost)

    # --- who has come -------------------------------------------------------------------------------------------------

    def _owner(self, ends: Ends) -> str:
        """Which broker's process has the near end of a connection; "" if none of them."""
        socket_name = f"socket:[{inode(ends)}]"
        return next((name for name, broker in self._brokers.items() if socket_name in _files(broker)), "")


def inode(ends: Ends) -> str:
    """The inode of the socket that has connected, as /proc tells it; "" if it is gone.

    Both ends are compared: connections to different ports may come from one port. The system tells its table in pieces
    and may leave an entry out while others go, so that one look is not enough.
    """
    near, far = (f"0100007F:{port:04X}" for port in ends)
    for _ in range(LOOKS_MAX):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1] == near and fields[2] == far:
                return fields[9]
    return ""


def _files(broker: BrokerProcess) -> set[str]:
    """What the descriptors of a process are."""
    assert broker.process is not None
    found = set()
    with contextlib.suppress(OSError):  # it has ended
        for entry in os.scandir(f"/proc/{broker.process.pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found
