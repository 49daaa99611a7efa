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
from collections.abc import AsyncIterator, Callable

from ottla.server.stop import Stop

logger = logging.getLogger("ottla.broker")

EXIT_KILLED = 1


class StopSignals(Stop):
    """See the module's docstring."""

    def __init__(self, end_process: Callable[[int], object] = os._exit) -> None:
        super().__init__()
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
