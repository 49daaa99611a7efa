"""Frames, and the client's end of a connection, without I/O: bytes in, messages out.

A frame is an int32 size and as many bytes. A client may send many requests before it reads; the broker answers them in
the order in which they were sent, so a response belongs to the oldest request without one, and a correlation id that
says otherwise means that the two ends disagree about the stream.

    connection = ClientConnection(client_id="follower-1")
    socket.sendmsg(connection.send(HeartbeatRequest(...), 4, HeartbeatResponse))
    connection.receive(socket.recv(65536))
    while (response := connection.next_response()) is not None: ...
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Message

FRAME_BYTES_MAX = 100 << 20  # Kafka's default of socket.request.max.bytes

_SIZE = struct.Struct(">i")
_CORRELATION_ID_MASK = 0x7FFFFFFF


class FrameReader:
    """Cuts a stream into frames.

    Pieces of an unfinished frame are kept as they came and joined once, when it is complete. The joined `buffer` is
    never changed, so views of it stay valid for as long as somebody holds them.
    """

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.buffer = b""
        self._frame_bytes_max = frame_bytes_max
        self._position = 0
        self._pieces: list[bytes] = []
        self._piece_bytes = 0
        self._needed_bytes = _SIZE.size

    def receive(self, data: bytes) -> None:
        """Add what arrived, in the form of bytes that will not change any more."""
        self._pieces.append(data)
        self._piece_bytes += len(data)

    def next_frame(self) -> tuple[int, int] | None:
        """Start and end in `buffer` of the next complete frame, without its size; None if more must arrive."""
        if len(self.buffer) - self._position + self._piece_bytes < self._needed_bytes:
            return None
        self._join_pieces()
        start = self._position + _SIZE.size
        (size,) = _SIZE.unpack_from(self.buffer, self._position)
        if not 0 <= size <= self._frame_bytes_max:
            raise ProtocolViolation(f"a frame of {size} bytes, where at most {self._frame_bytes_max} are allowed")
        end = start + size
        if end > len(self.buffer):
            self._needed_bytes = _SIZE.size + size
            return None
        self._position = end
        self._needed_bytes = _SIZE.size
        return start, end

    def _join_pieces(self) -> None:
        if self._pieces:
            self.buffer = b"".join((self.buffer[self._position :], *self._pieces))
            self._position = 0
            self._pieces.clear()
            self._piece_bytes = 0


class ClientConnection:
    """The end of a connection that asks."""

    def __init__(self, *, client_id: str | None = None, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._client_id = client_id
        self._reader = FrameReader(frame_bytes_max=frame_bytes_max)
        self._last_correlation_id = 0
        self._expected: deque[tuple[int, type[Message], int]] = deque()

    @property
    def expected_count(self) -> int:
        """How many responses are still to come."""
        return len(self._expected)

    def send(self, request: Message, version: int, response_class: type[Message] | None) -> list[Any]:
        """The frame to be sent, in pieces. `response_class` is None for a request that gets no answer (acks=0)."""
        correlation_id = self._last_correlation_id = (self._last_correlation_id + 1) & _CORRELATION_ID_MASK
        header = RequestHeader(request.api_key, version, correlation_id, self._client_id)
        encoded_header = encode_request_header(header, request_header_version(type(request), version))
        parts = request.encode_parts(version)
        size = len(encoded_header) + sum(len(part) for part in parts)
        if response_class is not None:
            self._expected.append((correlation_id, response_class, version))
        return [_SIZE.pack(size) + encoded_header, *parts]

    def receive(self, data: bytes) -> None:
        """Add what arrived."""
        self._reader.receive(data)

    def next_response(self) -> Message | None:
        """The answer to the oldest request that still waits for one; None if more must arrive."""
        frame = self._reader.next_frame()
        if frame is None:
            return None
        if not self._expected:
            raise ProtocolViolation("a response that was not asked for")
        expected_id, response_class, version = self._expected.popleft()
        buffer, header_version = self._reader.buffer, response_header_version(response_class, version)
        correlation_id, body = decode_response_header(buffer, frame[0], frame[1], header_version)
        if correlation_id != expected_id:
            raise ProtocolViolation(f"a response to request {correlation_id}, where {expected_id} was expected")
        return response_class.decode(buffer, version, body, frame[1])
