"""How much of what is sent the system keeps under way on one connection (SO_SNDBUF)."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Protocol

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


class HasOptions(Protocol):
    """A socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> Any: ...


def send_buffer_bytes(given: int) -> int:
    """The size for a value of socket.send.buffer.bytes; SYSTEM_DEFAULT: none is set."""
    return SEND_BUFFER_BYTES if given == UNCHANGED else given


def widen_for_replica(sock: HasOptions, given: int) -> None:
    """A follower is at the other end. A size that somebody has chosen stays."""
    if given == UNCHANGED:
        with contextlib.suppress(OSError):  # the connection has ended
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REPLICA_SEND_BUFFER_BYTES)
