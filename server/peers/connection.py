"""A connection on which this broker sends requests to another one.

Theory
    Requests go out in the order in which they were asked, and the task with the oldest unanswered request reads:
    there is no task that only reads, so an answer costs one task switch. A task that has read its answer lets the next one read.

    One thing ends a connection for all who ask on it: an error, an answer that came too late, bytes that are not what was
    asked for, a cancelled `ask` (its answer would stay unread). The scopes that they wait in are cancelled then.

    Answers stay in the receive buffer, and their records are views of it. The buffer is used again with the next `ask`;
    if others read before, they read into a new one.

Limits
    A frame may not be larger than `frame_bytes_max`, and the buffer grows with what really arrived, not with what a length
    field claims. A large buffer that has not been needed for long is given up.

Bytes are carried by a `PeerTransport`: a plain socket here, an encrypted one in `encryption.py`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import trio

from ottla.server.dispatch.dispatch import response_class_of
from ottla.server.network.readiness import WAIT_READABLE, Step, Wait
from ottla.server.network.transport import expected_by_system
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Decoder, Encoder, Message, holds_records

Serve = Callable[[socket.socket, Step], Awaitable[Any]]
"""`Readiness.serve`, or what does the same."""


class PeerTransport(Protocol):
    """Interface of one connection to another broker. One task receives at a time; other tasks may send meanwhile."""

    @property
    def receive_into(self) -> Callable[[Any], int]:
        """Function that receives into a given buffer and returns the number of bytes, 0 at the end of the stream.

        It raises BlockingIOError if nothing has arrived.
        """

    @property
    def send(self) -> Callable[[Any], int]:
        """Function that sends as many of the given bytes as possible and returns their number.

        It raises BlockingIOError if none was sent; the next call must begin with the same byte.
        """

    @property
    def serve(self) -> Callable[[Step], Awaitable[Any]]:
        """Function that calls a step whenever input can be received, as long as the step returns a `Wait`."""

    def expect(self, count: int) -> None:
        """Make the system report input only when `count` bytes have arrived, where it can; 0: report any byte."""

    @property
    def is_refused(self) -> bool:
        """True if the other broker probably rejects this broker, so that a retry would fail, too."""

    async def until_sendable(self) -> None:
        """Wait until a blocked send can continue."""

    def is_stale(self) -> bool:
        """True if the peer closed the connection or sent unrequested bytes; call this while no task receives."""

    def close(self) -> None:
        """Close all descriptors. Call this only while no task waits for them."""


class PlainPeerTransport:
    """Unencrypted TCP connection to another broker."""

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
        """Wait on a duplicate descriptor for a blocked send; trio allows no second wait for the original."""
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


IDLE_S = 1.0  # after which a connection is looked at before it is used again
BUFFER_BYTES = 64 * 1024
LARGE_BUFFER_BYTES = 1024 * 1024  # what a connection may keep for good; see `_note_size`
SMALL_ANSWERS_MAX = 1_000  # in a row, before a large buffer is given up
LONG_PARTITIONS = 1_000  # in a request, above which a thread encodes it: 10,000 take 10 to 25 ms

_CORRELATION_ID_MASK = 0x7FFFFFFF  # a signed 32-bit field, so the count begins again at 0
_size = struct.Struct(">i")


class Exchange(NamedTuple):
    """Codec for one version of a request and its response."""

    api_key: int
    version: int
    request_header_version: int
    encode: Encoder
    response_header_version: int
    decode: Decoder
    lends: bool  # the response holds views of the buffer
    of_controller: bool  # the request tells of partitions, perhaps of all there are

    def is_long(self, request: Any) -> bool:
        """True if encoding the request takes so long that a thread should do it."""
        return self.of_controller and sum(len(each.partition_states) for each in request.topic_states) > LONG_PARTITIONS

    def encoded(self, request: Message) -> bytes:
        """Return the encoded body of a request."""
        parts: list[Any] = []
        self.encode(request, parts.append)
        return b"".join(parts)


_new_exchanges = trio.CapacityLimiter(1)  # of its own: disks that hang keep the threads that others share


@lru_cache(maxsize=256)
def exchange_of(request_class: type[Message], version: int) -> Exchange:
    """Return the codec for this version of a request class and its response."""
    response_class = response_class_of(request_class)
    return Exchange(
        request_class.api_key,
        version,
        request_header_version(request_class, version),
        request_class.encoder(version),
        response_header_version(response_class, version),
        response_class.decoder(version),
        holds_records(response_class),
        hasattr(request_class, "topic_states"),
    )


class Exchanges:
    """Cache of codecs for requests to other brokers; codecs are made in a thread, because the disk may be busy."""

    def __init__(self) -> None:
        self._made: dict[tuple[type[Message], int], Exchange] = {}

    def known(self, request_class: type[Message], version: int) -> Exchange | None:
        """Return the codec for this version of a request class; None if it is not loaded yet."""
        return self._made.get((request_class, version))

    async def get(self, request_class: type[Message], version: int) -> Exchange:
        """Return the codec for this version of a request class; load it in a thread if necessary."""
        known = self.known(request_class, version)
        # Of two who ask at once the second waits for the thread, and then `exchange_of` has the answer in its cache.
        if known is None:
            known = self._made[request_class, version] = await trio.to_thread.run_sync(
                exchange_of, request_class, version, abandon_on_cancel=True, limiter=_new_exchanges
            )
        return known


class PeerConnection:
    """Connection to another broker. `ask` waits in a cancel scope, which is cancelled when the connection ends."""

    def __init__(self, transport: PeerTransport, client_id: str, frame_bytes_max: int) -> None:
        self.closed_because: str | None = None
        self.is_at_fault = True  # the broker or the network, not somebody here
        self.renew_at_s: float | None = None  # when another connection has to take its place; None: never
        self._transport, self._client_id = transport, client_id
        self._buffer = FrameBuffer(frame_bytes_max)
        self._last_correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._sending = trio.Lock()
        self._last_used_s = trio.current_time()

    def is_stale(self) -> bool:
        """True if the broker has closed the connection, or sent bytes while no request was in flight."""
        # A look is a system call, and a busy connection would pay for it with every request.
        if self._waiting or trio.current_time() - self._last_used_s < IDLE_S:
            return False
        return self._transport.is_stale()

    @property
    def is_refused(self) -> bool:
        """True if the other broker probably rejects this broker, so that a retry would fail, too."""
        return self._transport.is_refused

    def has_to_be_renewed(self) -> bool:
        """True if the login session ends soon and no request is in flight."""
        return self.renew_at_s is not None and not self._waiting and trio.current_time() >= self.renew_at_s

    async def ask(
        self, exchange: Exchange, request: Message, scope: trio.CancelScope, body: bytes | None = None
    ) -> Any:
        """Send a request (`body`: already encoded) and return its response; cancel `scope` if the connection ends."""
        correlation_id = self._last_correlation_id = (self._last_correlation_id + 1) & _CORRELATION_ID_MASK
        # What cannot be encoded fails here, before the connection knows of it.
        frame = self._frame(exchange, request if body is None else body, correlation_id)
        waiting = _Waiting(scope)
        # Noted before it is sent, without an await between: the order of waiting is the order on the wire.
        self._waiting.append(waiting)
        # The port promises views only until the next call, so earlier answers may be overwritten from here on.
        self._buffer.take_back()
        try:
            await self._send(frame)
            if self._waiting[0] is not waiting:
                # The task with the oldest pending answer reads. Two readers on one socket would tear frames apart.
                await waiting.until_first()
            return self._decoded(exchange, correlation_id, await self._next_frame())
        except (OSError, ProtocolViolation) as error:
            self.close(str(error) or type(error).__name__)
            # The caller of `ask` gets one kind of end for all failures.
            await trio.sleep_forever()  # until `scope`, cancelled just now, ends
        except trio.Cancelled:
            # The answer may still come, and would be taken for that
            # of the next request. So the connection ends for all.
            late = trio.current_time() >= scope.deadline
            name = type(request).__name__
            self.close(f"no answer to a {name} in time" if late else f"a {name} was abandoned", is_at_fault=late)
            raise
        finally:
            self._leave(waiting)

    def _frame(self, exchange: Exchange, request: Message | bytes, correlation_id: int) -> bytes:
        header = RequestHeader(exchange.api_key, exchange.version, correlation_id, self._client_id)
        # The length comes first on the wire, but is known last.
        parts: list[Any] = [b"", encode_request_header(header, exchange.request_header_version)]
        if isinstance(request, bytes):
            parts.append(request)
        else:
            exchange.encode(request, parts.append)
        parts[0] = _size.pack(sum(map(len, parts)))
        return b"".join(parts)

    async def _send(self, frame: bytes) -> None:
        """Send a frame in the requesting task, so that another task receives: the broker may send before it reads."""
        try:
            # Hardly ever does another request wait to be sent. Then the task goes on without a switch.
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            # The lock keeps frames whole: a frame that the socket
            # takes in two parts must have nobody else's between them.
            sent = self._send_some(frame)
            if sent < len(frame):
                data = memoryview(frame)[sent:]
                while data:
                    await self._transport.until_sendable()
                    data = data[self._send_some(data) :]
        finally:
            self._sending.release()

    def _send_some(self, data: bytes | memoryview) -> int:
        try:
            return self._transport.send(data)
        except BlockingIOError:
            return 0

    async def _next_frame(self) -> tuple[int, int]:
        # The reader before may have received more than its own answer.
        frame = self._buffer.next_frame()
        if frame is None:
            frame = await self._transport.serve(self._receive)
        assert frame is not None
        return frame

    def _receive(self) -> tuple[int, int] | Wait:
        """Receive once; return the bounds of a frame if one is complete, else WAIT_READABLE.

        Raises ConnectionResetError at the end of the stream.
        """
        try:
            received = self._buffer.receive(self._transport.receive_into)
        except BlockingIOError:
            return WAIT_READABLE
        if not received:
            raise ConnectionResetError("the broker hung up")
        frame = self._buffer.next_frame()
        # To wait for a few bytes more would take as many calls as to look for them.
        missing = 0 if frame else self._buffer.missing()
        self._transport.expect(missing if missing > BUFFER_BYTES else 0)
        return frame or WAIT_READABLE

    def _decoded(self, exchange: Exchange, correlation_id: int, frame: tuple[int, int]) -> Any:
        buffer = self._buffer
        start, end = frame
        answered_id, body = decode_response_header(buffer.data, start, end, exchange.response_header_version)
        # Kafka answers in the order of the requests. Anything else means that the two sides have lost count.
        if answered_id != correlation_id:
            raise ProtocolViolation(f"an answer to request {answered_id}, where {correlation_id} was asked")
        answer = exchange.decode(buffer.data, body, end)
        # The records of the answer are views of the buffer, and others may read before the caller has used them.
        if exchange.lends:
            buffer.lend()
        if len(self._waiting) == 1 and buffer.has_more:
            raise ProtocolViolation("more was answered than was asked")
        return answer

    def _leave(self, waiting: _Waiting) -> None:
        queue = self._waiting
        # While the connection lives, only the oldest has an answer, so only the oldest leaves.
        if self.closed_because is None:
            assert queue[0] is waiting
            queue.popleft()
            if queue:
                queue[0].set_first()
            else:
                self._last_used_s = trio.current_time()
            return
        queue.remove(waiting)
        if not queue:
            # The last one closes. Somebody may still wait for the socket, and a descriptor
            # that is closed under a wait may be another file's by the time it wakes.
            self._transport.close()

    def close(self, reason: str, *, is_at_fault: bool = True) -> None:
        """Close the connection: refuse new requests, and cancel the scopes of requests in flight.

        `is_at_fault`: the other broker or the network has caused this.
        """
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self.is_at_fault = is_at_fault
        for waiting in self._waiting:
            waiting.scope.cancel()
        if not self._waiting:
            self._transport.close()


class _Waiting:
    """Request that waits for its response."""

    __slots__ = ("_is_first", "scope")

    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope
        self._is_first: trio.Event | None = None

    async def until_first(self) -> None:
        """Wait until all earlier requests have their responses."""
        self._is_first = trio.Event()
        await self._is_first.wait()

    def set_first(self) -> None:
        """Wake the request, because all earlier requests have their responses."""
        if self._is_first is not None:
            self._is_first.set()


class FrameBuffer:
    """Buffer of received bytes, from which frames are cut."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.data = bytearray(BUFFER_BYTES)
        self._view = memoryview(self.data)
        self._start = 0
        self._end = 0
        self._frame_bytes_max = frame_bytes_max
        self._is_lent = False
        self._is_oversized = False
        self._small_frames = 0

    @property
    def has_more(self) -> bool:
        """True if the buffer holds bytes behind the frames that were cut."""
        return self._start < self._end

    def lend(self) -> None:
        """Keep the bytes of cut frames unchanged until `take_back`, because responses hold views of them."""
        self._is_lent = True

    def take_back(self) -> None:
        """Allow reuse of the space of cut frames, because responses hold no views of them any more."""
        self._is_lent = False

    def next_frame(self) -> tuple[int, int] | None:
        """Cut the next complete frame; return its bounds in `data` without the length field, or None."""
        start = self._start
        if self._end - start < _size.size:
            return None
        size = self._frame_size()
        frame_end = start + _size.size + size
        if frame_end > self._end:
            return None
        self._start = frame_end
        self._note_size(size)
        return start + _size.size, frame_end

    def missing(self) -> int:
        """Return how many bytes the first frame lacks; 0 if the frame's length is unknown."""
        rest = self._end - self._start
        return self._frame_size() + _size.size - rest if rest >= _size.size else 0

    def receive(self, receive_into: Callable[[Any], int]) -> int:
        """Receive once into the buffer; return the number of bytes, 0 at the end of the stream."""
        if self._is_lent or self._is_oversized:
            # There are views of this buffer, or it is to be given up. Bytes without a frame go on in a new one.
            self._move_to(self._room_needed())
            self._is_lent = self._is_oversized = False
        elif self._start == self._end:
            # Nothing is left, so the room at the front is used again without a copy.
            self._start = self._end = 0
        if self._end == len(self.data):
            self._make_room()
        received = receive_into(self._view[self._end :])
        self._end += received
        return received

    def _frame_size(self) -> int:
        size: int = _size.unpack_from(self.data, self._start)[0]
        # Before any memory is taken: a length field may claim two gigabytes.
        if not 0 <= size <= self._frame_bytes_max:
            raise ProtocolViolation(f"a frame of {size} bytes, where at most {self._frame_bytes_max} are allowed")
        return size

    def _make_room(self) -> None:
        rest = self._end - self._start
        # Moved to the front where that frees half of the room. Less would mean to move the same bytes again and again.
        if self._start > 0 and rest <= len(self.data) // 2:
            self._view[:rest] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, rest
        else:
            self._move_to(max(self._room_needed(), rest + BUFFER_BYTES))

    def _room_needed(self) -> int:
        """Return the buffer size for the first frame.

        At most twice the received bytes are allowed, because the length that the frame states may be wrong.
        """
        rest = self._end - self._start
        size = self._frame_size() + _size.size if rest >= _size.size else 0
        return max(BUFFER_BYTES, min(size, 2 * rest))

    def _move_to(self, size: int) -> None:
        rest = self._end - self._start
        data = bytearray(size)
        view = memoryview(data)
        view[:rest] = self._view[self._start : self._end]
        self.data, self._view = data, view
        self._start, self._end = 0, rest

    def _note_size(self, size: int) -> None:
        """Count small frames; after many of them in a row, mark a large buffer for replacement by a small one."""
        # One large answer after many small ones begins the count again: a buffer that is needed now and then is kept.
        if len(self.data) <= LARGE_BUFFER_BYTES or size > len(self.data) // 4:
            self._small_frames = 0
            return
        self._small_frames += 1
        if self._small_frames > SMALL_ANSWERS_MAX:
            self._small_frames = 0
            self._is_oversized = True
