"""Timed calls of one task, and channels whose messages take their time."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count

import trio

Call = Callable[[], None]


class Agenda:
    """Timed calls, made by one task; equal times keep their order of registration."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Call]] = []
        self._numbers = count()  # the order within one time, and calls themselves cannot be compared
        self._earlier = trio.Event()

    def at(self, when: float, call: Call) -> None:
        number = next(self._numbers)
        heapq.heappush(self._due, (when, number, call))
        # The task sleeps until the first call is due. It has to know of an earlier one.
        if self._due[0][1] == number:
            self._earlier.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make the calls until cancelled."""
        task_status.started()
        while True:
            while self._due and self._due[0][0] <= trio.current_time():
                heapq.heappop(self._due)[2]()
            # After the calls, and without an await before the sleep: a call may have asked for others.
            self._earlier = trio.Event()
            with trio.move_on_at(self._due[0][0] if self._due else math.inf):
                await self._earlier.wait()


class Pipe:
    """One-way message channel: delayed messages in order, held back while blocked."""

    def __init__(self, agenda: Agenda, delay: Callable[[], float], *, blocked: bool = False) -> None:
        self._agenda, self._delay = agenda, delay
        self._messages: deque[Call] = deque()
        self._held = 0  # so many of the last messages have not set out
        self._last = -math.inf
        self._blocked = blocked
        self._closed = False

    def send(self, deliver: Call) -> None:
        if self._closed:
            return
        self._messages.append(deliver)
        if self._blocked:
            self._held += 1
        else:
            self._set_out()

    def block(self) -> None:
        """Hold back later messages; those already sent arrive."""
        self._blocked = True

    def unblock(self) -> None:
        self._blocked = False
        held, self._held = self._held, 0
        for _ in range(held):
            self._set_out()

    def close(self, still_arrive: float = 0.0) -> None:
        """Accept no more messages; deliver only this leading share of those in transit."""
        self._closed = True
        # The last messages are lost, as when a connection breaks: a
        # receiver has the beginning of what was sent, never gaps.
        keep = int((len(self._messages) - self._held) * still_arrive)
        self._held = 0
        while len(self._messages) > keep:
            self._messages.pop()

    def _set_out(self) -> None:
        # A shorter delay must not let a message overtake the one before it.
        self._last = max(self._last, trio.current_time() + self._delay())
        self._agenda.at(self._last, self._arrive)

    def _arrive(self) -> None:
        # The pipe may have been closed since this was planned, and its message dropped.
        if len(self._messages) > self._held:
            self._messages.popleft()()
