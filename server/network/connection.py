"""The connection of a client: frames in, answers out, in order, by one task.

The way of a request: read into the inbox -> cut complete frames -> find the `Call` (decoder, handler, encoder) of its
(api key, version) -> run the handler at once -> collect the answers of all frames of this read -> one send. All of that
is `_step`.

States
    served    the task sleeps in `serve`. The event loop calls `_step` when the socket is ready (`readiness.py`), or when
              `PendingAnswers` says that an answer is. A step that can do everything at once wakes no task
    awake     a step returned a `Waiting`, so the task has it: it sends what is answered, awaits the one thing, answers the
              frames that are left, and is served again. Nothing is received meanwhile. The kinds of `Waiting`:

              a request       its handler is a coroutine, or it is large and decoded in a thread, one at a time
              UNKNOWN_CALL    the first request of an (api key, version): a thread loads its codecs
              DRAIN, ROOM     the pending answers have to go out first, all or some of them
              MEMORY          there is no memory for the rest of a large frame
              RECEIVE         a thread receives the rest of a large frame (`background_worker.py`)
              MUTED           the client has to pause (`throttling.py`)
              FLUSH           what is to be sent has to come from the disk
              END_OF_TURN     the frames of one read are handled until `Readiness.turn_end`; others are due
              END_OF_STREAM   the peer sends no more: what it asked for is answered, and the connection ends

Some answers come later without a task that waits for them (`PendingAnswer`): fetches wait for records, produce requests
for their commits, members of groups for each other. Then the connection goes on with requests of the kind that may be
pipelined, up to `PENDING_MAX`, and whatever becomes ready is sent in the order of the requests. Any other request waits
until all before it are answered.

Limits: while answers cannot be sent nothing more is read. So a peer that does not read holds the answers to one read, which
count as memory that it keeps from others. A very large request without records is refused: no client needs it, and it could
hold millions of elements.

Errors: `ProtocolViolation` and `CloseConnection` close with a log line (`listener_context.py`); a reset by the peer is silent; anything else
is a bug and is logged with its traceback, and only this connection pays for it.
"""

from __future__ import annotations

import struct
import time
from contextlib import nullcontext
from math import inf
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.system import system_clock_ms
from ottla.server.dispatch.context import ANONYMOUS, RequestContext
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.inbox import HandOver, Inbox, NoRoom
from ottla.server.network.large_requests import (
    LARGE_FRAME_BYTES,
    answer_awaited,
    check_large,
    error_answer,
    handle_large,
)
from ottla.server.network.listener_context import authentication_at
from ottla.server.network.memory_accounting import ConnectionMemory
from ottla.server.network.outbox import BLOCKED, DONE, Outbox, unreadable
from ottla.server.network.pending import (
    DRAIN,
    END_OF_STREAM,
    END_OF_TURN,
    FLUSH,
    MEMORY,
    MUTED,
    RECEIVE,
    ROOM,
    UNKNOWN_CALL,
    PendingAnswers,
    Waiting,
)
from ottla.server.network.protocol_detection import HTTP, HTTP_ANSWER, WrongProtocol
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Wait
from ottla.server.network.sliced_work import QueuedWork
from ottla.server.network.throttling import Throttling, Timed
from ottla.server.network.transport import PlainTransport
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.headers import skip_tagged_fields
from ottla.wire.text import JAVA_REPLACE

if TYPE_CHECKING:
    from ottla.server.network.authentication import Authentication, ExpiringCalls
    from ottla.server.network.calls import Call, Calls
    from ottla.server.network.listener_context import ListenerContext
    from ottla.server.network.sliced_work import Work
    from ottla.server.network.transport import Transport
    from ottla.server.security.quotas.client_quotas import Charge
    from ottla.wire.schema import Message

# Each pending answer is memory that a peer makes the broker keep, so there is an end to it.
PENDING_MAX = 100
QUEUED_BYTES_MAX = 256 * 1024  # of answers that are there, behind one that is not

_long_answers = trio.CapacityLimiter(2)  # at once; each may be a hundred thousand objects until it is encoded
_header = struct.Struct(">hhih").unpack_from  # api key, api version, correlation id, length of the client id
_HEADER_BYTES = 10


class Connection:
    """Server side of one accepted connection, until it ends."""

    __slots__ = (
        "_authentication",
        "_calls",
        "_client_id",
        "_complaints",
        "_context",
        "_held_memory",
        "_inbox",
        "_is_parked",
        "_outbox",
        "_peer",
        "_pending",
        "_quotas",
        "_readiness",
        "_route",
        "_throttling",
        "_transport",
        "_turn_began",
        "_worker",
        "cancel_scope",
        "clock_ms",
        "last_active",
    )

    def __init__(self, transport: Transport, host: str, listener: ListenerContext, principal: str = ANONYMOUS) -> None:
        self._transport = transport
        self._peer = host
        self._complaints = listener.complaints
        self._calls: Calls | ExpiringCalls = listener.calls
        self._readiness = listener.readiness
        # Of an encrypted connection only the loop can read.
        can_hand_over = type(transport) is PlainTransport and listener.readiness.is_inside_the_wait
        self._worker = listener.readiness.worker if can_hand_over else None
        self._context = RequestContext(
            listener.broker,
            client_host=f"/{host}",
            principal=principal,
            listener_name=listener.name,
            security_protocol=listener.security_protocol,
            complaints=self._complaints,
            socket=transport.socket,
        )
        self.clock_ms = system_clock_ms  # a listener may have another
        self._quotas = listener.quotas  # at hand, because every request looks whether there are any
        self._client_id = b""  # of the last request, as it was sent
        self._throttling = Throttling(listener.quotas, self._context)
        self._inbox = Inbox(listener.buffers, listener.frame_bytes_max)
        self._outbox = Outbox()
        self._pending = PendingAnswers(self._outbox, self._throttling, listener.readiness, transport.socket)
        self.cancel_scope = trio.CancelScope()
        self._held_memory = ConnectionMemory(self._inbox.memory)
        self._is_parked = False
        self._authentication = authentication_at(listener, self._context, self._inbox, transport, self._send_first)
        self._note_time()

    async def run(self) -> None:
        """Serve until the peer disconnects, the listener's housekeeping cancels the connection, or an error ends it."""
        try:
            with self.cancel_scope:
                await self._serve()
        except (ProtocolViolation, CloseConnection) as error:
            self._complaints.close(self._peer, self._context.client_id, str(error))
        except (ConnectionError, TimeoutError):
            pass  # the peer went away; no answer can be sent
        except Exception as error:  # noqa: BLE001 - logged below
            await self._complaints.report_bug(error, self._peer, self._context.client_id)
        finally:
            # However the connection ends, its memory is given back here: other connections may stand in line for it.
            self._inbox.close()
            self._held_memory.let_go()
            self._held_memory.count_unread(0)
            self._transport.close()
            self._context.close()

    def end(self, reason: str) -> None:
        """Close the connection from outside its task, and note why."""
        self._complaints.note_end(self._peer, self._context.client_id, reason)
        self.cancel_scope.cancel()

    @property
    def is_parked(self) -> bool:
        """True if the connection waits for an answer that only a connected peer needs, such as a long poll."""
        return self._is_parked or self.is_held_up or (bool(self._pending) and self._pending[0].is_abandonable)

    def is_silent_since(self, since: float) -> bool:
        """True if no byte has arrived since monotonic time `since`.

        The bytes of an incomplete large frame count, too, although the kernel may not have reported them.
        """
        return self.last_active < since and self._inbox.hear_all(self._transport)

    def peer_has_left(self) -> bool:
        """True if the peer of a waiting connection has disconnected, so that nobody needs the answer."""
        if self._throttling.is_muted:
            # What it has sent before is carried out when it is read again, as in Kafka.
            return self._inbox.is_empty and self._transport.is_at_end()
        return self._transport.peer_has_left()

    async def _serve(self) -> None:
        """Serve the connection: the event loop calls `_step`; this task does all work that must be awaited."""
        serve = self._transport.serving(self._readiness, self._inbox.missing)
        try:
            if self._authentication is not None:
                await self._authenticate(self._authentication)
                # Requests may have come right behind it.
                await self._answer_awake(self._answer_frames())
            # Asleep: the event loop calls `_step`, until something has to be awaited.
            while (waiting := await serve(self._step)) is not END_OF_STREAM:
                await self._answer_awake(waiting)
            # A peer that has closed only its own side still reads: what it asked for before is answered.
            await self._drain(0, is_end=True)
        except (ProtocolViolation, CloseConnection) as error:
            # The requests before the bad one were in order, so they are answered before the connection ends.
            await self._drain(0, is_end=True)
            if isinstance(error, WrongProtocol) and error.protocol == HTTP:
                self._outbox.parts.append(HTTP_ANSWER)
            raise
        finally:
            self._pending.abandon()
            if self._outbox.parts:
                await self._flush()  # what was answered before a bad frame

    async def _answer_awake(self, waiting: Waiting | None) -> None:
        """Await `waiting` (None: nothing), then answer all received frames, awaiting any work that they need."""
        while True:
            while waiting is not None:
                await self._finish(waiting)
                waiting = MUTED if self._throttling.is_muted else self._answer_frames()
            # About to sleep. `_step` takes parts in the outbox for a socket that is full, so none are left there.
            self._pending.hand_over_ready(self._turn_began)
            await self._flush()
            if not self._throttling.is_muted:
                break
            waiting = MUTED  # one of these answers begins a pause
        self._inbox.detach()
        # A poke is lost if no task serves the socket, so one that came meanwhile is made again.
        self._pending.note_ready()

    async def _authenticate(self, authentication: Authentication) -> None:
        self._calls = await authentication.run(self._peer)
        self._note_time()

    async def _send_first(self, data: bytes) -> None:
        """Send bytes of the authentication, outside any request that a handler answers."""
        self._outbox.parts.append(data)
        await self._flush()

    def _step(self) -> Wait | Waiting:
        """Send unsent bytes, else receive and answer frames; never wait, but return what to wait for."""
        # Asked before pending answers add to the outbox: only parts from before mean that the socket is full.
        is_blocked = bool(self._outbox.parts)
        if self._pending:
            # Only a second answer could be one too many for this turn.
            if len(self._pending) > 1:
                self._turn_began = time.monotonic()
            self._pending.hand_over_ready(self._turn_began)
            # A poke, as nearly always. A peer that waited for nothing else has hardly asked for more already, and to look
            # in vain is a system call and an exception. If it has asked, the next look at the sockets tells.
            if self._outbox.parts and not self._pending and not is_blocked:
                return MUTED if self._throttling.is_muted else self._send()
            if self._throttling.is_muted:
                return MUTED
        # 1. A peer that does not read its answers is not read either, or they would pile up without end.
        if is_blocked:
            self.last_active = time.monotonic()
            return self._send()
        # 2. Receive. After a poke there may be no input, but pending answers to send.
        try:
            if not self._inbox.receive(self._transport, self._worker):
                # The task sends what `hand_over_ready` left in the outbox.
                return END_OF_STREAM
        except BlockingIOError:
            return self._send() if self._outbox.parts else WAIT_READABLE
        except NoRoom:
            return MEMORY
        except HandOver:
            return RECEIVE
        # 3. Answer what came, then send all answers in one call: each call costs about 4 us.
        self._note_time()
        waiting = self._answer_frames()
        if waiting is None and self._outbox.parts:
            return self._send()
        # The next connection receives into the same buffer, so nothing of this one may stay there.
        self._inbox.detach()
        return waiting or WAIT_READABLE

    def _send(self) -> Wait | Waiting:
        progress = self._outbox.send(self._transport)
        # Every frame is handled by now, so the receive buffer is free for the next connection. The peer does not wait for that.
        self._inbox.detach()
        if progress is DONE:
            if self._held_memory.unread_bytes:
                self._held_memory.count_unread(0)
            return WAIT_READABLE
        if progress is BLOCKED:
            # Only buffers count. Regions of files are the page cache's, which the kernel can take back.
            self._held_memory.count_unread(self._outbox.buffered_bytes)
            return WAIT_WRITABLE
        return FLUSH

    def _note_time(self) -> None:
        # All frames of one read came at the same time, so they share these times.
        self.last_active = now = time.monotonic()
        self._turn_began = now
        self._context.now_ms = self.clock_ms()

    def _answer_frames(self) -> Waiting | None:
        """Answer complete frames; return what to await before the next one, END_OF_TURN if the time slice is over.

        None: no complete frame is left.
        """
        inbox, since, turn_end = self._inbox, self.last_active, 0.0
        while (frame := inbox.next_frame()) is not None:
            waiting = self._begin(inbox.buffer, frame[0], frame[1])
            if waiting is not None:
                # Before `detach` gives the frame's buffer back to the budget, or else others would take the room.
                self._held_memory.hold(waiting, frame[1] - frame[0], inbox)
                return waiting
            # Asked after a frame, so that every turn gets at least one done, however late it begins. The same look at
            # the clock says how long the frame took.
            now = time.monotonic()
            (route := self._route).seconds += (elapsed := now - since)
            # What is pending is counted when it goes out. Of many requests some stand for all: see `Route.count_time`.
            if not route.request_count & route.sparing and not self._pending:
                route.count_time(elapsed)
            since = now
            # Nearly always one frame was all that came.
            if inbox.start == inbox.end:
                break
            turn_end = turn_end or self._readiness.turn_end(self._turn_began)
            if now > turn_end:
                return END_OF_TURN
        # Without epoll no thread can poke a connection that waits for its socket, so its task waits for the answers.
        return DRAIN if self._pending and not self._readiness.is_inside_the_wait else None

    # ------------------------------------------------------------------ one request

    def _begin(self, buffer: Any, start: int, end: int) -> Waiting | None:
        """Handle one frame. Return the work to await before the next frame, or None."""
        size, context = end - start, self._context
        if size < _HEADER_BYTES:
            raise ProtocolViolation(f"a frame of {size} bytes is too short for a request header")
        api_key, version, correlation_id, client_id_length = _header(buffer, start)
        # All but the first request of a kind find their call in one look-up, without a call into `find`.
        call = self._calls.get((api_key << 16) + version) or self._calls.find(api_key, version)
        if call is None:
            # The frame may move while the task awaits something, and its bounds with it: it is cut once more.
            self._inbox.put_back(start)
            return UNKNOWN_CALL
        # Kafka handles one request of a connection at a time, so a client may rely on the effects of those before. Only
        # requests whose handler keeps that order itself (produce) go on while answers are pending, and only behind
        # their like: a join or a long poll may wait for minutes, and answers would pile up behind it.
        if self._pending:
            may_go_on = call.route.pipelined and self._pending[-1].call.route.pipelined
            if not may_go_on or self._pending.queued_bytes > QUEUED_BYTES_MAX:
                self._inbox.put_back(start)
                return DRAIN
            if len(self._pending) >= PENDING_MAX:
                self._inbox.put_back(start)
                return ROOM
        id_start = position = start + _HEADER_BYTES
        # Kafka takes any length below zero for null, and null for empty.
        if client_id_length > 0 and (position := id_start + client_id_length) > end:
            raise ProtocolViolation("a client id longer than its frame")
        # A client sends the same id with every request, so it is decoded once.
        if (client_id := buffer[id_start:position]) != self._client_id:
            self._client_id = bytes(client_id)
            context.client_id = client_id.decode("utf-8", JAVA_REPLACE)
        if call.flexible:
            # Nearly every client sends an empty section, a single zero byte, which is skipped without a call. Behind
            # the end of the frame lie foreign bytes, so the end is looked at first; `skip_tagged_fields` raises there.
            has_tags = position >= end or buffer[position]
            position = skip_tagged_fields(buffer, position, end) if has_tags else position + 1
        # A request with records is cheap to decode at any size: they stay where they are, with little beside them.
        if size > LARGE_FRAME_BYTES and not call.takes_records:
            check_large(call, size)
            # A thread decodes a copy of the body, because others use the buffer meanwhile. Answers before it go first:
            # else a peer that does not read them would keep the copy in memory for as long as it likes.
            if self._outbox.parts or not self._inbox.memory.may_take(self._inbox):
                self._inbox.put_back(start)
                return FLUSH if self._outbox.parts else MEMORY
            charge = self._throttling.begin(call, context, size) if self._quotas.is_on else None
            work = handle_large(call, buffer[position:end], context, self.peer_has_left, self._held_memory.let_go)
            return self._later(call, correlation_id, work, charge, is_large=True)
        self._route = route = call.route
        route.request_count += 1
        route.request_bytes += size
        if self._quotas.is_on:
            charge = self._throttling.begin(call, context, size)
            return self._handle_charged(call, correlation_id, charge, buffer, position, end)
        # One context serves the whole connection: to make one for every request would cost more than to refresh it.
        context.api_version = version
        # The few requests of which there are very many: their answer is there as bytes, or nothing was done.
        if (fast_path := call.fast_path) and not self._pending:
            parts = fast_path(buffer, position, end, context)
            if parts is not None:
                self._outbox.add(call, correlation_id, parts)
                return None
        return self._handle(call, correlation_id, call.decode(buffer, position, end))

    def _handle(self, call: Call, correlation_id: int, request: Any) -> Waiting | None:
        try:
            result = call.handler(request, self._context)
        except KafkaError as error:
            result = error_answer(call, error, request)
        # The ordinary case first: an answer that is there, and none before it to wait for.
        if type(result) is call.response_class and not self._pending:
            self._outbox.add_response(call, correlation_id, result)
        elif isinstance(result, CoroutineType):
            # The coroutine has not begun. The task awaits it, after sending the answers before it.
            return Waiting(call, correlation_id, QueuedWork(result, self._readiness.work), request=request)
        else:
            self._pending.answer(call, correlation_id, result)
        return None

    def _handle_charged(
        self, call: Call, correlation_id: int, charge: Charge, buffer: Any, position: int, end: int
    ) -> Waiting | None:
        """Handle a request and charge it to the client's quotas.

        Return what to await before the next frame: the answer, or the end of the throttle time. None: nothing.
        """
        began = time.perf_counter_ns() if charge.is_timed else 0
        context = self._context
        context.api_version = call.version
        request = call.decode(buffer, position, end)
        try:
            result = call.handler(request, context)
        except KafkaError as error:
            result = error_answer(call, error, request)
        if began:
            charge.spent_ns = time.perf_counter_ns() - began
        if isinstance(result, CoroutineType):
            return self._later(call, correlation_id, result, charge, request)
        self._pending.answer(call, correlation_id, result, charge)
        return MUTED if self._throttling.is_muted else None

    def _later(
        self,
        call: Call,
        correlation_id: int,
        work: Work,
        charge: Charge | None,
        request: Message | None = None,
        *,
        is_large: bool = False,
    ) -> Waiting:
        if charge is not None and charge.is_timed:
            work = Timed(work, charge)
        return Waiting(call, correlation_id, QueuedWork(work, self._readiness.work), is_large, charge, request)

    async def _finish(self, waiting: Waiting) -> None:
        """Send ready answers, then await the work in `waiting`."""
        try:
            await self._finish_begun(waiting)
        finally:
            if waiting.work is not None:
                # If the flush before it failed, the work never began. Closing lets go of its request without a warning.
                waiting.work.close()
            self._held_memory.let_go()
        if time.monotonic() > self._readiness.turn_end(self._turn_began):
            await trio.lowlevel.checkpoint()  # what was awaited may have been ready, a thousand times in a row
        # Frames that are still in the inbox get a time of now and a turn of their own.
        self._note_time()

    async def _finish_begun(self, waiting: Waiting) -> None:
        self._inbox.detach()
        # Answers that are there do not wait for one that is not.
        await self._flush()
        if waiting is END_OF_TURN:
            await trio.lowlevel.checkpoint()
        elif waiting is DRAIN:
            await self._drain(0)
        elif waiting is ROOM:
            # Half of them, so that the connection does not stop again after the next request.
            await self._drain(PENDING_MAX // 2)
        elif waiting is UNKNOWN_CALL:
            await self._make_call()
        elif waiting is MEMORY:
            await self._inbox.until_room(self._peer)
        elif waiting is MUTED:
            await self._stay_muted()
        elif waiting is RECEIVE:
            assert self._worker is not None
            await self._inbox.receive_beside(self._transport, self._worker)
        elif waiting is not FLUSH:
            await self._finish_request(waiting)

    async def _stay_muted(self) -> None:
        """Read nothing until the throttle time is over. Answers that become ready are sent, and may extend the time."""
        throttling = self._throttling
        self._is_parked = True
        try:
            while throttling.muted_until > trio.current_time():
                self._pending.hand_over_ready(self._turn_began)
                await self._flush()
                if self._pending.is_first_ready:  # the turn was over
                    await trio.lowlevel.checkpoint()
                    self._note_time()
                    continue
                with trio.move_on_at(throttling.muted_until):
                    await self._pending.until_ready()
        finally:
            self._is_parked = False
        throttling.unmute()

    @property
    def is_held_up(self) -> bool:
        """True if the connection waits for memory."""
        return self._inbox.is_held_up

    @property
    def stalled_since(self) -> float:
        """Monotonic time since which the peer has held memory without progress; infinity otherwise.

        No progress: it does not send the rest of a large frame that this broker is reading, or it reads no answers.
        """
        if self._held_memory.unread_bytes:
            return self.last_active
        return inf if self.is_held_up else self._inbox.large_since

    async def _make_call(self) -> None:
        """Load the call for the next frame. If this frame begins a reauthentication, do that instead."""
        # The frame is complete, but `detach` may have moved it.
        start, _ = self._inbox.next_frame() or (0, 0)
        api_key, version, _, _ = _header(self._inbox.buffer, start)
        self._inbox.put_back(start)
        if self._authentication is not None and self._authentication.begins_anew(api_key):
            await self._drain(0)
            await self._authenticate(self._authentication)
            return
        # Not parked while codecs are loaded: a produce request is carried out although its peer closes its side.
        self._is_parked = True
        try:
            await self._calls.until_open(api_key)
        finally:
            self._is_parked = False
        await self._calls.make(api_key, version)

    async def _finish_request(self, waiting: Waiting) -> None:
        route, began = waiting.call.route, time.monotonic()
        self._is_parked = route.abandonable or route.reads_only
        try:
            # A large request is limited already: the budget counts it with what its answer may take.
            async with _long_answers if route.few_at_once and not waiting.is_large else nullcontext():
                await answer_awaited(waiting, self._pending)
        finally:
            route.note_time(time.monotonic() - began, is_answered=not self._pending)
            self._is_parked = False

    # ------------------------------------------------------------------ answers go out

    async def _drain(self, count: int, *, is_end: bool = False) -> None:
        """Wait until at most `count` answers are pending, and send the ready ones.

        `is_end`: the peer has closed its side; do not wait for answers that are useless to it, such as long polls.
        """
        while True:
            self._pending.hand_over_ready(self._turn_began)
            await self._flush()
            pending = self._pending
            if len(pending) <= count:
                return
            if pending.is_first_ready:  # the turn was over
                await trio.lowlevel.checkpoint()
                self._note_time()
            else:
                # A long poll or a join is of no use to a peer that asks nothing more.
                if is_end and pending[0].is_abandonable:
                    return
                await pending.until_ready()

    async def _flush(self) -> None:
        """Send all ready answers; wait for a slow peer, and for a thread that reads the log from the disk."""
        outbox = self._outbox
        while outbox.parts:
            progress = outbox.send(self._transport)
            if progress is DONE:
                break
            # From here on others run, and receive into the shared buffer.
            self._inbox.detach()
            if progress is BLOCKED:
                self._held_memory.count_unread(outbox.buffered_bytes)
                await self._transport.until_sendable()
                if not self._readiness.work.has_time():  # many may have become writable at once
                    await self._readiness.work.turn()
            else:
                try:
                    # sendfile would wait for the disk inside the event loop, and with it every connection.
                    await trio.to_thread.run_sync(outbox.warm)
                except OSError as error:
                    raise unreadable(outbox.parts[0], error) from error
            # A peer that reads slowly is not idle.
            self.last_active = time.monotonic()
        if self._held_memory.unread_bytes:
            self._held_memory.count_unread(0)
