"""Requests of a connection whose answers are not there yet.

PendingAnswers  answers that come later without a task that waits for them. They leave in the order of the requests
Waiting         a request that the connection's task has to await before the connection goes on
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.server.network.calls import Call
from ottla.server.security.quotas.client_quotas import Charge
from ottla.wire.answers import EncodedAnswer, PendingAnswer

if TYPE_CHECKING:
    import socket

    from ottla.server.network.outbox import Outbox
    from ottla.server.network.readiness import Readiness
    from ottla.server.network.sliced_work import QueuedWork
    from ottla.server.network.throttling import Throttling
    from ottla.wire.schema import Message


class Pending(NamedTuple):
    """Request whose response is not sent yet, with its encoded response or pending answer."""

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
    """Queue of one connection's pending answers, in order; extends deque, so that a check for emptiness is fast."""

    __slots__ = ("_readiness", "_ready", "_socket", "outbox", "queued_bytes", "throttling")

    def __init__(self, outbox: Outbox, throttling: Throttling, readiness: Readiness, sock: socket.socket) -> None:
        super().__init__()
        self.outbox, self.throttling = outbox, throttling
        self.queued_bytes = 0  # of answers that are there, behind one that is not
        # Two ways to send an answer that became ready: the event if the task waits for it, else a poke of the step.
        self._ready: trio.Event | None = None
        self._readiness = readiness
        self._socket = sock

    @property
    def is_first_ready(self) -> bool:
        """True if the first answer is ready, and so can be sent: answers are sent in the order of requests."""
        return bool(self) and self[0].is_ready

    def answer(self, call: Call, correlation_id: int, answer: Any, charge: Charge | None = None) -> None:
        """Send an answer when it is ready, after all earlier ones. `answer` None: the request has no answer."""
        if isinstance(answer, PendingAnswer):
            answer.on_ready = self.note_ready
            self.append(Pending(call, correlation_id, answer, charge, time.monotonic()))
            # It may have become ready before it knew whom to tell.
            if answer.is_ready:
                self.note_ready()
            return
        if charge is not None:
            answer = self.throttling.settle(call, answer, charge)
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

    def note_ready(self) -> None:
        """If the first answer is ready, wake the connection to send it."""
        if self.is_first_ready:
            if self._ready is not None:
                self._ready.set()
            elif self._readiness.is_inside_the_wait:
                self._readiness.poke(self._socket)

    async def until_ready(self) -> None:
        """Wait until the first answer is ready. Call this only while it is not ready."""
        self._ready = trio.Event()
        try:
            await self._ready.wait()
        finally:
            self._ready = None

    def hand_over_ready(self, turn_began: float) -> None:
        """Move ready answers from the front to the outbox, up to an answer that is not ready.

        The rest is left for the connection's next turn when the one that began at `turn_began` is over (monotonic clock).
        """
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
                    response = self.throttling.settle(call, response, charge)
            if response is not None:
                self._hand_over(call, correlation_id, response)
            # One commit may make a hundred answers ready, each about thousands of partitions.
            if self and time.monotonic() > self._readiness.turn_end(turn_began):
                self.note_ready()
                return

    def _hand_over(self, call: Call, correlation_id: int, response: Any) -> None:
        if type(response) is EncodedAnswer:
            self.outbox.add_encoded(call, correlation_id, response.body)
        else:
            self.outbox.add_response(call, correlation_id, response)

    def abandon(self) -> None:
        """Abandon all answers of a disconnected peer, so that partitions and groups do not wake its connection."""
        for each in self:
            if isinstance(each.answer, PendingAnswer):
                each.answer.abandon()
        self.clear()


class Waiting(NamedTuple):
    """Request that the connection's task must await, with the work that makes its answer."""

    call: Call
    correlation_id: int
    work: QueuedWork
    is_large: bool = False
    charge: Charge | None = None
    request: Message | None = None
    """The request that an error would answer; None of a large one, whose errors `handle_large` answers."""


END_OF_TURN = Waiting(None, 0, None)  # type: ignore[arg-type]
"""Placeholder for a request: other connections are due."""
FLUSH = Waiting(None, 1, None)  # type: ignore[arg-type]
"""Placeholder for a request: data to be sent has to be read from the disk first."""
DRAIN = Waiting(None, 2, None)  # type: ignore[arg-type]
"""Placeholder for a request: answers to earlier requests are due first."""
ROOM = Waiting(None, 3, None)  # type: ignore[arg-type]
"""Placeholder for a request: too many answers are pending."""
MEMORY = Waiting(None, 4, None)  # type: ignore[arg-type]
"""Placeholder for a request: there is no memory for the rest of a large one."""
RECEIVE = Waiting(None, 8, None)  # type: ignore[arg-type]
"""Placeholder for a request: a thread is to receive the rest of a large one."""
MUTED = Waiting(None, 5, None)  # type: ignore[arg-type]
"""Placeholder for a request: the client has to pause."""
UNKNOWN_CALL = Waiting(None, 6, None)  # type: ignore[arg-type]
"""Placeholder for the first request of its kind, or for one that came before the broker knows its cluster."""
END_OF_STREAM = Waiting(None, 7, None)  # type: ignore[arg-type]
"""Placeholder for a request: the peer will send no more."""
