"""Transport of a connection's bytes, in and out. Plain TCP is here; TLS (`tls_transport.py`) or a simulation has the same methods.

A transport never waits: what it cannot do now it refuses with BlockingIOError. `Inbox` says where received bytes go and
`Outbox` what is sent next; both know nothing of sockets.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ottla.replication import system
from ottla.replication.system import (
    CAN_SPLICE,
    RWF_NOWAIT,
    SENDFILE_BYTES,
    SPLICED_BYTES_MAX,
    bounds_expected_input,
    send_much_of_file,
)

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion
    from ottla.server.dispatch.context import HasPeer
    from ottla.server.network.readiness import Readiness, Step

_PAGE_BYTES = 4096
EXPECTED_BYTES_MAX = 256 * 1024


class Transport(Protocol):
    """Interface of connections, encrypted or not. Every method raises OSError if the connection is broken."""

    socket: socket.socket
    """The socket that can be waited for."""

    def receive_into(self, buffer: Any, size: int = 0) -> int:
        """Receive at most `size` bytes (0: as many as fit); return the number, 0 at the end of the stream."""

    def send(self, data: Any, flags: int = 0) -> int:
        """Send what the socket accepts in one time slice; return the number of bytes.

        `flags`: MSG_MORE if more data follow.
        """

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        """Send bytes of a region's file; return their number, 0 at its end. Raises PageMissing if not in memory."""

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        """True if these bytes of the region's file can be sent without waiting for the disk."""

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        """Return a small region's bytes from the page cache; None if they need the disk or the system cannot tell."""

    def peer_has_left(self) -> bool:
        """True if the peer has closed the connection or its sending side."""

    def is_at_end(self) -> bool:
        """True if the peer has closed its sending side and all its bytes were read."""

    def serving(
        self, readiness: Readiness, missing: Callable[[], int] | None = None
    ) -> Callable[[Step], Awaitable[Any]]:
        """Return a function that calls a step whenever this connection can receive or send (`Readiness.serve`).

        `missing` returns how many bytes the step needs. The transport may wait until so many have arrived.
        """

    def expect(self, count: int) -> None:
        """Make the system report input only when `count` bytes have arrived, where it can; 0: report any byte."""

    async def until_sendable(self) -> None:
        """Wait until a blocked send can continue."""

    def close(self) -> None:
        """Close the socket."""


class PageMissing(Exception):
    """Raised if a part of a file is not in the page cache."""


class PageCacheReader:
    """Base class of transports that reads file regions from the page cache, without waiting for the disk."""

    __slots__ = ()

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        """True if the first and last byte are in the page cache; the bytes between are then likely there, too."""
        # This system cannot tell. A thread for every fetch would cost more than a wait for the disk now and then.
        if RWF_NOWAIT is None:
            return True
        descriptor, probe = region.file.fileno(), bytearray(1)
        try:
            os.preadv(descriptor, [probe], position, RWF_NOWAIT)
            # The end may be gone although the beginning is in memory.
            if length > _PAGE_BYTES:
                os.preadv(descriptor, [probe], position + length - 1, RWF_NOWAIT)
        # The one error that means a missing page.
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without RWF_NOWAIT: sendfile decides
        return True

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        if RWF_NOWAIT is None:
            return None
        # A read that needs the disk fails here instead of waiting, or ends at the first page that is missing.
        data = bytearray(region.length)
        try:
            count = os.preadv(region.file.fileno(), [data], region.position, RWF_NOWAIT)
        except OSError:
            return None
        return data if count == region.length else None


class PlainTransport(PageCacheReader):
    """Unencrypted TCP connection. File regions go from the page cache to the socket without a copy."""

    __slots__ = ("_expected", "_is_full", "_offered_bytes", "close", "receive_into", "send", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._expected = 1
        self._offered_bytes = SPLICED_BYTES_MAX  # of a region at a time
        self._is_full = False
        self.receive_into = sock.recv_into  # the socket's own methods, because every request needs both
        self.send = sock.send
        self.close = sock.close

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        # It has just taken less than it was offered. To try again would cost as much as sending.
        if self._is_full:
            self._is_full = False
            raise BlockingIOError
        offered = min(length, self._offered_bytes)
        sent = send_much_of_file(self.socket.fileno(), region.file.fileno(), position, offered)
        if sent < offered:
            self._is_full = CAN_SPLICE and sent > 0 and offered > SENDFILE_BYTES
            # What a socket does not take was looked up in vain, so it is offered twice what it took.
            self._offered_bytes = max(SENDFILE_BYTES, 2 * sent)
        elif offered == self._offered_bytes:
            self._offered_bytes = min(2 * offered, SPLICED_BYTES_MAX)
        return sent

    def serving(
        self, readiness: Readiness, missing: Callable[[], int] | None = None
    ) -> Callable[[Step], Awaitable[Any]]:
        return partial(readiness.serve, self.socket)

    def expect(self, count: int) -> None:
        self._expected = expected_by_system(self.socket, count, self._expected)

    async def until_sendable(self) -> None:
        await trio.lowlevel.wait_writable(self.socket)

    def peer_has_left(self) -> bool:
        return has_left(self.socket)

    def is_at_end(self) -> bool:
        return unread(self.socket, 1) == b""


def expected_by_system(sock: socket.socket, count: int, before: int) -> int:
    """Make the system report input only when `count` bytes have arrived, or fewer if it limits this number.

    `before`: the number set before. Return the number that is set now.
    """
    expected = max(1, min(count, EXPECTED_BYTES_MAX))
    if expected != before and bounds_expected_input():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, expected)
    return expected


def has_left(sock: socket.socket) -> bool:
    """True if the peer of a TCP connection has closed the connection or its sending side."""
    try:
        # Only a look: the byte belongs to a request. Unread bytes hide the end of the stream behind them, so the
        # system is asked for the state of the connection, too.
        has_sent_more = _peeked(sock, 1) != b""
        return not has_sent_more or system.has_closed_its_side(sock)
    except BlockingIOError:
        return False
    except OSError:
        return True


def unread(sock: socket.socket, count: int) -> bytes | None:
    """Peek at up to `count` received bytes; empty at the end of the stream, None if nothing has arrived."""
    try:
        return _peeked(sock, count)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _peeked(sock: socket.socket, count: int) -> bytes:
    # Of every socket the one method that takes flags: an encrypted one has another of its own.
    return socket.socket.recv(sock, count, socket.MSG_PEEK | socket.MSG_DONTWAIT)


UNCHANGED = 102_400
"""Kafka's default of socket.send.buffer.bytes and socket.receive.buffer.bytes, which is taken for no choice."""

SYSTEM_DEFAULT = -1

# In place of Kafka's default this suits this broker. More in flight falls out of the processor's caches, less needs too many
# wake-ups (0.32 s of CPU per GB sent, where the kernel's own choice needs 0.51 and 100 KiB need 0.39); for receiving the
# kernel's choice is the cheapest.
SEND_BUFFER_BYTES = 256 * 1024

# What a follower asks for at a time has room, so that an answer goes out in one piece: the leader is not woken again for its
# rest (1.8 instead of 4.6 calls of sendfile per MiB that is copied twice).
REPLICA_SEND_BUFFER_BYTES = 1024 * 1024


def send_buffer_bytes(given: int) -> int:
    """Return the send buffer size for a value of socket.send.buffer.bytes; SYSTEM_DEFAULT: leave it to the system."""
    return SEND_BUFFER_BYTES if given == UNCHANGED else given


def widen_for_replica(sock: HasPeer, given: int) -> None:
    """Enlarge a follower's send buffer, unless the operator has set socket.send.buffer.bytes (its value: `given`)."""
    if given == UNCHANGED:
        with contextlib.suppress(OSError):  # the connection has ended
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REPLICA_SEND_BUFFER_BYTES)
