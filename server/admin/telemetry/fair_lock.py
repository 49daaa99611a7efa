"""A lock that is fair to owners: of all tasks of one owner only one stands in the line.

So a client waits for one piece of work of each of the others, however much of it somebody has brought. An owner is who can have
many clients: a principal that has logged in, or else an address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class FairLock:
    """A lock for all, behind a lock for each owner."""

    def __init__(self) -> None:
        self._line = trio.Lock()  # first come, first served
        self._of_owner: dict[str, trio.Lock] = {}

    def __len__(self) -> int:
        """Count the owners that wait or work."""
        return len(self._of_owner)

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Hold the lock for this owner."""
        own = self._of_owner.setdefault(owner, trio.Lock())
        try:
            async with own, self._line:
                yield
        finally:
            statistics = own.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._of_owner.pop(owner, None)
