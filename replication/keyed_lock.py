"""Keyed lock: one lock per name, for tasks that change the same object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from trio.lowlevel import ParkingLot

from ottla.wire.time_slice import TimeSlice


class KeyedLock:
    """Locks by key. A lock exists only while tasks hold or await it; waiting tasks get it first come, first served."""

    def __init__(self) -> None:
        self._waiting: dict[str, ParkingLot | None] = {}  # for each name that is held; None: no task has waited for it

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all names; locks are taken in sorted order, so that two tasks cannot deadlock."""
        taken: list[str] = []
        time_slice = TimeSlice()
        try:
            for name in sorted(set(names)):
                await self._take(name)
                taken.append(name)
                await time_slice.yield_if_over()
            yield
        finally:
            for name in taken:
                self._pass_on(name)

    async def _take(self, name: str) -> None:
        # A request may have ten thousand names, nearly all of them free. Those cost no round of the event loop each.
        if name not in self._waiting:
            self._waiting[name] = None
            return
        lot = self._waiting[name] = self._waiting[name] or ParkingLot()
        await lot.park()

    def _pass_on(self, name: str) -> None:
        # The lock goes to the next in line without ever being free. Unused names must not pile up.
        if lot := self._waiting[name]:
            lot.unpark()
        else:
            del self._waiting[name]
