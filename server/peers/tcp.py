"""Connections to other brokers over TCP; the adapter of `replication/cluster/peers.py`.

A peer has at most one connection (`connection.py`), made with the first request and again after it was lost: TCP, then TLS
(`encryption.py`), then a login by SASL, the last two if the listener among brokers has them. The log says once that a broker
was lost, and once that it answers again. What will be so the next time as well, such as a certificate that is refused, it
says once a minute.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster.metadata_cache import BrokerEndpoint
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.reminders import Reminders
from ottla.server.network.readiness import serve_in_task
from ottla.server.peers.connection import Exchange, Exchanges, PeerConnection, PeerTransport, PlainPeerTransport, Serve
from ottla.server.security.mechanism import LoginFailed, LoginRefused, NotEncrypted
from ottla.wire.limits import FRAME_BYTES_MAX
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.config.sasl_rules import PeerLoginConfig
    from ottla.server.security.tls_listener import TlsListener


@dataclass(frozen=True, kw_only=True)
class PeerConnectionConfig:
    """Settings for connections to other brokers, taken from this broker's listener of the same name."""

    receive_buffer_bytes: int
    connect_timeout_s: float
    connect_timeout_max_s: float
    encryption: TlsListener | None = None
    """TLS of this broker's own listener of that name; None: it speaks plaintext."""
    login: PeerLoginConfig | None = None


logger = logging.getLogger("ottla.peers")

CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_MAX_S = 10.0, 30.0
CONNECT_TIMEOUT_MIN_S = 0.001
DOUBLINGS_MAX = 30
LOGIN_TIMEOUT_S = 30.0  # as long as this broker gives to those who log in here
SYSTEM_DEFAULT = -1  # Kafka's value for "do not set a size"
# Of a session's life, after which another one is begun: as early as Kafka's clients do it at the earliest.
USED_OF_SESSION = 0.85

_long_encodings = trio.CapacityLimiter(1)  # more would only contend with the event loop for the interpreter

LogIn = Callable[[Callable[[Message, int], Awaitable[Any]], str], Awaitable[int]]
"""`PeerLogin.log_in`."""

Encrypt = Callable[[socket.socket, str], Awaitable[PeerTransport]]
"""`PeerEncryption.encrypted`."""


class TcpPeers:
    """Factory of connections to other brokers; logs when a broker is lost and when it answers again."""

    def __init__(
        self,
        *,
        serve: Serve = serve_in_task,
        receive_buffer_bytes: int = SYSTEM_DEFAULT,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        connect_timeout_max_s: float = CONNECT_TIMEOUT_MAX_S,
        encrypt: Encrypt | None = None,
        log_in: LogIn | None = None,
    ) -> None:
        """Create the factory; it opens no connection.

        `receive_buffer_bytes`: value of replica.socket.receive.buffer.bytes, taken as a minimum. `encrypt`: makes each
        connection's TLS handshake; None: plaintext. `log_in`: logs in after that; None: no login is needed.
        """
        self.serve, self.receive_buffer_bytes = serve, receive_buffer_bytes
        self.frame_bytes_max, self.connect_timeout_s = frame_bytes_max, connect_timeout_s
        self.connect_timeout_max_s, self.encrypt, self.log_in = connect_timeout_max_s, encrypt, log_in
        self.exchanges = Exchanges()
        self._lost: set[int] = set()
        self._reminders = Reminders()

    def to(self, endpoint: BrokerEndpoint, *, client_id: str) -> TcpPeer:
        """Return a client of the broker at `endpoint`; its first request opens the connection."""
        return TcpPeer(self, endpoint, client_id)

    def note_lost(self, endpoint: BrokerEndpoint, reason: str, *, is_lasting: bool = False) -> None:
        """Log that a broker does not answer, unless that is logged already.

        `is_lasting`: retries will fail until an operator changes something. Then the log line is repeated now and then.
        """
        # An older connection to the same broker may go on meanwhile, so what lasts must not count as new each time.
        is_news = self._reminders.is_due(endpoint.node_id) if is_lasting else endpoint.node_id not in self._lost
        if is_news:
            self._lost.add(endpoint.node_id)
            logger.warning(
                "Broker %d at %s:%d is unavailable: %s", endpoint.node_id, endpoint.host, endpoint.port, reason
            )

    def note_answer(self, endpoint: BrokerEndpoint) -> None:
        """Record that a broker has answered; log this if it was lost."""
        # Called with every answer. As a rule no broker is lost, and the look at an empty set is all that it costs.
        if self._lost and endpoint.node_id in self._lost:
            self._lost.discard(endpoint.node_id)
            logger.info("Broker %d at %s:%d answers again", endpoint.node_id, endpoint.host, endpoint.port)


class TcpPeer:
    """Client of one broker over TCP; a lost connection is reopened by the next request."""

    def __init__(self, peers: TcpPeers, endpoint: BrokerEndpoint, client_id: str) -> None:
        self.endpoint, self._peers, self._client_id = endpoint, peers, client_id
        self._connection: PeerConnection | None = None
        self._connecting = trio.Lock()
        self._connecting_scopes: set[trio.CancelScope] = set()
        self._failures = 0  # since the last connection

    @property
    def _connect_timeout_s(self) -> float:
        """Time limit for connecting in seconds; doubles after each failure up to a maximum."""
        doubled_s = self._peers.connect_timeout_s * (1 << min(self._failures, DOUBLINGS_MAX))
        return max(min(doubled_s, self._peers.connect_timeout_max_s), CONNECT_TIMEOUT_MIN_S)

    def __repr__(self) -> str:
        return f"TcpPeer({self.endpoint.node_id} at {self.endpoint.host}:{self.endpoint.port})"

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request and return its response, as described in `Peer.ask`. Raises PeerUnavailable."""
        connection = None
        with trio.move_on_after(timeout_s) as scope:
            # Within the time limit as well: codecs may have to come from a disk that hangs.
            exchange = self._peers.exchanges.known(type(request), version)
            # Only the first request of a kind has anything to wait for.
            if exchange is None:
                exchange = await self._exchange_of(type(request), version, scope)
            body = await self._encoded(exchange, request, scope) if exchange.is_long(request) else None
            # Chosen after that: it may have ended meanwhile.
            connection = self._usable_connection() or await self._connect(scope)
            answer = await connection.ask(exchange, request, scope, body)
            self._peers.note_answer(self.endpoint)
            return answer
        # The scope has ended without an answer. Step 1: it never came
        # to a connection, for want of time or because of `aclose`.
        if connection is None:
            if trio.current_time() < scope.deadline:
                raise PeerUnavailable(f"{self!r}: closed")
            raise self._lost(f"no connection within {timeout_s:g} s")
        # Step 2: the connection has ended, and says whose fault that was. What somebody here
        # has abandoned is no news of the other broker, and the log does not call it lost.
        assert connection.closed_because is not None
        if connection.is_at_fault:
            raise self._lost(connection.closed_because, is_lasting=connection.is_refused)
        raise PeerUnavailable(f"{self!r}: {connection.closed_because}")

    async def aclose(self) -> None:
        """Close the connection; requests in flight raise PeerUnavailable."""
        # They wait on no connection yet, so the end of a connection would not wake them.
        for scope in self._connecting_scopes:
            scope.cancel()
        if self._connection is not None:
            self._connection.close("closed", is_at_fault=False)

    def _lost(self, reason: str, *, is_lasting: bool = False) -> PeerUnavailable:
        self._peers.note_lost(self.endpoint, reason, is_lasting=is_lasting)
        return PeerUnavailable(f"{self!r}: {reason}")

    def _usable_connection(self) -> PeerConnection | None:
        connection = self._connection
        if connection is None or connection.closed_because is not None:
            return None
        # Brokers hang up on idle connections. A request sent into one
        # would be lost, and its effect would be unknown.
        if connection.is_stale():
            connection.close("the broker hung up while nothing was asked", is_at_fault=False)
            return None
        if connection.has_to_be_renewed():
            connection.close("its session ends soon", is_at_fault=False)
            return None
        return connection

    async def _exchange_of(self, request_class: type[Message], version: int, scope: trio.CancelScope) -> Exchange:
        self._connecting_scopes.add(scope)
        try:
            return await self._peers.exchanges.get(request_class, version)
        finally:
            self._connecting_scopes.discard(scope)

    async def _encoded(self, exchange: Exchange, request: Message, scope: trio.CancelScope) -> bytes:
        """Encode a large request in a thread, which yields to the event loop every few milliseconds.

        Other requests may be sent meanwhile; a controller sends its requests to a broker one after the other.
        """
        # For a broker that is not there nothing is encoded, however often it is tried: those that live wait for the thread.
        if self._usable_connection() is None:
            await self._connect(scope)
        self._connecting_scopes.add(scope)
        try:
            body = await trio.to_thread.run_sync(exchange.encoded, request, limiter=_long_encodings)
            # The thread could not be called back. Of a controller that has resigned meanwhile nobody is to hear.
            await trio.lowlevel.checkpoint_if_cancelled()
            return body
        finally:
            self._connecting_scopes.discard(scope)

    async def _connect(self, scope: trio.CancelScope) -> PeerConnection:
        self._connecting_scopes.add(scope)
        try:
            # Several may ask first at the same time. They share one connection, so that their requests go out in order.
            async with self._connecting:
                # The former holder of the lock may have made one.
                connection = self._usable_connection()
                if connection is None:
                    transport = await self._transport(await self._connected_socket())
                    connection = PeerConnection(transport, self._client_id, self._peers.frame_bytes_max)
                    if self._peers.log_in is not None:
                        await self._log_in(connection, self._peers.log_in)
                    self._connection = connection
                    self._failures = 0
                return connection
        finally:
            self._connecting_scopes.discard(scope)

    async def _log_in(self, connection: PeerConnection, log_in: LogIn) -> None:
        """Log in on a new connection. Raises PeerUnavailable if that fails or takes too long."""
        error: Exception | None = None
        with trio.move_on_after(LOGIN_TIMEOUT_S) as scope:

            async def ask(request: Message, version: int) -> Any:
                return await connection.ask(await self._peers.exchanges.get(type(request), version), request, scope)

            try:
                began_s = trio.current_time()
                if lifetime_ms := await log_in(ask, self.endpoint.host):
                    connection.renew_at_s = began_s + lifetime_ms * USED_OF_SESSION / 1000
                return
            except (LoginRefused, LoginFailed) as failure:
                error = failure
            # The requester may have gone meanwhile, and no other task refers to it.
            except BaseException:
                connection.close("its login was abandoned", is_at_fault=False)
                raise
        connection.close("its login failed", is_at_fault=False)
        is_lasting = error is not None or connection.is_refused
        raise self._lost(f"cannot log in: {error or connection.closed_because}", is_lasting=is_lasting) from error

    async def _transport(self, sock: socket.socket) -> PeerTransport:
        """Return the transport for a connected socket, after TLS if `encrypt` is set; on failure close the socket."""
        if self._peers.encrypt is None:
            return PlainPeerTransport(sock, self._peers.serve)
        reason = f"no TLS handshake within {self._connect_timeout_s:g} s"
        with trio.move_on_after(self._connect_timeout_s):
            try:
                return await self._peers.encrypt(sock, self.endpoint.host)
            except (NotEncrypted, OSError) as failure:
                reason = f"no TLS connection: {failure}"
        self._failures += 1
        raise self._lost(reason, is_lasting=True)

    async def _connected_socket(self) -> socket.socket:
        host, port = self.endpoint.host, self.endpoint.port
        error: OSError = TimeoutError(f"no connection within {self._connect_timeout_s:g} s")
        with trio.move_on_after(self._connect_timeout_s):
            try:
                return await _connect_to_any(host, port, self._peers.receive_buffer_bytes)
            except OSError as failure:
                error = failure
        self._failures += 1
        raise self._lost(f"cannot connect: {error}") from error


async def _connect_to_any(host: str, port: int, receive_buffer_bytes: int) -> socket.socket:
    """Connect to a host and return the socket; its addresses are tried in order. Raises OSError if none accepts."""
    addresses = await _addresses(host, port)
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            _prepare(sock, receive_buffer_bytes)
            await _connect_to(sock, address)
        except OSError as failure:
            sock.close()
            error = failure
        # A cancelled attempt must not leave its descriptor behind.
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise error


async def _addresses(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Return a host's addresses, in the format of `socket.getaddrinfo`. Raises OSError if there are none."""
    # Without a name server and a thread, for an address. Neither this nor an ordinary name needs the tables of international
    # ones, which trio's function loads: a megabyte in each worker. As bytes, because Python has such tables, too.
    name = host.encode("ascii", "replace")
    with suppress(socket.gaierror):
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    if not host.isascii():
        return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    look_up = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True)


def _prepare(sock: socket.socket, receive_buffer_bytes: int) -> None:
    sock.setblocking(False)
    # A request goes out in one piece. With Nagle's algorithm it could wait for the acknowledgement of the one before.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The system makes a buffer as large as the traffic needs, unless a size is set.
    if receive_buffer_bytes > sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


async def _connect_to(sock: socket.socket, address: Any) -> None:
    try:
        sock.connect(address)
    except BlockingIOError:
        await trio.lowlevel.wait_writable(sock)
        # A connection that was refused makes the socket writable, too. Only this tells.
        failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure)) from None
    if sock.getsockname() == sock.getpeername():  # a port that nobody listens on, and that we were given ourselves
        raise ConnectionRefusedError("connected to itself")
