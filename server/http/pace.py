"""Turns for the work of the endpoint: some milliseconds, then others, and a third of the time at most for all of it together.

So however many ask, and however much, clients of the broker keep the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

REST = 2.0  # how long the endpoint works nothing after a turn, in lengths of that turn
REST_MAX_S = 0.05
REQUEST_S = 0.0003  # what a short request takes, with its answer


class Pace:
    """One for the whole endpoint. `TURN_S` is how long a piece of work should take."""

    TURN_S = 0.004

    def __init__(self) -> None:
        self._turn = trio.Lock()  # first come, first served
        self._rested_at = 0.0

    async def request(self) -> None:
        """Return when another request may be read and answered; what that costs is paid in advance."""
        await self.pay(REQUEST_S)

    async def pay(self, worked_s: float) -> None:
        """Return when the endpoint may work for so many seconds, after which it rests."""
        async with self._turn:
            await self._until_rested()
            self._rested_at = trio.current_time() + worked_s + min(worked_s * REST, REST_MAX_S)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Work that does not await. Whoever reads an answer slowly has no turn meanwhile, and holds up nobody."""
        async with self._turn:
            await self._until_rested()
            begun = trio.current_time()
            try:
                yield
            finally:
                ended = trio.current_time()
                self._rested_at = ended + min((ended - begun) * REST, REST_MAX_S)

    async def _until_rested(self) -> None:
        await trio.sleep_until(self._rested_at)
