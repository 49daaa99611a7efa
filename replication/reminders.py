"""Log lines about what goes on or happens again and again: at once, then once a minute with how often it came meanwhile.

Everything that a stranger, a full disk or a broken network can make the broker say without end is said through this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Any

INTERVAL_S = 60.0
KEPT_MAX = 1_000
MORE = " (%d more like this since the last line)"

Log = Callable[..., Any]
"""A logger's method, such as `logger.warning`."""


def log_with_count(untold: int, log: Log, text: str, *arguments: object) -> None:
    """Log the line, and behind it how many like it were not logged."""
    if untold:
        log(text + MORE, *arguments, untold)
    else:
        log(text, *arguments)


class Reminders:
    """Reminders of many things, such as addresses. Of no more than `kept_max` in a minute; others count as one."""

    __slots__ = ("_clock_s", "_due", "_kept_max", "_others", "_untold")

    def __init__(self, kept_max: int = KEPT_MAX, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._kept_max = kept_max
        self._clock_s = clock_s
        self._due: dict[Hashable, float] = {}  # the one that was told of longest ago comes first
        self._untold: dict[Hashable, int] = {}
        self._others: Reminders | None = None

    def tell(self, name: Hashable, log: Log, text: str, *arguments: object) -> None:
        """Log the line, or only count it, if the last one about `name` is not a minute old. `text` is what `log` takes."""
        untold = self.untold(name)
        if untold is not None:
            log_with_count(untold, log, text, *arguments)

    def is_due(self, name: Hashable) -> bool:
        """Whether a line about `name` may be logged now, for those that have to do more than that then."""
        return self.untold(name) is not None

    def untold(self, name: Hashable) -> int | None:
        """How many lines were not logged since the last one, if one is due now; None: it is not, and this one is counted."""
        now = self._clock_s()
        if name not in self._due and len(self._due) >= self._kept_max and not self._forgets_oldest(now):
            self._others = self._others or Reminders(1, self._clock_s)
            return self._others.untold(None)
        if now < self._due.get(name, -math.inf):
            self._untold[name] = self._untold.get(name, 0) + 1
            return None
        self._due.pop(name, None)  # behind all others
        self._due[name] = now + INTERVAL_S
        return self._untold.pop(name, 0)

    def _forgets_oldest(self, now: float) -> bool:
        """Make room for another one, if the minute of the oldest is over."""
        oldest, due = next(iter(self._due.items()))
        if due > now:
            return False
        del self._due[oldest]
        self._untold.pop(oldest, None)
        return True


class Reminder:
    """A reminder of one thing."""

    __slots__ = ("_reminders",)

    def __init__(self) -> None:
        self._reminders = Reminders()

    def tell(self, log: Log, text: str, *arguments: object) -> None:
        """Log the line, or only count it, if the last one is not a minute old."""
        self._reminders.tell(None, log, text, *arguments)
