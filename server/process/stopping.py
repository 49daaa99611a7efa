"""How an operator's signals stop a broker.

    signal   while the broker starts    while it serves                          while it stops
    first    ends the start             asks it to hand over and to stop
    second                                                                       ends the hand-over; logs are flushed
    third                                                                        ends the process, whatever it is at
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

logger = logging.getLogger("ottla.broker")

EXIT_KILLED = 1


class StopSignals:
    """See the module's docstring."""

    def __init__(self, end_process: Callable[[int], object] = os._exit) -> None:
        self.asked = trio.Event()
        self.at_once = trio.Event()
        self._end_process = end_process

    async def heed(self, signals: AsyncIterator[int]) -> None:
        """Take signals as they come; until cancelled."""
        async for number in signals:
            name = signal.Signals(number).name
            if not self.asked.is_set():
                logger.info("stopping on %s", name)
                self.asked.set()
            elif not self.at_once.is_set():
                logger.warning("stopping at once on a second signal, %s", name)
                self.at_once.set()
            else:
                logger.critical("ending without flushing the logs on a third signal, %s", name)
                self._end_process(EXIT_KILLED)

    async def unless(self, event: trio.Event, work: Callable[[], Awaitable[object]]) -> bool:
        """Do some work, cancelled when `event` happens; answers whether it was done."""
        is_done = False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await work()
            is_done = True
            nursery.cancel_scope.cancel()
        return is_done
