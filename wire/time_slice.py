"""Time slices of long work: on the event loop it pauses after each slice, in a thread it yields the interpreter lock."""

import time
from collections.abc import Callable, Generator
from typing import TypeVar

import trio

SLICE_S = 0.002
"""Time that one piece of work may hold the event loop. All other limits of that kind are multiples of this one.

By the clock, not by records or elements: where rounds of the loop are long, one pause for each of ten thousand batches would take
ten seconds.
"""

T = TypeVar("T")


class TimeSlice:
    """Time slice of a long-running task, which calls `await time_slice.yield_if_over()` after each piece of work."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a new time slice, after other tasks have run."""
        # Real time and not trio's clock: what counts is how long the event loop is really held.
        self._until = time.perf_counter() + SLICE_S

    def is_over(self) -> bool:
        """Tell whether the time slice is over."""
        return time.perf_counter() >= self._until

    async def take(self, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end and return its result. Whenever a slice is over, yield to other tasks."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_over():
                await self.yield_if_over()

    async def yield_if_over(self) -> None:
        """Yield to other tasks if this time slice is over, and then begin a new one."""
        if self.is_over():
            await trio.lowlevel.checkpoint()
            self.begin()


# --- threads ----------------------------------------------------------------------------------------------------------

PIECE_S = 0.001


def let_others_run() -> None:
    """Release the interpreter lock for long enough that a waiting thread gets it.

    A busy thread keeps the lock for milliseconds. If it releases the lock often, but for less time than another thread
    needs to wake up, it may keep it until its work is done: CPython forces a release only after a while without one.
    """
    time.sleep(0)


def paced(give_way: Callable[[], None] = let_others_run) -> Callable[[], None]:
    """Return a function to call after each piece of work. It calls the costly `give_way` at most once per ms."""
    until = 0.0

    def give_way_when_due() -> None:
        nonlocal until
        now = time.perf_counter()
        if now >= until:
            give_way()
            until = time.perf_counter() + PIECE_S

    return give_way_when_due
