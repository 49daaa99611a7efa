"""Turns of those who change the same thing, known by its name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from trio.lowlevel import ParkingLot

from ottla.replication.slices import Slices


class TurnsByName:
    """Turns that exist as long as somebody holds them. Who comes first gets a turn first."""

    def __init__(self) -> None:
        self._waiting: dict[str, ParkingLot | None] = {}  # for each turn that is held; None: nobody has waited for it

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def of(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the turn of each name; taken in order, so that two requests cannot wait for each other."""
        taken: list[str] = []
        slices = Slices()
        try:
            for name in sorted(set(names)):
                await self._take(name)
                taken.append(name)
                await slices.give_way()
            yield
        finally:
            for name in taken:
                self._pass_on(name)

    async def _take(self, name: str) -> None:
        # A request may have ten thousand names, nearly all of them free. Those cost no turn of the event loop each.
        if name not in self._waiting:
            self._waiting[name] = None
            return
        lot = self._waiting[name] = self._waiting[name] or ParkingLot()
        await lot.park()

    def _pass_on(self, name: str) -> None:
        # The turn goes to the next in line without ever being free. Names that nobody wants must not pile up.
        if lot := self._waiting[name]:
            lot.unpark()
        else:
            del self._waiting[name]
