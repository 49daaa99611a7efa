"""What systemd wants to hear of a service of Type=notify (sd_notify(3)), over the socket that NOTIFY_SOCKET names.

    state      it hears                     and then, again and again
    starting                                EXTEND_TIMEOUT_USEC: loading logs may take long
    serving    READY=1 when clients are     WATCHDOG=1, if the unit has WatchdogSec
    stopping   STOPPING=1                   EXTEND_TIMEOUT_USEC: handing over and flushing may take long

A task of the event loop says so. While the loop is stuck nothing is said, and systemd ends the process with SIGABRT, which
then writes the stacks of all threads to stderr. Nothing that fails here ends a broker.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

import trio

logger = logging.getLogger("ottla.broker")

INTERVAL_S: Final = 5.0
EXTENSION_S: Final = 30.0  # from each message on
_STARTING, _SERVING, _STOPPING = "starting", "serving", "stopping"


class ServiceManager:
    """The one that has started this process."""

    def __init__(self, address: str, watchdog_s: float | None) -> None:
        self.watchdog_s = watchdog_s
        self._state = _STARTING
        self._has_failed = False
        # A name that begins with @ is one of Linux' abstract ones.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> ServiceManager | None:
        """The one that the environment names, which children do not hear of; None: there is none."""
        address = environment.pop("NOTIFY_SOCKET", "")
        watched, watchdog_us = environment.pop("WATCHDOG_PID", ""), environment.pop("WATCHDOG_USEC", "")
        if not address.startswith(("/", "@")) or len(address) == 1:
            return None
        is_watched = watchdog_us.isdecimal() and int(watchdog_us) > 0 and watched in ("", str(os.getpid()))
        return cls(address, int(watchdog_us) / 1e6 if is_watched else None)

    def serving(self) -> None:
        """Clients are served from now on."""
        self._state = _SERVING
        self._tell("READY=1\nSTATUS=Serving clients\n" + self._beat())

    def stopping(self) -> None:
        """The broker was asked to stop."""
        self._state = _STOPPING
        self._tell("STOPPING=1\nSTATUS=Handing over and flushing\n" + self._beat())

    async def keep_informed(self) -> None:
        """Until cancelled."""
        if self.watchdog_s is not None:
            faulthandler.enable()
        while True:
            self.beat()
            await trio.sleep(self.interval_s)

    @property
    def interval_s(self) -> float:
        """How often it is to hear something: twice in the time that is allowed, as sd_watchdog_enabled(3) recommends."""
        return min(INTERVAL_S, (self.watchdog_s or INTERVAL_S * 2) / 2)

    def beat(self) -> None:
        """Tell that this process goes on, if that is waited for."""
        if beat := self._beat():
            self._tell(beat)

    def _beat(self) -> str:
        watchdog = "" if self.watchdog_s is None else "WATCHDOG=1\n"
        return watchdog if self._state is _SERVING else f"{watchdog}EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}\n"

    def _tell(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # a manager that does not listen holds nobody up
                sock.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("the service manager at NOTIFY_SOCKET does not hear: %s", error)
