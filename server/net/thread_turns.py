"""Steps that may block, in threads: of one address one at a time, so that a crowd at one address holds up only itself.

Whoever leaves meanwhile is let go at once, and the thread counts until its step is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

Result = TypeVar("Result")


class TurnsInThreads:
    """As many threads as `threads_max`."""

    def __init__(self, threads_max: int) -> None:
        self._threads = trio.CapacityLimiter(threads_max)
        self._turns: dict[str, trio.Lock] = {}

    async def run(self, address: str, step: Callable[[], Result]) -> Result:
        """What the step gives, or raises."""
        turn = self._turns.setdefault(address, trio.Lock())
        try:
            async with turn:
                return await trio.to_thread.run_sync(step, limiter=self._threads, abandon_on_cancel=True)
        finally:
            # The last one of an address leaves nothing behind.
            statistics = turn.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._turns.pop(address, None)
