"""A thread that stands still while a test lets the rest of the broker go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio


class Held:
    """A thread of `owner` that waits before it does anything, or `after` it, until it is let go on."""

    def __init__(
        self, owner: Any, wanted: Callable[[Any, tuple[Any, ...]], bool] = lambda *_: True, *, after: bool = False
    ) -> None:
        self._run_in_thread = owner._run_in_thread
        self._wanted = wanted
        self._after = after
        self.has_arrived = trio.Event()
        self.may_go_on = trio.Event()
        self.is_over = trio.Event()
        owner._run_in_thread = self._run

    async def _run(self, function: Any, *arguments: Any) -> Any:
        # Only the first one: those that come later are as quick as ever.
        if self.has_arrived.is_set() or not self._wanted(function, arguments):
            return await self._run_in_thread(function, *arguments)
        if not self._after:
            await self._stand_still()
        try:
            result = await self._run_in_thread(function, *arguments)
            if self._after:
                await self._stand_still()
            return result
        finally:
            self.is_over.set()

    async def _stand_still(self) -> None:
        self.has_arrived.set()
        await self.may_go_on.wait()
