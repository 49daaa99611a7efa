"""Plain text of a connection with TLS, so that the tap and its rules see what they see of others.

The broker gets one end of a pair of sockets in place of the connection. A task carries bytes between the other end and the
transport that encrypts, until either side closes. Only brokers of the lab have this; it costs them a copy of each byte.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from ottla.server.network.transport import Transport

PIECE_BYTES = 64 * 1024


def decrypted(encrypted: Transport) -> socket.socket:
    """Return a socket on which a connection's plain text is read and written; its close ends the connection.

    Call it in the event loop's thread, after the TLS handshake.
    """
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    trio.lowlevel.spawn_system_task(_carry, encrypted, theirs, name="plain text of a connection with TLS")
    return ours


async def _carry(encrypted: Transport, plain: socket.socket) -> None:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_carry_in, encrypted, plain)
            await _carry_out(plain, encrypted)
            nursery.cancel_scope.cancel()
    finally:
        with contextlib.suppress(OSError):
            encrypted.close()
        plain.close()


async def _carry_in(encrypted: Transport, plain: socket.socket) -> None:
    """Carry what the client says to the broker, and the end of it."""
    buffer = bytearray(PIECE_BYTES)
    try:
        while True:
            try:
                count = encrypted.receive_into(buffer)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(encrypted.socket)
                continue
            if not count:
                break
            await _send_all(plain, buffer, count)
    except OSError:  # either side has ended the connection
        pass
    with contextlib.suppress(OSError):
        plain.shutdown(socket.SHUT_WR)


async def _send_all(plain: socket.socket, buffer: bytearray, count: int) -> None:
    with memoryview(buffer) as view:
        sent = 0
        while sent < count:
            try:
                sent += plain.send(view[sent:count])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(plain)


async def _carry_out(plain: socket.socket, encrypted: Transport) -> None:
    """Carry what the broker says to the client, until the broker closes its end or the client is gone."""
    try:
        while True:
            await trio.lowlevel.wait_readable(plain)
            if not (data := plain.recv(PIECE_BYTES)):
                return
            sent = 0
            while sent < len(data):
                try:
                    # The same bytes again after a refusal: a record of them may be encrypted already.
                    with memoryview(data) as view:
                        sent += encrypted.send(view[sent:])
                except BlockingIOError:
                    await encrypted.until_sendable()
    except OSError:
        pass
