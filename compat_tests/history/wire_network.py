"""Real connections for the clients of the simulation, which so can be members of real groups.

`TcpNetwork` is as much of `ottla.server.testing.simulation.network.Network` as `ottla.server.testing.client.connections.Client` uses. The clock is
that of histories.
"""

import random
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

Address = tuple[str, int]


class MonotonicClock(trio.abc.Clock):
    """Tells the time of `time.monotonic`, which the processes of a machine share."""

    def start_clock(self) -> None:
        """It goes by itself."""

    def current_time(self) -> float:
        return time.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - time.monotonic()


class TcpNetwork:
    """See the module's docstring. `brokers` by id."""

    def __init__(self, nursery: trio.Nursery, brokers: Mapping[int, Address], seed: str) -> None:
        self.agenda = self
        self.chance = random.Random(seed)
        self._nursery = nursery
        self._brokers = brokers

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Make a call at a time."""
        self._nursery.start_soon(self._call, when, call)

    async def _call(self, when: float, call: Callable[[], object]) -> None:
        await trio.sleep_until(when)
        call()

    async def connect(self, host: int, broker: int) -> "TcpSocket":
        sock = trio.socket.socket()
        try:
            await sock.connect(self._brokers[broker])
        except BaseException:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain = socket.socket(fileno=sock.detach())
        plain.setblocking(False)
        return TcpSocket(plain, self._nursery)


class TcpSocket:
    """What a `Channel` needs of a socket."""

    def __init__(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        self._socket = sock
        self._nursery = nursery
        self.recv_into = sock.recv_into

    def watch(self, step: Callable[[], Any]) -> None:
        """Call a function whenever something has arrived."""
        self._nursery.start_soon(partial(self._serve, step))

    async def _serve(self, step: Callable[[], Any]) -> None:
        while self._socket.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except trio.ClosedResourceError:
                return
            step()

    def send(self, data: bytes) -> None:
        """Requests are small, so that all of one goes at once, or the connection is given up."""
        if self._socket.send(data) < len(data):
            raise BrokenPipeError("the peer takes nothing more")

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
