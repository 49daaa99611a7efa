"""Time slices: long work on the event loop pauses after each, so that requests are served in between."""

import time
from collections.abc import Generator
from typing import TypeVar

import trio

SLICE_S = 0.002
"""Time that one piece of work may hold the event loop. All other limits of that kind are multiples of this one.

By the clock, not by records or elements: where rounds of the loop are long, one pause for each of ten thousand batches would take
ten seconds.
"""

T = TypeVar("T")


class TimeSlice:
    """The present slice of a task that has much to do: `await time_slice.yield_if_over()` after each piece of work."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin another slice, because others were served, however long that took."""
        # Real time and not trio's clock: what counts is how long the event loop is really held.
        self._until = time.perf_counter() + SLICE_S

    def is_over(self) -> bool:
        """Tell whether it is time to pause."""
        return time.perf_counter() >= self._until

    async def take(self, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end and return its result; pause between its steps where a slice is over."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_over():
                await self.yield_if_over()

    async def yield_if_over(self) -> None:
        """Let other tasks run if this slice is over, and begin another one."""
        if self.is_over():
            await trio.lowlevel.checkpoint()
            self.begin()
