"""Many deadlines, one task: what is to be called when the time of a waiting request is over.

Deadlines are rounded up to `TICK_S` and share a list per tick, so that thousands of requests that are answered in time
cost neither a task nor a search. Kafka's timing wheel does the same.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable

import trio

logger = logging.getLogger("ottla.server")

TICK_S = 0.01


class Deadline:
    """Scheduled call, returned by `Deadlines.add`. When it is made or cancelled, `call` becomes `_nothing`.

    A waiting request refers to its deadline and `call` to the request. This reference cycle must be broken: else
    answered requests are left to the garbage collector, which stops the broker for milliseconds.
    """

    __slots__ = ("call", "tick")

    def __init__(self, tick: int, call: Callable[[], None]) -> None:
        self.tick, self.call = tick, call


class Deadlines:
    """Timer of one event loop: makes scheduled calls in the task that runs `run`."""

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[Deadline, None]] = {}  # in the order in which they were asked for
        self._ticks: list[int] = []  # a heap of the keys above; some may be gone there already
        self._is_earlier = trio.Event()

    def add(self, seconds: float, call: Callable[[], None]) -> Deadline:
        """Schedule a call after this number of seconds, or up to one tick later; return the deadline for `cancel`."""
        tick = math.ceil((trio.current_time() + seconds) / TICK_S)
        deadline = Deadline(tick, call)
        same_tick = self._by_tick.get(tick)
        if same_tick is None:
            self._by_tick[tick] = {deadline: None}
            if not self._ticks or tick < self._ticks[0]:
                # The task sleeps until a later tick, and has to be woken for this one.
                self._is_earlier.set()
            heapq.heappush(self._ticks, tick)
        else:
            same_tick[deadline] = None
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancel a scheduled call; do nothing if it was made."""
        # Lets go of the request (`Deadline` says why), and stops the call if its tick is being called right now.
        deadline.call = _nothing
        same_tick = self._by_tick.get(deadline.tick)
        if same_tick is not None:
            same_tick.pop(deadline, None)
            if not same_tick:
                # The tick stays in the heap, where it could only be searched for. `run` drops it when it is the first.
                del self._by_tick[deadline.tick]

    async def run(self) -> None:
        """Make scheduled calls when they are due, until this task is cancelled."""
        while True:
            # Made before the heap is read: whatever is added later sets it.
            self._is_earlier = trio.Event()
            while self._ticks and self._ticks[0] not in self._by_tick:
                heapq.heappop(self._ticks)
            wakes_at = self._ticks[0] * TICK_S if self._ticks else math.inf
            with trio.move_on_at(wakes_at):
                await self._is_earlier.wait()
            if trio.current_time() >= wakes_at:
                self._call_due()

    def _call_due(self) -> None:
        tick = heapq.heappop(self._ticks)
        # Taken out first: a call may cancel other deadlines, or add one.
        for deadline in self._by_tick.pop(tick, ()):
            call, deadline.call = deadline.call, _nothing
            try:
                call()
            except Exception:  # a bug of one request ends neither the waits of all others nor the broker
                logger.exception("bug: the end of a wait")


def _nothing() -> None:
    """Do nothing, in place of a call that was made or cancelled."""
