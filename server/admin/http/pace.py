"""The share of the event loop that the HTTP endpoint takes: pieces of some milliseconds, and a third of the time at most.

So however many ask, and however much, clients of the broker keep the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ottla.wire.time_slice import SLICE_S, TimeSlice

REST = 2.0  # how long the endpoint works nothing after a piece of work, in lengths of that piece
REST_MAX_S = 0.05
REQUEST_S = 0.0003  # what a short request takes, with its answer


class Pace:
    """Paces all work of the endpoint. `PIECE_S` is how long a piece of work should take."""

    PIECE_S = 2 * SLICE_S

    def __init__(self) -> None:
        self._line = trio.Lock()  # first come, first served
        self._rested_at = 0.0

    async def request(self) -> None:
        """Return when another request may be read and answered; what that costs is paid in advance."""
        await self.pay(REQUEST_S)

    async def pay(self, worked_s: float) -> None:
        """Return when the endpoint may work for so many seconds, after which it rests."""
        async with self._line:
            await self._until_rested()
            self._rested_at = trio.current_time() + worked_s + min(worked_s * REST, REST_MAX_S)

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Do a piece of work that does not await: whoever reads an answer slowly holds up nobody meanwhile."""
        async with self._line:
            await self._until_rested()
            begun = trio.current_time()
            try:
                yield
            finally:
                ended = trio.current_time()
                self._rested_at = ended + min((ended - begun) * REST, REST_MAX_S)

    async def _until_rested(self) -> None:
        await trio.sleep_until(self._rested_at)


class PacedTimeSlice(TimeSlice):
    """A time slice of a long HTTP answer: each pause lasts until the endpoint may work again, so all answers together stay in its share."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    async def yield_if_over(self) -> None:
        """Wait for the endpoint's share of the loop if this slice is over, and begin another one."""
        if self.is_over():
            await self._pace.pay(SLICE_S)
            self.begin()
