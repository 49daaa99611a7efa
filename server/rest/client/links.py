"""A connection to one broker, shared by all who ask it.

The commands' blocking client opens it in a thread: TCP, TLS, login, versions. After that the event loop has it, and
requests follow each other without waiting for answers (`PeerConnection`).

A request continues if its caller is cancelled, because an unread answer would end the connection for all other callers.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import trio

from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, CLIENT_ID, Address, connect
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.client.security import Security
from ottla.server.network.readiness import WAIT_READABLE, Step
from ottla.server.peers.connection import Exchanges, PeerConnection
from ottla.server.rest.errors import Code, RestError, Unreachable
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.limits import FRAME_BYTES_MAX
from ottla.wire.schema import Message, VersionRange

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
_PEEKED_BYTES = 16


class ClientTransport:
    """Non-blocking socket, plain or TLS; implements `PeerTransport`."""

    is_refused = False

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._is_dry = False
        is_encrypted = isinstance(sock, ssl.SSLSocket)
        self.receive_into: Callable[[Any], int] = self._decrypted if is_encrypted else self._received
        self.send: Callable[[Any], int] = self._encrypted if is_encrypted else sock.send

    def _received(self, view: Any) -> int:
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            self._is_dry = True
            raise

    def _decrypted(self, view: Any) -> int:
        try:
            return self._socket.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._is_dry = True
            raise BlockingIOError from None

    def _encrypted(self, data: Any) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    async def serve(self, step: Step) -> Any:
        """Call `step` whenever input may be available, until it returns a value other than WAIT_READABLE."""
        while True:
            self._is_dry = False
            found = step()
            if found is not WAIT_READABLE:
                return found
            # OpenSSL may hold bytes that the socket no longer has.
            if self._is_dry:
                await trio.lowlevel.wait_readable(self._socket)

    def expect(self, count: int) -> None:
        """Do nothing: this transport reports any input, however few bytes."""

    async def until_sendable(self) -> None:
        """Wait until an incomplete send can continue."""
        await trio.lowlevel.wait_writable(self._socket)

    def is_stale(self) -> bool:
        """Return True if the broker has closed the connection, or has sent bytes that nobody requested."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.recv(_PEEKED_BYTES)
            else:
                self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()


class Link:
    """Connection to a broker, with the API versions that the broker supports."""

    def __init__(self, address: Address, sock: socket.socket, versions: Mapping[int, VersionRange]) -> None:
        self.address = address
        self.waiting = 0
        """Requests without an answer."""
        self._versions = versions
        self._connection = PeerConnection(ClientTransport(sock), CLIENT_ID, FRAME_BYTES_MAX)
        self._exchanges = Exchanges()

    @property
    def is_usable(self) -> bool:
        """True if the connection can be used for the next request."""
        return self._connection.closed_because is None and not self._connection.is_stale()

    def close(self, reason: str = "the proxy stops") -> None:
        self._connection.close(reason, is_at_fault=False)

    def version_of(self, request_class: type[Message], at_most: int) -> int:
        """Return a request's newest common version, at most `at_most`. Raises RestError if there is none."""
        newest = request_class.versions.newest_common(self._versions.get(request_class.api_key), at_most)
        if newest is not None:
            return newest
        name = request_class.__name__.removesuffix("Request")
        raise RestError(Code.KAFKA_BAD_REQUEST, f"The broker does not support a version of {name} that is needed.")

    async def ask(
        self,
        nursery: trio.Nursery,
        request: Message,
        take: Callable[[Any], T],
        *,
        at_most: int = 1000,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:
        """Send a request and return `take(response)`. Raises RestError.

        `take` is called before the next receive, because the response's records are views of the receive buffer.
        """
        version = self.version_of(type(request), at_most)
        exchange = await self._exchanges.get(type(request), version)
        done = trio.Event()
        found: list[T] = []
        failures: list[Exception] = []

        async def ask() -> None:
            self.waiting += 1
            try:
                with trio.CancelScope(deadline=trio.current_time() + timeout_s) as scope:
                    found.append(take(await self._connection.ask(exchange, request, scope)))
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is wanted
                failures.append(error)
            finally:
                self.waiting -= 1
                done.set()

        if self._connection.closed_because is not None:
            raise Unreachable(f"{self.address}: {self._connection.closed_because}")
        nursery.start_soon(ask)
        await done.wait()
        if found:
            return found[0]
        if failures:
            raise _failure(failures[0])
        raise Unreachable(f"{self.address}: {self._connection.closed_because}", is_sent=True)


def _failure(error: Exception) -> Exception:
    """Return a RestError for an encoding error that the request's content causes. Return any other error unchanged.

    Any other error is a bug.
    """
    if isinstance(error, RestError):
        return error
    if isinstance(error, KafkaError | ProtocolViolation):
        return RestError(Code.KAFKA, str(error))
    if isinstance(error, ValueError | OverflowError | struct.error):
        return RestError(Code.KAFKA_BAD_REQUEST, f"A name or number does not fit into Kafka's request: {error}")
    return error


_openers = trio.CapacityLimiter(8)
_strangers_openers = trio.CapacityLimiter(4)
"""Threads for logins that no broker has accepted yet: wrong ones hold up nobody else."""


async def open_link(
    address: Address, security: Security, timeout_s: float = CONNECT_TIMEOUT_S, *, is_stranger: bool = False
) -> Link:
    """Connect and log in. Raises RestError.

    `is_stranger`: no broker has accepted this login yet. All such logins share a connection limit of their own.
    """
    limiter = _strangers_openers if is_stranger else _openers
    try:
        connection = await trio.to_thread.run_sync(
            connect, address, security, timeout_s, abandon_on_cancel=True, limiter=limiter
        )
    except (RequestFailed, UsageError) as error:
        text = str(error)
        if "the login" in text:
            raise RestError(Code.KAFKA_AUTHENTICATION, text) from None
        raise Unreachable(text) from None
    return Link(address, connection.socket, connection.versions)
