"""Rate-limited log lines: the first one at once, then one a minute with the number of those left out.

Everything that an unauthenticated peer, a full disk or a broken network can make the broker say without end is said through this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

INTERVAL_S = 60.0
KEPT_MAX = 1_000
SOURCE_MAX = 20
MORE = " (%d more like this since the last line)"

Log = Callable[..., Any]
"""A logger's method, such as `logger.warning`."""


def log_with_count(untold: int, log: Log, text: str, *arguments: object) -> None:
    """Log a line; append `untold`, the number of suppressed similar lines, unless it is 0."""
    if untold:
        log(text + MORE, *arguments, untold)
    else:
        log(text, *arguments)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an "s" unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Reminders:
    """Rate limits by name: each name, such as an address, is logged once a minute.

    At most `kept_max` names a minute have a limit of their own; all further names share one. `source` is the peer that
    chooses the names, such as a client that chooses client ids. At most SOURCE_MAX names of a source are logged in a
    minute, and its other names count as one name, so that a source cannot crowd out the names of others.
    """

    __slots__ = ("_clock_s", "_due", "_kept_max", "_names_of", "_others", "_source_of", "_untold")

    def __init__(self, kept_max: int = KEPT_MAX, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._kept_max = kept_max
        self._clock_s = clock_s
        self._due: dict[Hashable, float] = {}  # the one that was told of longest ago comes first
        self._untold: dict[Hashable, int] = {}
        self._source_of: dict[Hashable, Hashable] = {}
        self._names_of: dict[Hashable, dict[Hashable, None]] = {}  # of each source, in the order of `_due`
        self._others: Reminders | None = None

    def tell(self, name: Hashable, log: Log, text: str, *arguments: object, source: Hashable = None) -> None:
        """Log the line with `log`; if `name` was logged in the last minute, only count the line."""
        untold = self.untold(name, source)
        if untold is not None:
            log_with_count(untold, log, text, *arguments)

    def is_due(self, name: Hashable) -> bool:
        """Return True if a line about `name` may be logged now, else count it. Saves building a costly line in vain."""
        return self.untold(name) is not None

    def untold(self, name: Hashable, source: Hashable = None) -> int | None:
        """Return the number of lines suppressed since `name` was last logged; None if this line is to be suppressed."""
        now = self._clock_s()
        if name not in self._due:
            own = self._names_of.get(source, {})
            if len(own) >= SOURCE_MAX and not self._forgets_oldest(own, now):
                name, source = ("others of", source), None
        if name not in self._due and len(self._due) >= self._kept_max and not self._forgets_oldest(self._due, now):
            self._others = self._others or Reminders(1, self._clock_s)
            return self._others.untold(None)
        if now < self._due.get(name, -math.inf):
            self._untold[name] = self._untold.get(name, 0) + 1
            return None
        untold = self._untold.get(name, 0)
        self._forget(name)  # it goes behind all others
        self._due[name] = now + INTERVAL_S
        if source is not None:
            self._source_of[name] = source
            self._names_of.setdefault(source, {})[name] = None
        return untold

    def _forgets_oldest(self, names: Iterable[Hashable], now: float) -> bool:
        """Forget the oldest name if its minute is over; return True if it was forgotten."""
        oldest = next(iter(names))
        if self._due[oldest] > now:
            return False
        self._forget(oldest)
        return True

    def _forget(self, name: Hashable) -> None:
        self._due.pop(name, None)
        self._untold.pop(name, None)
        source = self._source_of.pop(name, None)
        if source is not None:
            own = self._names_of[source]
            del own[name]
            if not own:
                del self._names_of[source]


class Reminder:
    """Rate limit of one log line: once a minute."""

    __slots__ = ("_reminders",)

    def __init__(self) -> None:
        self._reminders = Reminders()

    def tell(self, log: Log, text: str, *arguments: object) -> None:
        """Log the line; if the last line is less than a minute old, only count it."""
        self._reminders.tell(None, log, text, *arguments)
