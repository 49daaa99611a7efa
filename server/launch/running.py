"""A broker's process: signals, descriptor limit, interpreter settings and systemd notifications."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication import system
from ottla.replication.log.descriptors import Descriptors, raise_limit
from ottla.server.launch.signals import STOPPING, StopSignals
from ottla.server.serving import StartupError, checked_limit, serve

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.config.broker_config import BrokerConfig

logger = logging.getLogger("ottla.broker")

NEVER = 2**31 - 1
SWITCH_SECONDS = 0.0005
"""Seconds after which a computing thread yields to others: the event loop is not to wait for threads."""


async def run_broker(config: BrokerConfig, *, on_ready: Callable[[Broker], None]) -> None:
    """Run a broker until a signal stops it (`signals.py`). Raises StartupError if it cannot start or its disks fail."""
    problem: StartupError | KeyboardInterrupt | None = None
    with trio.open_signal_receiver(*STOPPING) as signals:
        descriptors, stop = Descriptors(checked_limit(raise_limit())), StopSignals()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.heed, signals)
            if "NOTIFY_SOCKET" in os.environ:
                on_ready = _telling_service_manager(nursery, stop, on_ready)
            try:
                await serve(
                    config, stop=stop, on_ready=on_ready, before_serving=settle_interpreter, descriptors=descriptors
                )
            except (StartupError, KeyboardInterrupt) as error:
                # Raised outside the nursery, which would wrap it into a group.
                problem = error
            nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


def _telling_service_manager(
    nursery: trio.Nursery, stop: StopSignals, on_ready: Callable[[Broker], None]
) -> Callable[[Broker], None]:
    manager = ServiceManager.of(os.environ)
    if manager is None:
        return on_ready

    async def tell_of_stop() -> None:
        await stop.requested.wait()
        manager.stopping()

    def tell(broker: Broker) -> None:
        on_ready(broker)
        manager.serving()

    nursery.start_soon(manager.keep_informed)
    nursery.start_soon(tell_of_stop)
    return tell


def settle_interpreter() -> None:
    """Configure the interpreter so that it does not block the event loop for long.

    Young objects are collected few at a time: a thousand take up to a millisecond, and requests may hold millions. A
    full collection would take 0.1 s and find nothing: old objects are topics, partitions and groups, and cycles are
    broken where they arise (`make siege` counts them). Computing threads yield sooner; unused memory returns to the
    system.
    """
    system.keep_little_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    # What is there stays, and is not looked at again. To look for what does not would take a tenth of the start, and find next to nothing.
    gc.freeze()
    gc.set_threshold(2_000, 3, NEVER)


INTERVAL_S: Final = 5.0
EXTENSION_S: Final = 30.0  # from each message on
_STARTING, _SERVING, _STOPPING = "starting", "serving", "stopping"


class ServiceManager:
    """Notifier of the systemd that has started this process as a service of Type=notify (sd_notify(3)).

    state      sent once                    sent again and again
    starting                                EXTEND_TIMEOUT_USEC: loading logs may take long
    serving    READY=1 when clients are     WATCHDOG=1, if the unit has WatchdogSec
    stopping   STOPPING=1                   EXTEND_TIMEOUT_USEC: controlled shutdown and flushing may take long

    The messages go to the socket of NOTIFY_SOCKET, from a task of the event loop. If the loop is stuck, no message is
    sent, and systemd ends the process with SIGABRT; the process then writes the stacks of all threads to stderr. A
    message that cannot be sent never ends a broker.
    """

    def __init__(self, address: str, watchdog_s: float | None) -> None:
        self.watchdog_s = watchdog_s
        self._state = _STARTING
        self._has_failed = False
        # A name that begins with @ is one of Linux' abstract ones.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> ServiceManager | None:
        """Create the notifier for the socket in NOTIFY_SOCKET; None if the variable is not set.

        systemd's variables are removed from `environment`, so that child processes do not inherit them.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        watched, watchdog_us = environment.pop("WATCHDOG_PID", ""), environment.pop("WATCHDOG_USEC", "")
        if not address.startswith(("/", "@")) or len(address) == 1:
            return None
        is_watched = watchdog_us.isdecimal() and int(watchdog_us) > 0 and watched in ("", str(os.getpid()))
        return cls(address, int(watchdog_us) / 1e6 if is_watched else None)

    def serving(self) -> None:
        """Tell systemd that the broker serves clients from now on."""
        self._state = _SERVING
        self._tell("READY=1\nSTATUS=Serving clients\n" + self._beat())

    def stopping(self) -> None:
        """Tell systemd that the broker has begun to stop."""
        self._state = _STOPPING
        self._tell("STOPPING=1\nSTATUS=Handing over and flushing\n" + self._beat())

    async def keep_informed(self) -> None:
        """Send the repeated messages to systemd until cancelled."""
        if self.watchdog_s is not None:
            faulthandler.enable()
        while True:
            self.beat()
            await trio.sleep(self.interval_s)

    @property
    def interval_s(self) -> float:
        """Seconds between two repeated messages: half the allowed time, as sd_watchdog_enabled(3) recommends."""
        return min(INTERVAL_S, (self.watchdog_s or INTERVAL_S * 2) / 2)

    def beat(self) -> None:
        """Send the repeated message of the present state, if there is one."""
        if beat := self._beat():
            self._tell(beat)

    def _beat(self) -> str:
        watchdog = "" if self.watchdog_s is None else "WATCHDOG=1\n"
        return watchdog if self._state is _SERVING else f"{watchdog}EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}\n"

    def _tell(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # a manager that does not listen blocks nothing
                sock.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("the service manager at NOTIFY_SOCKET does not hear: %s", error)
