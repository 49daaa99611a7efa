"""The inbox of a connection: received bytes that wait to be cut into frames.

All connections of the event loop receive into one shared buffer: a read is answered before the next one happens, so an
idle connection needs no memory of its own. A connection that is about to suspend calls `detach()` first; it moves the bytes that
belong to no complete frame yet into a buffer of this connection's own. That buffer grows with the bytes that really
arrived, never to what a length field claims, and comes from a small pool because large frames come in series. A large one
is pages of its own (`wire/buffers.py`): these grow without being copied, and nothing is left of them in the heap.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.server.network.background_worker import HANDED_OVER_BYTES_MIN
from ottla.server.network.memory_accounting import BEYOND_S, STALLED_S, MemoryBudget
from ottla.server.network.protocol_detection import HTTP, WrongProtocol, detect_protocol
from ottla.wire.buffers import writable
from ottla.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from ottla.server.network.background_worker import BackgroundWorker
    from ottla.server.network.transport import Transport

ReceiveBuffer = bytearray | mmap.mmap

# All connections share one such buffer. With one for each of 200 connections a broker takes 83 MB. It holds what a producer has
# under way as a rule: five requests with a batch of 64 KiB. A frame that has no room is copied, and takes a step of its own.
SHARED_BUFFER_BYTES = 336 * 1024
OWN_BUFFER_BYTES_MIN = 16 * 1024
FRONT_BYTES = 512  # of a large frame whose rest is handed over
FREE_BUFFER_BYTES = 64 * 1024  # a frame grows so far whether there is room or not
RECEIVED_AT_ONCE_BYTES = 2 * 1024 * 1024  # of one frame, before others have their turn
# To double the buffer of a frame of 100 MB in one step holds the event loop for up to 120 ms.
GROWN_AT_ONCE_BYTES = 4 * 1024 * 1024
POOLED_BUFFERS_MAX = 32
POOLED_BYTES_MAX = 32 * 1024 * 1024
# Larger ones end where their frame ends: a request may look at its records there after its handler has returned.
POOLED_BUFFER_BYTES_MAX = 4 * 1024 * 1024
# A peer whose reads bring so much is quick, and the system may wait for more of its frame. A slow one must not look idle.
QUICK_BYTES = 32 * 1024

_frame_size = struct.Struct(">i").unpack_from


class ReceiveBuffers:
    """Receive buffers of one event loop: one that all connections share, and a pool for incomplete frames."""

    def __init__(self, memory: MemoryBudget | None = None) -> None:
        self.memory = memory or MemoryBudget()
        self._pool: list[ReceiveBuffer] = []

    @cached_property
    def shared(self) -> bytearray:
        """Buffer that all connections share, made with the first of them: to clear its pages takes a while."""
        return bytearray(SHARED_BUFFER_BYTES)

    def take(self, wanted: int, minimum: int) -> ReceiveBuffer:
        """Return a buffer, from the pool if possible, and count it in the memory budget.

        Its size is at least `wanted` if the budget has room and the pool has such a buffer, else at least `minimum`.
        """
        found = self._from_pool(wanted if self.memory.has_room() else minimum) or writable(minimum)
        self.memory.take(len(found))
        return found

    def _from_pool(self, wanted: int) -> ReceiveBuffer | None:
        # The pool is sorted, so the first buffer that is long enough is the best fit.
        for index, buffer in enumerate(self._pool):
            if len(buffer) >= wanted:
                # A few bytes of a small frame must not keep a large buffer.
                return self._pool.pop(index) if len(buffer) <= max(2 * wanted, FREE_BUFFER_BYTES) else None
        return None

    def take_kept(self, wanted: int) -> ReceiveBuffer | None:
        """Return a buffer of `wanted` bytes or more from the pool; None: none fits, or the memory budget is full."""
        found = self._from_pool(wanted) if self.memory.has_room() else None
        if found is not None:
            self.memory.take(len(found))
        return found

    def forget(self) -> None:
        """Free the buffers in the pool."""
        self._pool.clear()

    def grow(self, buffer: ReceiveBuffer, count: int) -> bool:
        """Extend a large buffer in place by `count` bytes; False if that fails, such as while a memoryview exists."""
        # Buffers of the C library are small (`PAGES_FROM_BYTES`), so a copy of one is cheap.
        if not isinstance(buffer, mmap.mmap):
            return False
        try:
            buffer.resize(len(buffer) + count)
        except (BufferError, SystemError):  # macOS cannot do it at all
            return False
        self.memory.take(count)
        return True

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """Return a buffer to the pool, for the next large frame; a full pool keeps its largest buffers."""
        self.memory.give_back(len(buffer))
        if len(buffer) <= POOLED_BUFFER_BYTES_MAX:
            pool = self._pool
            pool.append(buffer)
            # A large buffer is dear to make, because the kernel has to find and clear each of its pages.
            pool.sort(key=len)
            while len(pool) > POOLED_BUFFERS_MAX or sum(map(len, pool)) > POOLED_BYTES_MAX:
                del pool[0]


def belongs_to_one_frame(buffer: object) -> bool:
    """True if `buffer` was made for a single large frame and is not reused.

    Then a request may keep views of its records; copying large records would block the event loop.
    """
    return isinstance(buffer, mmap.mmap) and len(buffer) > POOLED_BUFFER_BYTES_MAX


class NoRoom(Exception):
    """Raised if the memory budget for large frames is used up; received bytes are kept."""


class HandOver(Exception):
    """Raised to let the background worker receive the rest of a large frame."""


class Inbox:
    """Received bytes of one connection that are not cut into frames yet: `buffer[start:end]`."""

    __slots__ = (
        "_buffers",
        "_hands_over",
        "_own",
        "_series",
        "buffer",
        "end",
        "expected",
        "frame_bytes_max",
        "is_held_up",
        "large_since",
        "memory",
        "start",
    )

    def __init__(self, buffers: ReceiveBuffers, frame_bytes_max: int) -> None:
        self._buffers, self.frame_bytes_max = buffers, frame_bytes_max
        self._own: ReceiveBuffer | None = None
        self._hands_over = True  # unless the last bytes of an incomplete frame came slowly
        self._series = 0  # bytes of the buffer of the last frame if that was a large one; the next one may be, too
        self.expected = 0  # bytes that the transport has to wait for
        self.memory = buffers.memory
        self.large_since = math.inf  # since when it has a large buffer, or wants one, and no frame became complete
        self.buffer: ReceiveBuffer = buffers.shared
        self.is_held_up = False
        self.start = 0
        self.end = 0

    def receive(self, transport: Transport, worker: BackgroundWorker | None = None) -> int:
        """Receive bytes of the current frame, in one or more reads; return their number, 0 at the end of the stream.

        Raises BlockingIOError if nothing has arrived, and NoRoom if there is no memory for the rest of a large frame.
        Raises HandOver if the background worker can take over; the caller then awaits `receive_beside`.
        """
        total = 0
        if self._own is None:
            self.start = self.end = 0  # first, or else a socket without input would leave others' bytes for ours
            if self._series:
                total = self._receive_in_series(
                    transport, FRONT_BYTES if worker and worker.is_wanted else SHARED_BUFFER_BYTES
                )
        # No frame has begun: one read into the shared buffer.
        if self._own is None:
            if total:
                return total
            # What is left of a read needs a buffer of its own. Without room no more is read than a small frame may
            # take: a crowd whose large frames begin at once would go far beyond the limit.
            # `has_room` without a call, because every read asks.
            memory = self.memory
            has_room = memory.used < memory.total and not memory.line
            self.end = transport.receive_into(self.buffer, 0 if has_room else FREE_BUFFER_BYTES)
            return self.end
        if worker and self._hands_over and self._for_worker() >= HANDED_OVER_BYTES_MIN and worker.is_wanted:
            raise HandOver
        # A frame has begun: several reads into its own buffer, because one brings only a part of a large frame.
        try:
            total = self._receive_rest(transport, total)
        except NoRoom:
            # Before there was none some bytes may have come: the rest can be less than what the system was to wait for.
            self._expect(transport, 0)
            raise
        # To wake a task for every few bytes of a slow peer would cost more than to receive them.
        self._hands_over = total >= QUICK_BYTES or self._holds_frame()
        self._expect_rest(transport, total)
        return total

    def _for_worker(self) -> int:
        """Return how many missing bytes the background worker is to receive, at most the buffer's free room."""
        return min(self.missing(), RECEIVED_AT_ONCE_BYTES, len(self.buffer) - self.end)

    async def receive_beside(self, transport: Transport, worker: BackgroundWorker) -> None:
        """Let the background worker receive the rest of a large frame. Raises OSError if the connection is broken."""
        received = await worker.receive(transport.socket, self.buffer, self.end, self._for_worker())
        self.end += received
        # The end of the stream, if that is why nothing came, shows when the loop reads itself.
        self._hands_over = received >= QUICK_BYTES
        if received:
            self._expect_rest(transport, received)

    async def until_room(self, address: str) -> None:
        """Wait for memory after `NoRoom`. `address`: the peer's; addresses take turns."""
        began = time.monotonic()
        # To the housekeeper a peer in line does not stall. It only looks whether the peer is still there.
        self.is_held_up = True
        try:
            await self.memory.wait(self, address)
        finally:
            self.is_held_up = False
        now = time.monotonic()
        self.large_since += now - began  # its peer could not send meanwhile
        # Everybody waits for this peer. The housekeeper counts STALLED_S from here, so BEYOND_S are left.
        if self.memory.is_beyond(self):
            self.large_since = now - STALLED_S + BEYOND_S

    def _expect_rest(self, transport: Transport, total: int) -> None:
        # Each wake-up for a part of a large frame costs more than the copy of its bytes.
        missing = self.missing()
        self._expect(transport, missing if missing > FREE_BUFFER_BYTES and total >= QUICK_BYTES else 0)

    def _expect(self, transport: Transport, count: int) -> None:
        self.expected = count
        transport.expect(count)

    def hear_all(self, transport: Transport) -> bool:
        """Make the kernel report every received byte from now on; return True if it already did so."""
        is_quiet = not self.expected
        self._expect(transport, 0)
        return is_quiet

    def _receive_rest(self, transport: Transport, total: int) -> int:
        """Receive until the frame is complete or no input is left; return the number of bytes.

        `total`: bytes received before; the result includes them.
        """
        received = total = total or self._receive_own(transport)
        # A complete frame is enough: it is answered before more is received.
        while received and total < RECEIVED_AT_ONCE_BYTES and not self._holds_frame():
            try:
                received = self._receive_own(transport)
            except BlockingIOError:
                break
            total += received
        return total

    def _receive_in_series(self, transport: Transport, size: int) -> int:
        """After a large frame, receive directly into a buffer from the pool, because another large frame may follow.

        Then the beginning of a large frame need not be copied from the shared buffer. Returns the number of bytes; 0:
        there is no such buffer.
        """
        kept = self._buffers.take_kept(self._series)
        if kept is None:
            self._series = 0
            return 0
        received = 0
        try:
            with memoryview(kept) as view:
                # No more than the shared buffer takes, where it belongs if the series has ended.
                received = transport.receive_into(view[:size])
            if received >= 4 and _frame_size(kept, 0)[0] > SHARED_BUFFER_BYTES:
                self._own = self.buffer = kept
                self.large_since = time.monotonic()
            else:
                self._series = 0
                self._buffers.shared[:received] = kept[:received]
        finally:
            if self._own is None:
                self._buffers.give_back(kept)
        self.end = received
        return received

    @property
    def is_empty(self) -> bool:
        """True if there are no received bytes."""
        return self.start == self.end

    def next_frame(self) -> tuple[int, int] | None:
        """Cut the next complete frame; return its bounds in `buffer` without the length field, or None.

        Raises ProtocolViolation if its length is invalid.
        """
        start = self.start
        if self.end - start < 4:
            return None
        size: int = _frame_size(self.buffer, start)[0]
        # Refused before any of its bytes are waited for, as Kafka does.
        if not 0 <= size <= self.frame_bytes_max:
            raise self._why_too_large(size)
        frame_end = start + 4 + size
        if frame_end > self.end:
            return None
        self.start = frame_end
        return start + 4, frame_end

    def _why_too_large(self, size: int) -> ProtocolViolation:
        protocol = detect_protocol(bytes(self.buffer[self.start : self.start + 4]))
        if protocol in ("TLS", HTTP):
            return WrongProtocol(protocol)
        return ProtocolViolation(f"a frame of {size} bytes; {self.frame_bytes_max} are allowed")

    def missing(self) -> int:
        """Return how many bytes the first frame lacks, if it is incomplete; 0 if no frame has begun."""
        rest = self.end - self.start
        if rest < 4:
            return 4 - rest if rest else 0
        return 4 + int(_frame_size(self.buffer, self.start)[0]) - rest

    def put_back(self, start: int) -> None:
        """Put the frame at `start` back for `next_frame` to cut again; call this before another frame is cut."""
        self.start = start - 4

    def detach(self) -> None:
        """Stop using the shared buffer: move unread bytes to a buffer of this connection.

        Without unread bytes the connection keeps no buffer. Call this before every suspension.
        """
        rest = self.end - self.start
        if rest == 0:
            # An idle connection keeps no memory.
            if self._own is not None:
                self.close()
        elif self._own is None:
            # The next connection writes over the shared buffer.
            self._move_to(self._buffers.take(self._wanted(rest), max(rest, OWN_BUFFER_BYTES_MIN)))
        elif self.start and self.large_since < math.inf:
            # A frame was cut, and the beginning of the next one stays. Its peer has the full time to send the rest.
            self._begin_anew()

    def close(self) -> None:
        """Return the own buffer to the pool and drop its bytes."""
        if self._own is not None:
            self._series = size if SHARED_BUFFER_BYTES < (size := len(self._own)) <= POOLED_BUFFER_BYTES_MAX else 0
            self._buffers.give_back(self._own)
            self.memory.release(self)
            self.large_since = math.inf
        self._own = None
        self.buffer = self._buffers.shared
        self.start = self.end = 0

    def _receive_own(self, transport: Transport) -> int:
        if self.end == len(self.buffer):
            self._make_room()
        # The view is let go at once, or else the buffer could not grow.
        with memoryview(self.buffer) as view:
            received = transport.receive_into(view[self.end :])
        self.end += received
        return received

    def _make_room(self) -> None:
        """Make room after the received bytes: move them, or extend or replace the buffer. May raise NoRoom."""
        rest = self.end - self.start
        # 1. The frames in front are done, so the rest is moved over them.
        if self.start > 0:
            assert not belongs_to_one_frame(self.buffer)
            with memoryview(self.buffer) as view:
                view[:rest] = view[self.start : self.end]
            self.start, self.end = 0, rest
            self._begin_anew()
            return
        # 2. A small frame always finds room, so that large requests of others do not hold it up.
        previous = self._own
        if rest >= FREE_BUFFER_BYTES:
            self.large_since = min(self.large_since, time.monotonic())
            if not self.memory.may_take(self):
                raise NoRoom
        # 3. A new buffer has twice the bytes that are here at most, whatever the length field claims.
        wanted = self._wanted(rest)
        longer = min(wanted, 2 * rest, rest + GROWN_AT_ONCE_BYTES)
        # In place if it can be, else in a longer buffer, which costs a copy of what is here.
        if previous is not None and self._buffers.grow(previous, longer - rest):
            return
        self._move_to(self._buffers.take(wanted, longer))
        if previous is not None:
            self._buffers.give_back(previous)

    def _begin_anew(self) -> None:
        """Give up the permission to exceed the memory limit, and restart the time limit for the next large frame."""
        # The leave to go beyond the limit was for the frame that is done. Others may stand in line for it.
        self.memory.release(self)
        self.large_since = time.monotonic() if len(self.buffer) > FREE_BUFFER_BYTES else math.inf

    def _move_to(self, target: ReceiveBuffer) -> None:
        if len(target) > FREE_BUFFER_BYTES:
            # The housekeeper's clock runs from the first large buffer of a frame, not again with each longer one.
            self.large_since = min(self.large_since, time.monotonic())
        rest = self.end - self.start
        with memoryview(self.buffer) as view:
            target[:rest] = view[self.start : self.end]
        self._own = self.buffer = target
        self.start, self.end = 0, rest

    def _wanted(self, rest: int) -> int:
        """Return the buffer size that the first frame needs, as far as its length is known."""
        if rest < 4:
            return OWN_BUFFER_BYTES_MIN
        size: int = _frame_size(self.buffer, self.start)[0]
        # There is always room for a byte more: a read into no room returns 0, and that means the end of the stream.
        return max(rest + 1, OWN_BUFFER_BYTES_MIN, min(size, self.frame_bytes_max) + 4)

    def _holds_frame(self) -> bool:
        rest = self.end - self.start
        return rest >= 4 and rest >= 4 + int(_frame_size(self.buffer, self.start)[0])
