"""Signals by which an operator stops a broker.

    signal   while the broker starts    while it serves                          while it stops
    first    ends the start             asks it to hand over and to stop
    second                                                                       ends the hand-over; logs are flushed
    third                                                                        ends the process, whatever it is at

Who stops all brokers of a cluster together (`ottla cluster`, a supervisor of workers) sends each of them ALL_STOP first. None
hands over, because no broker will be left to lead. That others go is no news then: it is logged, but not as a warning. To the
other processes of a cluster, which lead nothing, ALL_STOP is a signal like the others. SIGHUP, which a closed terminal sends,
is a first signal as well, unless the process was started to ignore it, and never a second one: shell and kernel may each send it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

import trio

from ottla.server.serving_state import Stop

logger = logging.getLogger("ottla.broker")

EXIT_KILLED = 1
ALL_STOP = signal.SIGUSR2
TOGETHER_S: Final = 0.25  # until all brokers have heard of it, and expect each other to go
ABOUT_OTHERS: Final = tuple(
    f"ottla.{name}"
    for name in (
        "cluster", "controller", "coordination", "fetcher", "groupcoord", "peers", "producer_ids", "replication.controller", "transactions"
    )
)  # fmt: skip
"""Loggers that tell of other brokers."""

# Sent when the terminal is closed. Under `nohup` and its like the signal is ignored, and must not stop the process.
_HANG_UP: Final = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
STOPPING: Final = (signal.SIGTERM, signal.SIGINT, ALL_STOP, *_HANG_UP)


class StopSignals(Stop):
    """Stop of a broker, triggered by signals to the process such as SIGTERM."""

    def __init__(self, end_process: Callable[[int], object] = os._exit) -> None:
        super().__init__()
        self._end_process = end_process

    async def heed(self, signals: AsyncIterator[int]) -> None:
        """Handle the stop signals until cancelled."""
        try:
            await self._heed(signals)
        finally:
            for name in ABOUT_OTHERS:
                logging.getLogger(name).removeFilter(_as_expected)

    async def _heed(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            name = signal.Signals(number).name
            if number == signal.SIGHUP and self.requested.is_set():
                continue
            if number == ALL_STOP:
                await self._stop_with_all()
            elif not self.requested.is_set():
                logger.info("stopping on %s", name)
                self.requested.set()
            elif not self.immediate.is_set():
                logger.warning("stopping at once on a second signal, %s", name)
                self.immediate.set()
            else:
                logger.critical("ending without flushing the logs on a third signal, %s", name)
                self._end_process(EXIT_KILLED)

    async def _stop_with_all(self) -> None:
        for name in ABOUT_OTHERS:
            logging.getLogger(name).addFilter(_as_expected)
        # A service manager may have sent SIGTERM to each process, and then this one hands over already.
        if self.requested.is_set():
            return
        logger.info("stopping with all brokers of the cluster")
        self.hands_over = False
        await trio.sleep(TOGETHER_S)
        self.requested.set()


def _as_expected(record: logging.LogRecord) -> bool:
    if record.levelno == logging.WARNING:
        record.levelno, record.levelname = logging.INFO, "INFO"
        return logging.getLogger(record.name).isEnabledFor(logging.INFO)
    return True
