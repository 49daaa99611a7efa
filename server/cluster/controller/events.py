"""Event queue of the active controller: one thing after the other, in the order in which it came up.

A *look* is at something in the tree that may have changed; one that waits already is not asked for twice. Somebody waits
for the outcome of a *request*, and gets NOT_CONTROLLER if the controller resigns first. Who does not wait any longer takes
a request back that has not begun; one that has begun is carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
Action = Callable[[], Awaitable[Any]]


class _Request:
    """Controller action with a caller that waits for the outcome.

    A failure is stored as code and message, not as an exception: its stack frames would refer back to this object, and
    neither would be freed.
    """

    __slots__ = ("_action", "_refusal", "_settled", "_value", "has_begun")

    def __init__(self, action: Action) -> None:
        self.has_begun = False
        self._action = action
        self._settled = trio.Event()
        self._refusal: tuple[ErrorCode, str | None] | None = None
        self._value: Any = None

    async def __call__(self) -> None:
        """Carry out the action. A KafkaError is raised in the caller, any other error in the controller."""
        self.has_begun = True
        try:
            self._value = await self._action()
        except KafkaError as error:
            # What else is raised ends the controller, and `close` refuses the request.
            self._refusal = error.code, error.message
        self._settled.set()

    def refuse(self) -> None:
        self._refusal = ErrorCode.NOT_CONTROLLER, None
        self._settled.set()

    async def outcome(self) -> Any:
        await self._settled.wait()
        if self._refusal is not None:
            raise KafkaError(*self._refusal)
        return self._value


class ControllerEvents:
    """The controller's event queue: many tasks add events, and one task carries them out."""

    def __init__(self) -> None:
        self._queue: deque[tuple[str | None, Action]] = deque()
        self._waiting: set[str] = set()
        self._requests: set[_Request] = set()
        self._arrived = trio.Event()
        self._is_over = False

    @property
    def is_anything_waiting(self) -> bool:
        return bool(self._queue)

    def look(self, key: str, action: Action) -> None:
        """Queue `action`, which reads the state named by `key`. Do nothing if such a read is queued already."""
        # A look reads everything that its key stands for, so one that waits covers later changes as well.
        if key not in self._waiting:
            self._waiting.add(key)
            self._put(key, action)

    def put(self, action: Action) -> None:
        self._put(None, action)

    async def ask(self, action: Callable[[], Awaitable[T]], *, to_the_end: bool = False) -> T:
        """Queue an action, wait for its outcome and return it. Raises KafkaError.

        If the caller is cancelled before the action begins, the action is dropped. With `to_the_end`, cancellation
        after the beginning is ignored, so that Cancelled means: nothing was done.
        """
        if self._is_over:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        request = _Request(action)
        self._requests.add(request)
        self._put(None, request)
        try:
            outcome: T = await self._outcome(request, to_the_end)
        finally:
            self._requests.discard(request)
        return outcome

    async def _outcome(self, request: _Request, to_the_end: bool) -> Any:
        try:
            return await request.outcome()
        except trio.Cancelled:
            if (None, request) in self._queue:
                self._queue.remove((None, request))
            if not (request.has_begun and to_the_end):
                raise
        with trio.CancelScope(shield=True):
            return await request.outcome()

    def _put(self, key: str | None, action: Action) -> None:
        if not self._is_over:
            self._queue.append((key, action))
            self._arrived.set()

    async def next(self) -> Action:
        """Yield to other tasks, then wait for the next action and return it."""
        await trio.lowlevel.checkpoint()
        while not self._queue:
            self._arrived = trio.Event()
            await self._arrived.wait()
        key, action = self._queue.popleft()
        if key is not None:
            # Before the look begins: a change that comes during it leads to another look.
            self._waiting.discard(key)
        return action

    def close(self) -> None:
        """Refuse all queued and all later requests with NOT_CONTROLLER."""
        self._is_over = True
        self._queue.clear()
        for request in self._requests:
            request.refuse()
