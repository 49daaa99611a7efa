"""Answers on their way out: bytes, and file regions that go from the page cache to the socket without a copy.

Outbox          parts of answers that can be sent. Buffers are joined for one call, and with them regions so small that
                copying them twice costs less than the calls that it saves
PendingAnswers  requests that are answered later. Answers leave in the order of the requests
Waiting         a request that the connection's task has to await before the connection goes on
"""

from __future__ import annotations

import enum
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.replication.system import MSG_MORE
from ottla.server.network.calls import Call
from ottla.server.network.transport import PageMissing
from ottla.server.security.quotas.client_quotas import Charge
from ottla.wire.answers import EncodedAnswer, PendingAnswer
from ottla.wire.time_slice import SLICE_S

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion
    from ottla.server.network.sliced_work import QueuedWork
    from ottla.server.network.throttling import Throttling
    from ottla.server.network.transport import Transport
    from ottla.wire.schema import Message

# So much is looked for in memory at a time, and read from the disk at a time if it is not there.
SENDFILE_CHUNK_BYTES = 1024 * 1024
SMALL_REGION_BYTES = 32 * 1024
JOINED_BYTES_MAX = 128 * 1024  # before another region is joined
TURN_S = SLICE_S  # a peer may read as fast as this sends, and a fetch may ask for 55 MiB
# Everything else in an outbox is a region of a file.
_BUFFER_TYPES = frozenset({bytes, bytearray, memoryview})


class Progress(enum.Enum):
    """Results of `Outbox.send`."""

    DONE = "everything was handed to the transport"
    BLOCKED = "the transport takes no more for now, or others are due: go on when it is writable"
    COLD = "the next piece of a file has to come from the disk: call `warm` in a thread"


DONE, BLOCKED, COLD = Progress  # a member is looked up in its class by name, which costs more than a global


class Outbox:
    """Parts of answers in order; a part is a buffer or a file region."""

    __slots__ = ("_region_looked_at", "_region_sent", "parts")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        # When parts[0] is a region: how many bytes of it are sent, and up to where they were found in memory.
        self._region_sent = self._region_looked_at = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes of the outbox that are in memory. A body that this peer is sent several times counts once."""
        if len(self.parts) <= 2:  # nearly always: a region, and what is behind it
            return sum([len(part) for part in self.parts if type(part) in _BUFFER_TYPES])
        buffers = {id(part): len(part) for part in self.parts if type(part) in _BUFFER_TYPES}
        return sum(buffers.values())

    def add(self, call: Call, correlation_id: int, parts: list[Any]) -> None:
        """Put an answer behind the others."""
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

    def add_encoded(self, call: Call, correlation_id: int, body: bytes) -> None:
        """Put an answer behind the others whose body is encoded already. Others who asked the same are sent the same body."""
        # Two parts, so that a large body is not copied for each of many peers.
        size = len(body) + call.envelope_bytes
        self.parts += [call.envelope(size, correlation_id), body]
        call.route.response_bytes += size

    def send(self, transport: Transport) -> Progress:
        """Send as much as the transport takes without waiting, for a time slice at most."""
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
        """Count the buffers in front, after reading the small regions among them that need no disk."""
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
        """Send the first `count` parts in one call; False if the transport did not take them all."""
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
        """Bring the next piece of the first region into the page cache; blocks, so it belongs in a thread.

        OSError: the disk fails. Hand it to `unreadable`.
        """
        region = self.parts[0]
        position = region.position + self._region_sent
        region.file.read_at(position, min(region.length - self._region_sent, SENDFILE_CHUNK_BYTES))


def _blame(region: FileRegion, position: int, error: OSError) -> OSError:
    """Find the error to raise after sendfile failed. It does not say whether the socket or the file is to blame, so the file is read."""
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
    """Make the error to raise for a region that cannot be read: its log directory hears of it, and the connection ends."""
    region.fail(failure)
    return ConnectionError(f"the log cannot be read: {failure}")


class Pending(NamedTuple):
    """A request whose turn to be answered has not come: its response as bytes, or what will have it."""

    call: Call
    correlation_id: int
    answer: EncodedAnswer | PendingAnswer[Any]
    charge: Charge | None = None  # that the answer has to be settled with
    since: float = 0.0  # when the wait began

    @property
    def is_ready(self) -> bool:
        # Both kinds are asked alike: to look at the type of an abstract class takes longer than all the rest.
        return self.answer.is_ready

    @property
    def is_abandonable(self) -> bool:
        return isinstance(self.answer, PendingAnswer) and self.answer.is_abandonable


class PendingAnswers(deque[Pending]):
    """Requests of one connection that are answered later, in their order, on their way to its outbox.

    It is a deque and does not have one, because every request asks whether it is empty.
    """

    __slots__ = ("_outbox", "_throttling", "queued_bytes")

    def __init__(self, outbox: Outbox, throttling: Throttling) -> None:
        super().__init__()
        self._outbox = outbox
        self._throttling = throttling
        self.queued_bytes = 0  # of answers that are there, behind one that is not

    @property
    def is_first_ready(self) -> bool:
        """Tell whether an answer can go out. Clients expect them in the order of their requests, so only the first one matters."""
        return bool(self) and self[0].is_ready

    def wait_for(self, call: Call, correlation_id: int, answer: PendingAnswer[Any], charge: Charge | None) -> None:
        """Keep an answer that comes later."""
        self.append(Pending(call, correlation_id, answer, charge, time.monotonic()))

    def answer(self, call: Call, correlation_id: int, answer: Any, charge: Charge | None) -> None:
        """Send an answer that is there, after all that are kept already. None: nobody waits for an answer."""
        if charge is not None:
            answer = self._throttling.settle(call, answer, charge)
        if answer is None:
            pass
        elif self:
            # As bytes, which take a tenth of the memory that the objects do, and are quickly handed over in the end. Only
            # produce requests go on while an answer is pending, so there are no regions of files in between.
            encoded = answer if type(answer) is EncodedAnswer else EncodedAnswer(b"".join(call.encoded(answer)))
            self.queued_bytes += len(encoded.body)
            self.append(Pending(call, correlation_id, encoded, since=time.monotonic()))
        else:
            self._hand_over(call, correlation_id, answer)

    def hand_over_ready(self, turn_end: float) -> bool:
        """Encode the answers whose turn it is, until that of this connection is over; returns whether some may be left."""
        while self and self[0].is_ready:
            call, correlation_id, answer, charge, since = self.popleft()
            call.route.note_time(time.monotonic() - since)
            if isinstance(answer, EncodedAnswer):
                self.queued_bytes -= len(answer.body)
                response: Any = answer
            else:
                # Made only now: a fetch that waits keeps no file open, and its answer takes no memory.
                response = answer.response()
                if charge is not None:
                    response = self._throttling.settle(call, response, charge)
            if response is not None:
                self._hand_over(call, correlation_id, response)
            # One commit may make a hundred answers ready, each about thousands of partitions.
            if self and time.monotonic() > turn_end:
                return True
        return False

    def _hand_over(self, call: Call, correlation_id: int, response: Any) -> None:
        if type(response) is EncodedAnswer:
            self._outbox.add_encoded(call, correlation_id, response.body)
        else:
            self._outbox.add(call, correlation_id, call.encoded(response))

    def abandon(self) -> None:
        """The peer has left. Partitions and groups would go on waking a connection that has ended."""
        for each in self:
            if isinstance(each.answer, PendingAnswer):
                each.answer.abandon()
        self.clear()


class Waiting(NamedTuple):
    """A request without an answer yet: its call, its correlation id, and the work that gives the answer."""

    call: Call
    correlation_id: int
    work: QueuedWork
    is_large: bool = False
    charge: Charge | None = None
    request: Message | None = None
    """The request that an error would answer; None of a large one, whose errors `handle_large` answers."""


END_OF_TURN = Waiting(None, 0, None)  # type: ignore[arg-type]
"""In place of a request: other connections are due."""
FLUSH = Waiting(None, 1, None)  # type: ignore[arg-type]
"""In place of a request: what is to be sent has to come from the disk first."""
DRAIN = Waiting(None, 2, None)  # type: ignore[arg-type]
"""In place of a request: the answers to those before it are due first."""
ROOM = Waiting(None, 3, None)  # type: ignore[arg-type]
"""In place of a request: too many answers are pending."""
MEMORY = Waiting(None, 4, None)  # type: ignore[arg-type]
"""In place of a request: there is no memory for the rest of a large one."""
RECEIVE = Waiting(None, 8, None)  # type: ignore[arg-type]
"""In place of a request: a thread is to receive the rest of a large one."""
MUTED = Waiting(None, 5, None)  # type: ignore[arg-type]
"""In place of a request: the client has to pause."""
UNKNOWN_CALL = Waiting(None, 6, None)  # type: ignore[arg-type]
"""In place of a request: the first of its kind, or the broker does not know its cluster yet."""
END_OF_STREAM = Waiting(None, 7, None)  # type: ignore[arg-type]
"""In place of a request: the peer will send no more."""
