"""Steps that may block, in threads: of one address one at a time, so that a crowd at one address holds up only itself.

Whoever leaves meanwhile is let go at once. The thread counts until its step is over, and so does the place of the address: else
somebody who comes and leaves again and again would have all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

Result = TypeVar("Result")


class AddressThreads:
    """At most `threads_max` threads, and one at a time for each address."""

    def __init__(self, threads_max: int) -> None:
        self._threads = trio.CapacityLimiter(threads_max)
        self._limiters: dict[str, _Limiter] = {}

    async def run(self, address: str, step: Callable[[], Result]) -> Result:
        """Run a step in a thread, and return its result."""
        of_address = self._limiters.get(address)
        if of_address is None:
            of_address = self._limiters[address] = _Limiter(self._threads, self._limiters, address)
        # The declaration of trio asks for its own class, and its documentation for these two methods.
        limiter: Any = of_address
        try:
            return await trio.to_thread.run_sync(step, limiter=limiter, abandon_on_cancel=True)
        finally:
            of_address.leave()


class _Limiter:
    """Limits the steps of one address; trio asks it before a thread begins, and tells it when the thread has ended."""

    def __init__(self, threads: trio.CapacityLimiter, limiters: dict[str, _Limiter], address: str) -> None:
        self._threads, self._limiters, self._address = threads, limiters, address
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
            self._limiters.pop(self._address, None)
