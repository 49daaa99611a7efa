"""Answers of coordinators: ready at once, or when members and commits are. Gather them, wait for them, send replies to callers.

An append is *in flight* until it is committed. Then its records are put in force and its replies go out. Appends are
committed in the order in which they were written. A reply made while appends are in flight waits for the last of them,
because the reply may depend on their changes (Kafka's CoordinatorRuntime: the deferred events behind the last written
offset).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import trio

from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

T = TypeVar("T")
U = TypeVar("U")


class _All(PendingAnswer[U]):
    """Answer that is ready when all given answers are; `finish` combines their responses."""

    __slots__ = ("_answers", "_finish", "_missing")

    def __init__(self, answers: Sequence[Given[T]], finish: Callable[[list[T]], U]) -> None:
        super().__init__()
        self._answers: Sequence[Given[Any]] = answers
        self._finish = finish
        # Only these will call back.
        waiting = [each for each in answers if isinstance(each, PendingAnswer) and not each.is_ready]
        self._missing = len(waiting)
        for each in waiting:
            each.on_ready = self._note_ready
        if not waiting:
            self.become_ready()

    @property
    def is_abandonable(self) -> bool:
        # One answer that is needed even without its peer keeps all of them.
        return all(each.is_abandonable for each in self._answers if isinstance(each, PendingAnswer))

    def _note_ready(self) -> None:
        self._missing -= 1
        if not self._missing:
            self.become_ready()

    def response(self) -> U:
        return self._finish([_response(each) for each in self._take()])

    def abandon(self) -> None:
        for each in self._take():
            if isinstance(each, PendingAnswer):
                each.abandon()

    def _take(self) -> Sequence[Given[Any]]:
        """Return the answers and forget them. As they refer to this object, keeping them would make a cycle."""
        answers, self._answers = self._answers, ()
        return answers


def then(answer: Given[T], finish: Callable[[T], U]) -> Given[U]:
    """Return the answer whose response is `finish(response)`, now or when `answer` is ready."""
    if not isinstance(answer, PendingAnswer):
        return finish(answer)
    return gathered([answer], lambda responses: finish(responses[0]))


def gathered(answers: Sequence[Given[T]], finish: Callable[[list[T]], U]) -> Given[U]:
    """Return the answer whose response is `finish(responses)`, now or when all `answers` are ready."""
    # If all are there no object has to be made.
    if not any(isinstance(answer, PendingAnswer) for answer in answers):
        return finish([_response(each) for each in answers])
    return _All(answers, finish)


async def finished(answer: Worked[Given[T]]) -> T:
    """Return the response of `answer`; wait for it if needed. A cancelled wait abandons the answer."""
    given: Given[T] = await answer if isinstance(answer, Coroutine) else answer
    if isinstance(given, PendingAnswer) and not given.is_ready:
        ready = trio.Event()
        given.on_ready = ready.set
        try:
            await ready.wait()
        except BaseException:  # also if the coroutine that awaits this is closed
            # A pending answer has to be taken or abandoned. Otherwise the objects that know each other are never
            # collected.
            given.abandon()
            raise
    return _response(given)


def _response(answer: Given[T]) -> T:
    if not isinstance(answer, PendingAnswer):
        return answer
    response: Any = answer.response()
    return cast("T", response)


HiddenTopics = Callable[[Iterable[str]], Awaitable[Iterable[str]]]
"""Find the topics that a client may not see. Yields if they are many."""


class Caller:
    """Sender of a request, who is answered now or later. A group that parks a request keeps its caller."""

    __slots__ = (
        "api_version",
        "client_host",
        "client_id",
        "hidden_topics",
        "is_abandonable",
        "is_answered",
        "parked_group_id",
        "parked_member_id",
        "pending",
        "refuse",
        "response",
    )

    def __init__(
        self,
        refuse: Callable[[ErrorCode], Any],
        *,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        hidden_topics: HiddenTopics | None = None,
        is_abandonable: bool = False,
    ) -> None:
        """`refuse` makes the response for an error. `hidden_topics` None: the client may see all topics.

        `is_abandonable`: the request may be dropped when its connection is closed.
        """
        self.refuse = refuse
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.hidden_topics = hidden_topics
        self.is_abandonable = is_abandonable
        self.is_answered = False  # a reply may wait for a commit before it goes out
        # Where the request is parked, so that it can be found again when its connection is gone.
        self.parked_group_id = ""
        self.parked_member_id = ""
        self.response: Any = None
        self.pending: PendingReply | None = None

    def answer(self, response: Any) -> None:
        if self.response is None:
            self.response = response
            self.is_answered = True
            # While `submit` still runs there is no pending answer: it returns the response itself.
            if self.pending is not None:
                self.pending.become_ready()

    def response_or_pending(self, abandon: Callable[[Caller], None]) -> Given[Any]:
        """Return the response, or a pending answer. The latter calls `abandon` if the peer disconnects."""
        if self.response is not None:
            return self.response
        self.pending = PendingReply(self, abandon)
        return self.pending


class Reply(NamedTuple):
    """Response to one request, with the caller to send it to."""

    caller: Caller
    response: object


class Queued(NamedTuple):
    """Queued request and its arrival time."""

    request: Any
    caller: Caller
    arrival_ms: int


class PendingReply(PendingAnswer[Any]):
    """Pending answer to a caller whose request is parked, queued, or waiting for a commit."""

    __slots__ = ("_abandon", "_caller")

    def __init__(self, caller: Caller, abandon: Callable[[Caller], None]) -> None:
        super().__init__()
        self._caller = caller
        self._abandon = abandon

    @property
    def is_abandonable(self) -> bool:
        return self._caller.is_abandonable

    def response(self) -> Any:
        # Caller and pending answer know each other. Such a circle would never be collected, so it ends here or in
        # `abandon`.
        self._caller.pending = None
        return self._caller.response

    def abandon(self) -> None:
        self._caller.pending = None
        if not self.is_ready:
            self._abandon(self._caller)


def send(replies: Iterable[Reply]) -> None:
    for caller, response in replies:
        caller.answer(response)


async def send_in_slices(replies: Iterable[Reply], time_slice: TimeSlice) -> None:
    """Send replies in time slices, between which other tasks run. All are sent even if this task is cancelled."""
    left = iter(replies)
    try:
        for reply in left:
            send((reply,))
            await time_slice.yield_if_over()
    finally:
        # Nobody else knows who is left when this is cancelled.
        send(left)


def refused(callers: Iterable[Caller], error: ErrorCode) -> Iterator[Reply]:
    """Yield a reply with this error for each caller."""
    for caller in callers:
        yield Reply(caller, caller.refuse(error))


# ---------------------------------------------------------------------- appends in flight


class InFlightAppend:
    """Append that may not be committed yet: the commit's awaitable, the records, and the replies to send then."""

    __slots__ = ("commit", "first_offset", "is_awaited", "records", "replies")

    def __init__(self, first_offset: int, commit: Coroutine[Any, Any, None] | None, records: list[Any]) -> None:
        """`commit`: the awaitable of the commit; None if the append is committed already."""
        self.first_offset = first_offset
        self.commit: Coroutine[Any, Any, None] = _no_wait() if commit is None else commit
        self.is_awaited = False
        self.records = records
        self.replies: list[Reply] = []


class InFlightAppends:
    """Appends of one partition that are not committed yet, in the order of the log."""

    def __init__(self) -> None:
        self._appends: deque[InFlightAppend] = deque()
        self._all_committed = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._appends)

    def add(self, append: InFlightAppend) -> None:
        self._appends.append(append)

    def reply_after(self, replies: list[Reply]) -> None:
        """Send replies when all records appended so far are committed."""
        if self._appends:
            self._appends[-1].replies += replies
        else:
            send(replies)

    async def first_committed(self) -> InFlightAppend:
        """Wait until the first append is committed, and return it. Raises the commit's KafkaError."""
        append = self._appends[0]
        append.is_awaited = True
        await append.commit
        return append

    def remove_first(self) -> None:
        self._appends.popleft()
        if not self._appends:
            self._all_committed.set()
            self._all_committed = trio.Event()

    async def wait_until_none(self) -> None:
        """Wait until all appends in flight are committed or abandoned."""
        if self._appends:
            await self._all_committed.wait()

    def abandon(self) -> list[InFlightAppend]:
        """Forget and return all appends in flight; the caller must answer their clients."""
        appends, self._appends = list(self._appends), deque()
        for append in appends:
            # A coroutine that nobody has begun to await has to be closed. The other one ends with its task.
            if not append.is_awaited:
                append.commit.close()
        self._all_committed.set()
        self._all_committed = trio.Event()
        return appends


async def _no_wait() -> None:
    """Return immediately: the commit of records that are committed already."""
