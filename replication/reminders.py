"""Log lines about what lasts: once when it begins, and once a minute while it goes on."""

from __future__ import annotations

import time

INTERVAL_S = 60.0


class Reminder:
    """Says whether it is time to tell of something again."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self) -> bool:
        """True at the first call, and then at most once a minute."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + INTERVAL_S
        return True
