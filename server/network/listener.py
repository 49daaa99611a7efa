"""Listeners: bind, accept, and end connections that idle or have lost their peer.

A connection ends
    when not a byte has been read or sent for connections.max.idle.ms, whatever waits on it: a long poll, a join, a produce
        request. Kafka does the same. Bytes that the broker has not read yet do not count. If joins may wait for longer than
        that, connections.max.idle.ms has to be larger; clients close after 9 minutes by themselves.
    within a second or two after its peer has closed its side, if the awaited answer is of no use any more: a long poll or a
        join (`abandonable`), a long request that changes nothing (`reads_only`), or memory for the rest of a large frame.
        What the peer has sent and the broker has not read is dropped. A produce request is carried out and answered.
    when it keeps memory that others wait for (`memory_accounting.py`), or its place is needed (`connection_limits.py`).
"""

from __future__ import annotations

import heapq
import logging
import socket
import time
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication import system
from ottla.replication.log.faults import Fault, classify
from ottla.replication.reminders import Reminder
from ottla.replication.system import system_clock_ms
from ottla.server.dispatch.context import ANONYMOUS
from ottla.server.network.calls import Calls
from ottla.server.network.connection import Connection
from ottla.server.network.connection_limits import RETRY_SECONDS, ConnectionLimits, plain_address
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.listener_context import Complaints
from ottla.server.network.memory_accounting import STALLED_S
from ottla.server.network.readiness import Readiness
from ottla.server.network.transport import SYSTEM_DEFAULT, UNCHANGED, PlainTransport, Transport, send_buffer_bytes
from ottla.wire.decompression import give_back_idle
from ottla.wire.happenings import Note, note_nothing

if TYPE_CHECKING:
    from ottla.server.network.tls_handshakes import Handshakes
    from ottla.server.ports import BrokerParts
    from ottla.server.security.sasl_listener import SaslListener
    from ottla.server.security.tls_listener import TlsListener

logger = logging.getLogger("ottla.listener")

# Others run between two rounds: many simultaneous connections do not hold up existing ones.
ACCEPTS_PER_ROUND = 64
HOUSEKEEPING_SECONDS = 1.0
QUOTAS_SECONDS = 0.25
CONNECTIONS_PER_SLICE = 1000
KEPT_BYTES_MAX = 16 * 1024 * 1024  # of memory that was used once and is free
DELAYED_MAX = 32  # connections of peers that connect too often; their descriptors come out of the reserve
CONNECTIONS_PER_END = 50  # it takes about as long to end one as to look at so many


def bind(
    host: str, port: int, receive_buffer_bytes: int = SYSTEM_DEFAULT, *, with_others: bool = False
) -> socket.socket:
    """Return a bound, non-blocking socket. An empty host means every address, as in Kafka. Raises OSError.

    `receive_buffer_bytes` is set before the socket listens, because accepted connections inherit it for their TCP
    handshake. `with_others`: share the port with other processes of this user that also set the option (SO_REUSEPORT);
    the kernel gives each connection to one of the listening processes.
    """
    # One socket for every address: peers with IPv4 come in through it as ::ffff:a.b.c.d (`plain_address`).
    dual = not host and socket.has_dualstack_ipv6()
    sock = socket.socket(socket.AF_INET6 if dual or ":" in host else socket.AF_INET)
    try:
        # A broker that is started again gets its port although connections from before are still closing.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if with_others:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


class Encryption(NamedTuple):
    """TLS handshakes and settings of a listener."""

    handshakes: Handshakes
    listener: TlsListener


class Listener:
    """Bound address, with the connections that were accepted there."""

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        broker: BrokerParts,
        calls: Calls,
        buffers: ReceiveBuffers,
        readiness: Readiness,
        limits: ConnectionLimits,
        security_protocol: str = "PLAINTEXT",
        sasl: SaslListener | None = None,
        encryption: Encryption | None = None,
        accept: Callable[[socket.socket], Transport] = PlainTransport,
        note: Note = note_nothing,
        clock_ms: Callable[[], int] = system_clock_ms,
        accept_encrypted: Callable[[Transport], Transport] | None = None,
    ) -> None:
        """`accept` makes the transport of an accepted connection without TLS; `clock_ms` tells when requests came.

        `accept_encrypted` makes the transport of one with TLS, after its handshake; None: as the handshake made it.
        """
        config = broker.config.server
        self.name, self.security_protocol, self.sasl = name, security_protocol, sasl
        self._encryption, self.broker, self.calls = encryption, broker, calls
        self.buffers, self.readiness, self.limits = buffers, readiness, limits
        self.quotas = broker.quotas
        self.frame_bytes_max = config.socket_request_max_bytes
        self.connections: dict[Connection, None] = {}  # in the order of their arrival
        self._socket, self._accept, self._clock_ms = sock, accept, clock_ms
        self._accept_encrypted = accept_encrypted
        self._send_buffer_bytes = send_buffer_bytes(config.socket_send_buffer_bytes)
        idle_ms = config.connections_max_idle_ms
        self._idle_seconds = idle_ms / 1000 if idle_ms >= 0 else float("inf")
        self._delayed = 0
        self.complaints = Complaints(name, note)
        self._shortage, self._stalled = Reminder(), Reminder()

    @property
    def port(self) -> int:
        """Port that the socket is bound to, even if the configured port is 0."""
        port: int = self._socket.getsockname()[1]
        return port

    def close_socket(self) -> None:
        """Stop listening. Connections go on."""
        self._socket.close()

    async def run(self) -> None:
        """Accept connections until this task is cancelled; each connection is served by a task of its own."""
        # Before the first connection, which has to be judged by them.
        await self.limits.look_up_overrides()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_house)
            nursery.start_soon(self._look_up_quotas)
            with self._socket:
                while True:
                    await trio.lowlevel.wait_readable(self._socket)
                    # Asked before accepting: who finds no room waits in the backlog.
                    await self.limits.until_room(self.name)
                    await self._accept_waiting(nursery)

    async def _accept_waiting(self, nursery: trio.Nursery) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            if not self.limits.has_room(self.name):
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                await self._after_failed_accept(error)
                return
            # What was accepted waits, too: it cannot be put back.
            pause = self.limits.pause_of_listener(self.name)
            if pause:
                await self._let_wait(sock, pause)
            self._welcome(sock, address[0], nursery)

    async def _let_wait(self, sock: socket.socket, seconds: float) -> None:
        try:
            await trio.sleep(seconds)
            await self.limits.until_room(self.name)  # others were quicker
        except trio.Cancelled:
            sock.close()
            raise

    async def _after_failed_accept(self, error: OSError) -> None:
        """Pause if the system lacks descriptors or memory. Ignore other errors, which concern a single peer."""
        # The socket stays readable, so without a pause the loop would do nothing but fail.
        if classify(error) is Fault.TRANSIENT:
            self._shortage.tell(logger.error, "cannot accept on %s for now: %s", self.name, error)
            await trio.sleep(RETRY_SECONDS)

    def _welcome(self, sock: socket.socket, host: str, nursery: trio.Nursery) -> None:
        host = plain_address(host)
        # Only an accepted socket says whose it is, so who has too many is closed and not left in the backlog.
        if pause := self.limits.pause_of_host(host, self.name):
            self.complaints.note_end(
                host, "", "its address connects more often than its quota connection_creation_rate"
            )
            nursery.start_soon(self._close_later, sock, pause)
            return
        if not self.limits.admit(host, self.name):
            self.complaints.note_end(host, "", "its address has as many connections as max.connections.per.ip allows")
            sock.close()
            return
        try:
            self._prepare(sock)
        except OSError:  # the peer has gone already
            self.limits.release(host, self.name)
            sock.close()
            return
        if self._encryption is not None:
            nursery.start_soon(self._serve_encrypted, self._encryption, sock, host)
        else:
            connection = self.connection_of(self._accept(sock), host)
            nursery.start_soon(self._serve, connection, host)

    def connection_of(self, transport: Transport, host: str, principal: str = ANONYMOUS) -> Connection:
        """Return the connection of an accepted socket; somebody has to run it."""
        connection = Connection(transport, host, self, principal)
        connection.clock_ms = self._clock_ms
        self.connections[connection] = None
        return connection

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Answers are sent whole. Nagle's algorithm would keep one back until the peer has acknowledged the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel finds out that a peer's machine is gone, which never says so.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes != SYSTEM_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    async def _serve(self, connection: Connection, host: str) -> None:
        logger.debug("A connection of %s to %s begins", host, self.name)
        try:
            await connection.run()
        finally:
            logger.debug("A connection of %s to %s has ended", host, self.name)
            self.connections.pop(connection, None)
            self.limits.release(host, self.name)

    async def _close_later(self, sock: socket.socket, seconds: float) -> None:
        """Close a connection after `seconds`, because its peer connects too often: this delays the next attempt.

        If DELAYED_MAX connections wait already, the connection is closed immediately.
        """
        with sock:
            if self._delayed < DELAYED_MAX:
                self._delayed += 1
                try:
                    await trio.sleep(seconds)
                finally:
                    self._delayed -= 1

    async def _serve_encrypted(self, encryption: Encryption, sock: socket.socket, host: str) -> None:
        welcomed = transport = None
        try:
            welcomed = await encryption.handshakes.welcome(sock, host, encryption.listener)
            if welcomed is not None:
                transport = self._transport_of(welcomed.transport)
        except Exception as error:  # noqa: BLE001 - it would end all listeners, and with them the broker
            await self.complaints.report_bug(error, host, "")
        finally:
            if transport is None:
                self.limits.release(host, self.name)
        if welcomed is not None and transport is not None:
            await self._serve(self.connection_of(transport, host, welcomed.principal), host)

    def _transport_of(self, encrypted: Transport) -> Transport:
        if self._accept_encrypted is None:
            return encrypted
        try:
            return self._accept_encrypted(encrypted)
        except BaseException:  # as without a free descriptor
            encrypted.close()
            raise

    async def _keep_house(self) -> None:
        while True:
            await trio.sleep(HOUSEKEEPING_SECONDS)
            if not self.limits.is_looking_up:  # a slow resolver must not keep every listener from its housekeeping
                await self.limits.look_up_overrides()
            await self._end_idle_connections()
            await self._end_stalled()
            self._make_room()
            give_back_idle()  # what compressed batches were decompressed into
            await self._give_memory_back()

    async def _look_up_quotas(self) -> None:
        # By itself, because a slow resolver may take very long for many names.
        while True:
            await self.limits.look_up_quotas()
            await trio.sleep(QUOTAS_SECONDS)

    async def _end_idle_connections(self) -> None:
        silent_since = time.monotonic() - self._idle_seconds
        looked_at = 0
        # A copy: connections come and go while this gives way.
        for connection in list(self.connections):
            is_idle = connection.is_silent_since(silent_since)
            looked_at += 1
            # Whether a peer has left is asked of parked connections alone. Others read, and find out by themselves.
            if is_idle:
                connection.end(f"nothing came for {self._idle_seconds:g} s (connections.max.idle.ms)")
            elif connection.is_parked and connection.peer_has_left():
                connection.cancel_scope.cancel()
            if is_idle or connection.cancel_scope.cancel_called:
                looked_at += CONNECTIONS_PER_END
            if looked_at >= CONNECTIONS_PER_SLICE:
                looked_at = 0
                await trio.lowlevel.checkpoint()

    async def _end_stalled(self) -> None:
        """While others wait for memory, close connections that neither complete a frame nor read their answers."""
        # As long as no connection waits for memory, a slow peer does no harm.
        if self.buffers.memory.is_short:
            self.buffers.memory.look_again()
            too_long = time.monotonic() - STALLED_S
            for connection in [each for each in self.connections if each.stalled_since < too_long]:
                self._stalled.tell(
                    logger.warning,
                    "closing connections that keep memory others wait for: they neither finish requests nor read answers",
                )
                connection.end(
                    "it kept memory that others wait for: it neither finishes its request nor reads its answers"
                )
                await trio.lowlevel.checkpoint()

    async def _give_memory_back(self) -> None:
        """Return free memory to the system after a peak of large requests, because the C library would keep it."""
        memory = self.buffers.memory
        # Only when little is left in use, because it takes some milliseconds.
        if memory.most_used > KEPT_BYTES_MAX and memory.used < memory.most_used // 4:
            # Measured again from here, so that it is not done every second.
            memory.most_used = memory.used
            self.buffers.forget()
            await trio.to_thread.run_sync(system.give_free_memory_back)

    def _make_room(self) -> None:
        """Close connections beyond the limit; those that have been silent longest are closed first."""
        if excess := self.limits.excess(self.name):
            for connection in heapq.nsmallest(excess, self.connections, key=attrgetter("last_active")):
                connection.end(
                    "there are more connections than max.connections, and it was silent for the longest time"
                )
