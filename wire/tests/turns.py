"""Counts the turns of other tasks while some work goes on, for tests of what gives way to others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    """How many turns there were."""

    def __init__(self) -> None:
        self.count = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    """Another task runs beside the body of the block, and counts its turns."""
    turns = Turns()

    async def take_turns() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns.count += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        yield turns
        nursery.cancel_scope.cancel()
