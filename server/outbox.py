"""Answers on their way out: bytes, and file regions that go from the page cache to the socket without a copy."""

from __future__ import annotations

import enum
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion

SENDFILE_CHUNK_BYTES = 1024 * 1024
_PAGE_BYTES = 4096
_BUFFER_TYPES = frozenset({bytes, bytearray, memoryview})


class Progress(enum.Enum):
    """How a call of `Outbox.send` ended."""

    DONE = "everything was handed to the socket"
    BLOCKED = "the socket takes no more for now"
    COLD = "the next piece of a file has to come from the disk: call `warm` in a thread"


class Outbox:
    """Parts of answers in order; a part is a buffer or a file region."""

    __slots__ = ("_region_sent", "parts")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._region_sent = 0  # bytes of parts[0] already sent, when it is a region

    def send(self, sock: socket.socket) -> Progress:
        """Send as much as the socket takes without waiting."""
        parts = self.parts
        while parts:
            if type(parts[0]) in _BUFFER_TYPES:
                if not self._send_buffers(sock):
                    return Progress.BLOCKED
            elif (progress := self._send_region(sock, parts[0])) is not Progress.DONE:
                return progress
        return Progress.DONE

    def _send_buffers(self, sock: socket.socket) -> bool:
        """Send all buffers up to the next region in one call; False if the socket did not take them all."""
        parts = self.parts
        count = 1
        while count < len(parts) and type(parts[count]) in _BUFFER_TYPES:
            count += 1
        data = parts[0] if count == 1 else b"".join(parts[:count])
        try:
            sent = sock.send(data, socket.MSG_MORE if count < len(parts) else 0)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            del parts[:count]
            return True
        parts[:count] = [memoryview(data)[sent:]]
        return False

    def _send_region(self, sock: socket.socket, region: FileRegion) -> Progress:
        descriptor = region.file.fileno()
        while (rest := region.length - self._region_sent) > 0:
            position = region.position + self._region_sent
            chunk = min(rest, SENDFILE_CHUNK_BYTES)
            if not _is_cached(descriptor, position, chunk):
                return Progress.COLD
            try:
                sent = os.sendfile(sock.fileno(), descriptor, position, chunk)
            except BlockingIOError:
                return Progress.BLOCKED
            if sent == 0:
                raise ConnectionError(f"the log file ends {rest} bytes before the region that was promised")
            self._region_sent += sent
        self._region_sent = 0
        del self.parts[0]
        return Progress.DONE

    def warm(self) -> None:
        """Bring the next piece of the first region into the page cache; blocks, so it belongs in a thread."""
        region = self.parts[0]
        position = region.position + self._region_sent
        scratch = bytearray(min(region.length - self._region_sent, SENDFILE_CHUNK_BYTES))
        os.preadv(region.file.fileno(), [scratch], position)


def _is_cached(descriptor: int, position: int, length: int) -> bool:
    """Whether the first and the last byte can be read without the disk; the kernel reads ahead in between."""
    probe = bytearray(1)
    try:
        os.preadv(descriptor, [probe], position, os.RWF_NOWAIT)
        if length > _PAGE_BYTES:
            os.preadv(descriptor, [probe], position + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without RWF_NOWAIT: sendfile decides
    return True
