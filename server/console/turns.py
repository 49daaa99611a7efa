"""Long answers of the console are made in slices, and each is paid for with the time of the whole endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.slices import SLICE_S, Slices

if TYPE_CHECKING:
    from ottla.server.http.pace import Pace


class PacedSlices(Slices):
    """As `Slices`; however many answers are made at once, all of them together leave clients their part of the loop."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    async def give_way(self) -> None:
        """Let others run if this slice is used up."""
        if self.is_used_up():
            await self._pace.pay(SLICE_S)
            self.begin()
