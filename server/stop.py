"""How a broker is asked to stop, whoever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class Stop:
    """`asked`: hand over and stop. `at_once`: stop without handing over; the logs are flushed all the same."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.at_once = trio.Event()
        self.hands_over = True
        """Whether somebody is left to hand over to: not if all brokers stop together."""

    async def unless(self, event: trio.Event, work: Callable[[], Awaitable[object]]) -> bool:
        """Do some work, cancelled when `event` happens; answers whether it was done."""
        is_done = False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await work()
            # Not reached when `event` has cancelled the work.
            is_done = True
            nursery.cancel_scope.cancel()
        return is_done
