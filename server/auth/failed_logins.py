"""What the log says of failed logins: the first of an address at once, and then once a minute how many there were.

Whoever tries passwords from many addresses fills neither the log nor the memory (`replication/reminders.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ottla.replication.reminders import KEPT_MAX, Reminders

logger = logging.getLogger("ottla.auth")

ADDRESSES_MAX = KEPT_MAX


class FailedLogins:
    """Those of all listeners. `clock_s` gives the time in seconds of any clock that only goes forward."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._reminders = Reminders(ADDRESSES_MAX, clock_s)

    def note(self, address: str, reason: str) -> None:
        """Somebody at this address could not log in."""
        self._reminders.tell(address, logger.warning, "failed authentication of %s: %s", address, reason)
