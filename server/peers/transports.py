"""What carries the bytes between this broker and another one: a plain socket here, an encrypted one in `encryption.py`."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import trio

from ottla.server.net.readiness import Step
from ottla.server.net.transport import expected_by_system

Serve = Callable[[socket.socket, Step], Awaitable[Any]]
"""`Readiness.serve`, or what does the same."""


class PeerTransport(Protocol):
    """One connection's way of bytes. One task is served at a time; others may send meanwhile."""

    @property
    def receive_into(self) -> Callable[[Any], int]:
        """Receive into a buffer and return the number of bytes, 0 at the end of the stream. BlockingIOError: nothing is there."""

    @property
    def send(self) -> Callable[[Any], int]:
        """Send some of these bytes, and return how many. BlockingIOError: none; begin with the same byte next time."""

    @property
    def serve(self) -> Callable[[Step], Awaitable[Any]]:
        """Call a step whenever there is something to receive, until it returns what is no `Wait`."""

    def expect(self, count: int) -> None:
        """So many bytes are missing: until there are that many, as far as the system can wait for them, `serve` need not call.

        0: any byte is news again.
        """

    @property
    def is_refused(self) -> bool:
        """Whether it seems to have ended because the other broker does not take this one: that will be so again."""

    async def until_sendable(self) -> None:
        """Return when a send that was refused may go on."""

    def is_stale(self) -> bool:
        """Whether the other end has hung up, or talks although nothing was asked. Called while nobody is served."""

    def close(self) -> None:
        """Close all descriptors. Called while nobody waits for them."""


class PlainPeerTransport:
    """A TCP socket."""

    is_refused = False

    def __init__(self, sock: socket.socket, serve: Serve) -> None:
        self.receive_into: Callable[[Any], int] = sock.recv_into
        self.send: Callable[[Any], int] = sock.send
        self.serve: Callable[[Step], Awaitable[Any]] = partial(serve, sock)
        self._socket = sock
        self._expected = 1
        self._write_end: socket.socket | None = None  # of the same connection, while the other waits to be readable

    def expect(self, count: int) -> None:
        # A wake-up for each part of a long answer costs more than the copy of its bytes.
        self._expected = expected_by_system(self._socket, count, self._expected)

    async def until_sendable(self) -> None:
        """By a descriptor of its own: the one that is served for reading cannot be waited for elsewhere."""
        if self._write_end is None:
            self._write_end = self._socket.dup()
        await trio.lowlevel.wait_writable(self._write_end)

    def is_stale(self) -> bool:
        try:
            # A peek takes nothing away. A living connection without requests has nothing to read.
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        # The end of the stream, or bytes that answer nothing: neither can be trusted with a request.
        return True

    def close(self) -> None:
        self._socket.close()
        if self._write_end is not None:
            self._write_end.close()
