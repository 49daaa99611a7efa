"""Turns for long answers: some milliseconds of work, then others, and a third of the time at most for all answers together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

REST = 2.0  # how long the endpoint works nothing after a turn, in lengths of that turn
REST_MAX_S = 0.05


class Pace:
    """One for the whole endpoint. `TURN_S` is how long a piece of work should take."""

    TURN_S = 0.004

    def __init__(self) -> None:
        self._turn = trio.Lock()  # first come, first served
        self._rested_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Work that does not await. Whoever reads an answer slowly has no turn meanwhile, and holds up nobody."""
        async with self._turn:
            while (rest := self._rested_at - trio.current_time()) > 0:
                await trio.sleep(rest)
            begun = trio.current_time()
            try:
                yield
            finally:
                ended = trio.current_time()
                self._rested_at = ended + min((ended - begun) * REST, REST_MAX_S)
