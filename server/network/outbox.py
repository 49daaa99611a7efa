"""Answers on their way out: bytes, and file regions that go from the page cache to the socket without a copy.

Buffers are joined for one call, and with them regions so small that copying them twice costs less than the calls that it saves.
"""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Any

from ottla.replication.system import MSG_MORE
from ottla.server.network.transport import PageMissing
from ottla.wire.time_slice import SLICE_S

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion
    from ottla.server.network.calls import Call
    from ottla.server.network.transport import Transport

# So much is looked for in memory at a time, and read from the disk at a time if it is not there.
SENDFILE_CHUNK_BYTES = 1024 * 1024
SMALL_REGION_BYTES = 32 * 1024
JOINED_BYTES_MAX = 128 * 1024  # before another region is joined
TURN_S = SLICE_S  # a peer may read as fast as this sends, and a fetch may ask for 55 MiB
# Everything else in an outbox is a region of a file.
_BUFFER_TYPES = frozenset({bytes, bytearray, memoryview})


class Progress(enum.Enum):
    """Result of `Outbox.send`: everything was sent, the transport is blocked, or a file must be read from the disk."""

    DONE = "everything was handed to the transport"
    BLOCKED = "the transport takes no more for now, or others are due: go on when it is writable"
    COLD = "the next piece of a file has to come from the disk: call `warm` in a thread"


DONE, BLOCKED, COLD = Progress  # a member is looked up in its class by name, which costs more than a global


class Outbox:
    """Queue of one connection's answers to send. Each consists of parts: buffers and file regions."""

    __slots__ = ("_region_looked_at", "_region_sent", "parts")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        # When parts[0] is a region: how many bytes of it are sent, and up to where they were found in memory.
        self._region_sent = self._region_looked_at = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of unsent bytes in memory. A body that belongs to several answers is counted a single time."""
        if len(self.parts) <= 2:  # nearly always: a region, and what is behind it
            return sum([len(part) for part in self.parts if type(part) in _BUFFER_TYPES])
        buffers = {id(part): len(part) for part in self.parts if type(part) in _BUFFER_TYPES}
        return sum(buffers.values())

    def add(self, call: Call, correlation_id: int, parts: list[Any]) -> None:
        """Append an answer, given as the parts of its body."""
        # Without records the answer is one small piece: fewer parts to look at.
        if call.is_plain:
            body = b"".join(parts)
            size = len(body) + call.envelope_bytes
            self.parts.append(call.envelope(size, correlation_id) + body)
        else:
            # With records there may be regions of files between the pieces. Their bytes join on the way out. The first
            # piece is what comes before the first records, so it is joined here: a part less to look at.
            size = sum(map(len, parts)) + call.envelope_bytes
            parts[0] = call.envelope(size, correlation_id) + parts[0]
            self.parts += parts
        call.route.response_bytes += size

    def add_response(self, call: Call, correlation_id: int, response: Any) -> None:
        """Encode a response and append it."""
        parts: list[Any] = []
        call.encode(response, parts.append)
        self.add(call, correlation_id, parts)

    def add_encoded(self, call: Call, correlation_id: int, body: bytes) -> None:
        """Append an answer whose body is encoded already. Several peers may get the same body."""
        # Two parts, so that a large body is not copied for each of many peers.
        size = len(body) + call.envelope_bytes
        self.parts += [call.envelope(size, correlation_id), body]
        call.route.response_bytes += size

    def send(self, transport: Transport) -> Progress:
        """Send without waiting, for at most one time slice; the result says what to wait for."""
        parts = self.parts
        # Nearly all that is sent: one answer without records.
        if len(parts) == 1 and type(data := parts[0]) is bytes:
            try:
                sent = transport.send(data)
            except BlockingIOError:
                return BLOCKED
            if sent == len(data):
                parts.clear()
                return DONE
            parts[0] = memoryview(data)[sent:]
            return BLOCKED
        late_from = time.monotonic() + TURN_S
        while parts:
            if count := self._buffers_in_front(transport):
                if not self._send_buffers(transport, count):
                    return BLOCKED
            # A region is in front: a large one, one that was begun, or one that the disk may be needed for.
            elif (progress := self._send_region(transport, parts[0], late_from)) is not DONE:
                return progress
            if parts and time.monotonic() > late_from:
                return BLOCKED
        return DONE

    def _buffers_in_front(self, transport: Transport) -> int:
        """Replace small cached regions at the front with buffers; return how many buffers then are at the front."""
        parts = self.parts
        size = 0
        for index, part in enumerate(parts):
            if type(part) not in _BUFFER_TYPES:
                # A region of which a part is sent stays a region: only `_region_sent` knows where it goes on.
                if part.length > SMALL_REGION_BYTES or size > JOINED_BYTES_MAX or (index == 0 and self._region_sent):
                    return index
                data = transport.read_in_memory(part)
                # Not in memory: it stays a region, and `_send_region` finds out what to do.
                if data is None:
                    return index
                # The bytes replace the region, so that they are not read again if the socket is full.
                parts[index] = part = data
            elif index and size + len(part) > JOINED_BYTES_MAX:
                return index  # large buffers are not copied: many connections may be sent the same one
            size += len(part)
        return len(parts)

    def _send_buffers(self, transport: Transport, count: int) -> bool:
        """Send the first `count` parts in one call; False if the transport did not accept all of them."""
        parts = self.parts
        data = parts[0] if count == 1 else b"".join(parts[:count])
        try:
            # With MSG_MORE the header of an answer shares a packet with the records that sendfile puts behind it.
            sent = transport.send(data, MSG_MORE if count < len(parts) else 0)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            del parts[:count]
            return True
        # The rest is kept as a view: a peer that reads a little at a time would have it copied each time.
        parts[:count] = [memoryview(data)[sent:]]
        return False

    def _send_region(self, transport: Transport, region: FileRegion, late_from: float) -> Progress:
        while (rest := region.length - self._region_sent) > 0:
            position = region.position + self._region_sent
            # A piece is looked for once, although the socket may take it in several parts: a look is a system call.
            if self._region_looked_at <= self._region_sent:
                chunk = min(rest, SENDFILE_CHUNK_BYTES)
                # sendfile waits for the disk if a page is missing, and the event loop with it.
                if not transport.is_in_memory(region, position, chunk):
                    return COLD
                self._region_looked_at = self._region_sent + chunk
            chunk = self._region_looked_at - self._region_sent
            try:
                sent = transport.send_region(region, position, chunk)
            except BlockingIOError:
                return BLOCKED
            # The system has taken the page back since it was looked for.
            except PageMissing:
                self._region_looked_at = self._region_sent
                return COLD
            except OSError as error:
                raise _blame(region, position, error) from error
            # The length is promised in what was sent already, so the answer can be neither finished nor taken back.
            if sent == 0:
                raise ConnectionError(f"the log file ends {rest} bytes before the region that was promised")
            self._region_sent += sent
            if sent < rest and time.monotonic() > late_from:
                return BLOCKED
        self._region_sent = self._region_looked_at = 0
        # It goes at once, because a region keeps its file open.
        del self.parts[0]
        return DONE

    def warm(self) -> None:
        """Read the first region's next piece into the page cache. Blocks.

        Raises OSError, which the caller passes to `unreadable`.
        """
        region = self.parts[0]
        position = region.position + self._region_sent
        region.file.read_at(position, min(region.length - self._region_sent, SENDFILE_CHUNK_BYTES))


def _blame(region: FileRegion, position: int, error: OSError) -> OSError:
    """Return the error to raise after a failed sendfile; read the file to find out whether the disk failed."""
    try:
        # Through the storage, as its faults are what has to be judged.
        region.file.read_at(position, 1)
    except OSError as failure:
        return unreadable(region, failure)
    # The file is well by now, whatever it was. The answer has begun, so the connection ends.
    return (
        error if isinstance(error, ConnectionError) else ConnectionError(f"a part of the log cannot be sent: {error}")
    )


def unreadable(region: FileRegion, failure: OSError) -> ConnectionError:
    """Return the error to raise for an unreadable file region, and report the failure to its log directory."""
    region.fail(failure)
    return ConnectionError(f"the log cannot be read: {failure}")
