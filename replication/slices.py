"""Long work on the event loop, done in slices so that requests are served in between."""

import time
from collections.abc import Generator
from typing import TypeVar

import trio

SLICE_S = 0.002  # how long background work holds the event loop at a time


T = TypeVar("T")


class Slices:
    """Lets a long loop give way: `await slices.give_way()` after each piece of work."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Others had their turn, however long that was: another slice begins."""
        # Real time and not trio's clock: what counts is how long the event loop is really held.
        self._until = time.perf_counter() + SLICE_S

    def is_used_up(self) -> bool:
        """Whether it is time to give way."""
        return time.perf_counter() >= self._until

    async def take(self, steps: Generator[None, None, T]) -> T:
        """Take one step after the other, and let others run when a slice is used up; gives what they come to."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_used_up():
                await trio.lowlevel.checkpoint()
                self.begin()

    async def give_way(self) -> None:
        """Let others run if this slice is used up."""
        if self.is_used_up():
            await trio.lowlevel.checkpoint()
            self.begin()
