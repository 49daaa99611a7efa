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


class Reminders:
    """The same for each of many, such as addresses. Of very many the oldest are forgotten, and may be told of again."""

    __slots__ = ("_due", "_kept_max")

    def __init__(self, kept_max: int = 1_000) -> None:
        self._due: dict[str, float] = {}
        self._kept_max = kept_max

    def is_due(self, name: str) -> bool:
        """True at the first call for a name, and then at most once a minute."""
        now = time.monotonic()
        if now < self._due.get(name, 0.0):
            return False
        self._due.pop(name, None)  # behind all others
        self._due[name] = now + INTERVAL_S
        if len(self._due) > self._kept_max:
            del self._due[next(iter(self._due))]
        return True
