"""Answers that wait for their turn: a connection sends answers in the order of its requests."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.net.calls import Call
from ottla.server.quotas.charge import Charge
from ottla.wire.answers import EncodedAnswer, PendingAnswer

if TYPE_CHECKING:
    from ottla.server.net.outbox import Outbox
    from ottla.server.net.throttling import Throttling


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
    """Those of one connection, in the order of its requests, on their way to its outbox.

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
        """Whether an answer can go out. Clients expect them in the order of their requests, so only the first one matters."""
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
