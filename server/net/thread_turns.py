"""Steps that may block, in threads: of one address one at a time, so that a crowd at one address holds up only itself.

Whoever leaves meanwhile is let go at once. The thread counts until its step is over, and so does the turn of the address: else
somebody who comes and leaves again and again would have all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

Result = TypeVar("Result")


class TurnsInThreads:
    """As many threads as `threads_max`."""

    def __init__(self, threads_max: int) -> None:
        self._threads = trio.CapacityLimiter(threads_max)
        self._turns: dict[str, _Turn] = {}

    async def run(self, address: str, step: Callable[[], Result]) -> Result:
        """What the step gives, or raises."""
        turn = self._turns.get(address)
        if turn is None:
            turn = self._turns[address] = _Turn(self._threads, self._turns, address)
        # The declaration of trio asks for its own class, and its documentation for these two methods.
        limiter: Any = turn
        try:
            return await trio.to_thread.run_sync(step, limiter=limiter, abandon_on_cancel=True)
        finally:
            turn.leave()


class _Turn:
    """Limits the steps of one address (for trio, which asks before a thread begins, and tells when it has ended)."""

    def __init__(self, threads: trio.CapacityLimiter, turns: dict[str, _Turn], address: str) -> None:
        self._threads, self._turns, self._address = threads, turns, address
        self._own = trio.CapacityLimiter(1)

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._threads.acquire_on_behalf_of(borrower)
        except BaseException:
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        self._threads.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)
        self.leave()

    def leave(self) -> None:
        """Somebody waits or works no longer. The last one of an address leaves nothing behind."""
        statistics = self._own.statistics()
        if not statistics.borrowed_tokens and not statistics.tasks_waiting:
            self._turns.pop(self._address, None)
