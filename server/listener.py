"""Listeners: bind, accept, limit the number of connections, and end those that idle or lost their peer."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import trio

from ottla.server.connection import Calls, Connection
from ottla.server.inbox import ReceiveBuffers
from ottla.server.readiness import Readiness

if TYPE_CHECKING:
    from ottla.server.broker import Broker

logger = logging.getLogger("ottla.listener")

ACCEPTS_PER_TURN = 64
HOUSEKEEPING_SECONDS = 1.0
RETRY_SECONDS = 0.2
CONNECTIONS_PER_SLICE = 1000

# socket.send.buffer.bytes and socket.receive.buffer.bytes: who leaves Kafka's defaults gets what suits this broker. More
# in flight than this falls out of the processor's caches, less needs too many wake-ups (0.32 s of CPU per GB sent, where
# the kernel's own choice needs 0.51 and 100 KiB need 0.39); for receiving the kernel's choice is the cheapest.
UNCHANGED = 102_400
SYSTEM_DEFAULT = -1
SEND_BUFFER_BYTES = 256 * 1024


def bind(host: str, port: int, receive_buffer_bytes: int = SYSTEM_DEFAULT) -> socket.socket:
    """A bound, non-blocking socket; an empty host means every address, as in Kafka. OSError if it cannot be had.

    The size of the receive buffer goes over to the connections, whose handshake depends on it.
    """
    dual = not host and socket.has_dualstack_ipv6()
    sock = socket.socket(socket.AF_INET6 if dual or ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        if receive_buffer_bytes not in (SYSTEM_DEFAULT, UNCHANGED):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class Listener:
    """One bound address and the connections that came in through it."""

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        broker: Broker,
        calls: Calls,
        buffers: ReceiveBuffers,
        readiness: Readiness,
    ) -> None:
        config = broker.config.server
        self.name = name
        self.broker = broker
        self.calls = calls
        self.buffers = buffers
        self.readiness = readiness
        self.frame_bytes_max = config.socket_request_max_bytes
        self.connections: set[Connection] = set()
        self._socket = sock
        given = config.socket_send_buffer_bytes
        self._send_buffer_bytes = SEND_BUFFER_BYTES if given == UNCHANGED else given
        self._idle_seconds = config.connections_max_idle_ms / 1000
        self._per_ip: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port that was really bound."""
        port: int = self._socket.getsockname()[1]
        return port

    async def run(self) -> None:
        """Accept until cancelled; every connection is one task of this nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_house)
            with self._socket:
                while True:
                    await trio.lowlevel.wait_readable(self._socket)
                    await self._accept_waiting(nursery)

    async def _accept_waiting(self, nursery: trio.Nursery) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                await self._after_failed_accept(error)
                return
            self._welcome(sock, address[0], nursery)

    async def _after_failed_accept(self, error: OSError) -> None:
        """Out of descriptors or memory: wait for connections to end; anything else concerns only that peer."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            logger.error(
                "cannot accept on %s: %s; waiting for connections to close (see `ulimit -n`)", self.name, error
            )
            await trio.sleep(RETRY_SECONDS)

    def _welcome(self, sock: socket.socket, host: str, nursery: trio.Nursery) -> None:
        host = host.removeprefix("::ffff:")
        limits = self.broker.config.server
        if len(self.connections) >= limits.max_connections or self._per_ip[host] >= limits.max_connections_per_ip:
            logger.warning("refusing a connection of %s: max.connections or max.connections.per.ip is reached", host)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._send_buffer_bytes != SYSTEM_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        nursery.start_soon(self._serve, Connection(sock, host, self), host)

    async def _serve(self, connection: Connection, host: str) -> None:
        self.connections.add(connection)
        self._per_ip[host] += 1
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]

    async def _keep_house(self) -> None:
        while True:
            await trio.sleep(HOUSEKEEPING_SECONDS)
            now = time.monotonic()
            for index, connection in enumerate(list(self.connections)):
                if connection.is_parked:
                    if connection.peer_has_left():
                        connection.cancel_scope.cancel()
                elif now - connection.last_active > self._idle_seconds:
                    connection.cancel_scope.cancel()
                if index % CONNECTIONS_PER_SLICE == CONNECTIONS_PER_SLICE - 1:
                    await trio.lowlevel.checkpoint()
