"""How much a client uses, and for how long it has to pause: the arithmetic of Kafka's quotas. Sans-IO.

Rate (Kafka's Rate over WindowedSum, QuotaUtils)
    What is used is added up in samples, which begin when something is used and are complete after a window. A sample counts until
    it is as old as all windows together. The rate is the sum by the time since the oldest sample began, but at least by
    all windows but one: the first bytes after a pause would else be an enormous rate. Who is above the bound pauses until
    the rate would be the bound if nothing more was used.

TokenBucket (Kafka's TokenBucket, for changes of topics)
    Holds as many tokens as the windows let through, and fills with the bound. It may go below zero once. Who finds it so
    pauses until it would be zero.

Times are in milliseconds, bounds in units per second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

THROTTLE_MS_MAX = (1 << 31) - 1  # what fits into throttle_time_ms


class Windows(NamedTuple):
    """Over what a use is measured."""

    number: int
    size_ms: int


class Rate:
    """See the module's docstring."""

    __slots__ = ("_current", "_last_ms", "_start_ms", "_sums", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._current = 0
        # Of the samples, by their places in Kafka's ring, which has one more place than there are windows.
        self._start_ms: list[int] = []
        self._last_ms: list[int] = []
        self._sums: list[float] = []

    def record(self, amount: float, now_ms: int) -> None:
        """So much was used; less than nothing takes back."""
        if not self._sums:
            self._begin(now_ms)
        elif now_ms - self._start_ms[self._current] >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.number + 1)
            if self._current == len(self._sums):
                self._begin(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._sums[self._current] += amount
        self._last_ms[self._current] = now_ms

    def _begin(self, now_ms: int) -> None:
        self._start_ms.append(now_ms)
        self._last_ms.append(now_ms)
        self._sums.append(0.0)

    def _reset(self, place: int, now_ms: int) -> None:
        self._start_ms[place] = self._last_ms[place] = now_ms
        self._sums[place] = 0.0

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to pause; 0: the rate is not above the bound."""
        span_ms = self._span_ms(now_ms)
        rate = sum(self._sums) * 1000 / span_ms
        if rate <= bound:
            return 0
        return _rounded((rate - bound) / bound * span_ms)

    def _span_ms(self, now_ms: int) -> int:
        """The time that the samples stand for; forgets those that do not count any more."""
        number, size_ms = self._windows
        for place, last_ms in enumerate(self._last_ms):
            if now_ms - last_ms >= number * size_ms:
                self._reset(place, now_ms)
        elapsed_ms = now_ms - min(self._start_ms, default=now_ms)
        missing = number - 1 - elapsed_ms // size_ms
        if missing > 0:
            elapsed_ms += missing * size_ms
        return max(elapsed_ms, 1)


class TokenBucket:
    """See the module's docstring. A new one is full."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf  # as much as there may be: the bound says how much that is
        self._updated_ms = 0

    def record(self, amount: float, bound: float, now_ms: int) -> None:
        """So many tokens are taken, or given back."""
        most = self._fill(bound, now_ms)
        self._tokens = min(most, self._tokens - amount)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to pause; 0: no more tokens were taken than there were."""
        self._fill(bound, now_ms)
        return _rounded(-self._tokens / bound * 1000) if self._tokens < 0 else 0

    def _fill(self, bound: float, now_ms: int) -> float:
        """Answers how many there may be."""
        most = self._windows.number * self._windows.size_ms / 1000 * bound
        self._tokens = min(most, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return most


def _rounded(milliseconds: float) -> int:
    """To the nearest, halves up, as Java's Math.round. Kafka lets what is too long overflow, down to less than nothing."""
    return int(min(milliseconds + 0.5, THROTTLE_MS_MAX))
