"""Who waits for a coordinator's response, and how the response gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol

from ottla.groupcoord.runtime.outcome import Caller, HiddenTopics, Reply
from ottla.wire.answers import Given, PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice


class Owner(Protocol):
    """The partition that a request was given to."""

    def abandon(self, caller: WaitingCaller[Any]) -> None: ...


class WaitingCaller(Caller, Generic[ResponseT]):
    """A caller that gets a response, now or later.

    `refuse` makes the response that carries an error; `is_abandonable`: nobody needs the response when the peer has left.
    """

    __slots__ = ("is_abandonable", "pending", "refuse", "response")

    def __init__(
        self,
        refuse: Callable[[ErrorCode], ResponseT],
        *,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        hidden_topics: HiddenTopics | None = None,
        is_abandonable: bool = False,
    ) -> None:
        super().__init__(
            api_version=api_version, client_id=client_id, client_host=client_host, hidden_topics=hidden_topics
        )
        self.refuse = refuse
        self.is_abandonable = is_abandonable
        self.response: ResponseT | None = None
        self.pending: PendingReply[ResponseT] | None = None

    def answer(self, response: ResponseT) -> None:
        if self.response is None:
            self.response = response
            self.is_answered = True
            # While `submit` still runs there is no pending answer: it returns the response itself.
            if self.pending is not None:
                self.pending.become_ready()

    def waits_for(self, owner: Owner) -> Given[ResponseT]:
        """The response if there is one by now, else the answer that will have it."""
        if self.response is not None:
            return self.response
        self.pending = PendingReply(self, owner)
        return self.pending


class Queued(NamedTuple):
    """A request that stands in line, and when it came."""

    request: Any
    caller: WaitingCaller[Any]
    arrival_ms: int


class PendingReply(PendingAnswer[ResponseT]):
    """The answer to a caller that is parked, stands in line, or waits for a commit."""

    __slots__ = ("_caller", "_owner")

    def __init__(self, caller: WaitingCaller[ResponseT], owner: Owner) -> None:
        super().__init__()
        self._caller = caller
        self._owner = owner

    @property
    def is_abandonable(self) -> bool:
        return self._caller.is_abandonable

    def response(self) -> ResponseT | None:
        # Caller and pending answer know each other. Such a circle would never be collected, so it ends here or in
        # `abandon`.
        self._caller.pending = None
        return self._caller.response

    def abandon(self) -> None:
        self._caller.pending = None
        if not self.is_ready:
            self._owner.abandon(self._caller)


def send(replies: Iterable[Reply]) -> None:
    for caller, response in replies:
        assert isinstance(caller, WaitingCaller)
        caller.answer(response)


async def send_in_slices(replies: Iterable[Reply], time_slice: TimeSlice) -> None:
    """Send replies, others having a turn in between."""
    left = iter(replies)
    try:
        for reply in left:
            send((reply,))
            await time_slice.yield_if_over()
    finally:
        # Nobody else knows who is left when this is cancelled.
        send(left)


def refuse(replies: Iterable[Reply], error: ErrorCode) -> None:
    """Answer with an error instead: what the replies promise is not sure."""
    for caller, _ in replies:
        assert isinstance(caller, WaitingCaller)
        caller.answer(caller.refuse(error))
