"""Transport of a tapped connection: the bytes go their ordinary way, and the tap looks at them.

Files in memory have no descriptor. A region of such a file is sent from a view of it, without a copy if the storage lends views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.replication.log.storage import NotCached
from ottla.server.network.transport import PageMissing, PlainTransport
from ottla.server.testing.wire_tap.conversation import Conversation, Tap

if TYPE_CHECKING:
    import socket

    from ottla.replication.log.storage import FileRegion
    from ottla.server.testing.wire_tap.wire_request import WireConnection

PIECE_BYTES = 256 * 1024
"""Bytes that are read from a file at a time, where it lends no view: a socket rarely takes more at once."""


class TappedTransport(PlainTransport):
    """Unencrypted connection that a tap listens to."""

    __slots__ = ("_heard", "_receive", "_said", "_send", "conversation")

    def __init__(self, sock: socket.socket, connection: WireConnection, tap: Tap) -> None:
        super().__init__(sock)
        self.conversation = Conversation(connection, tap)
        self._heard, self._said = self.conversation.heard, self.conversation.said
        self._receive, self._send = sock.recv_into, sock.send
        # A socket's own method takes flags, too.
        self.receive_into = self._receive_tapped  # type: ignore[assignment]
        self.send = self._send_tapped

    def _receive_tapped(self, buffer: Any, size: int = 0) -> int:
        count = self._receive(buffer, size)
        if count:
            self._heard(buffer, count)
        return count

    def _send_tapped(self, data: Any, flags: int = 0) -> int:
        sent = self._send(data, flags)
        if sent:
            self._said(data, sent)
        return sent

    # ------------------------------------------------------------------ regions of files

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        if has_descriptor(region) and not self.conversation.needs_bytes:
            sent = super().send_region(region, position, length)
            self.conversation.said_unseen(sent)
            return sent
        try:
            if (view_at := getattr(region.file, "view_at", None)) is not None:
                with view_at(position, length) as view:
                    return self.send(view) if len(view) else 0
            data = region.file.read_at(position, min(length, PIECE_BYTES))
        except NotCached:
            raise PageMissing from None
        return self.send(data) if data else 0

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        return not has_descriptor(region) or super().is_in_memory(region, position, length)

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        if has_descriptor(region):
            return super().read_in_memory(region)
        try:
            return bytearray(region.read())
        except (NotCached, OSError):
            return None


def has_descriptor(region: FileRegion) -> bool:
    """True if the region's file is one of the operating system."""
    try:
        region.file.fileno()
    except OSError:  # io.UnsupportedOperation: a file in memory
        return False
    return True
