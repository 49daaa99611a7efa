"""Turns at work on metrics: one after the other, and of each owner only one stands in the line.

So a client waits for one piece of work of each of the others, however much of it somebody has brought. An owner is who can have
many clients: a principal that has logged in, or else an address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    """The lines of all owners, before the one in which each has one place."""

    def __init__(self) -> None:
        self._line = trio.Lock()  # first come, first served
        self._of_owner: dict[str, trio.Lock] = {}

    def __len__(self) -> int:
        """How many owners wait or work."""
        return len(self._of_owner)

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """While this owner has its turn."""
        own = self._of_owner.setdefault(owner, trio.Lock())
        try:
            async with own, self._line:
                yield
        finally:
            statistics = own.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._of_owner.pop(owner, None)
