"""Answers that wait for their turn: a connection sends answers in the order of its requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.server.net.calls import Call
from ottla.server.quotas.charge import Charge
from ottla.wire.answers import EncodedAnswer, PendingAnswer


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
