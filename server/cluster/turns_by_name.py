"""Turns of those who change the same thing, known by its name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio


class TurnsByName:
    """Locks that exist as long as somebody holds them."""

    def __init__(self) -> None:
        self._turns: dict[str, trio.Lock] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @asynccontextmanager
    async def of(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the turn of each name; taken in order, so that two requests cannot wait for each other."""
        taken: list[tuple[str, trio.Lock]] = []
        try:
            for name in sorted(set(names)):
                turn = self._turns.setdefault(name, trio.Lock())
                await turn.acquire()
                taken.append((name, turn))
            yield
        finally:
            for name, turn in taken:
                turn.release()
                # `release` gives the lock to the next in line. If it is free now nobody wants it, and names must not
                # pile up.
                if not turn.locked():
                    del self._turns[name]
