"""Usage of clients against their quotas, and the arithmetic of Kafka's quotas. Sans-IO.

Rate (Kafka's Rate over WindowedSum, QuotaUtils)
    What is used is added up in samples, which begin when something is used and are complete after a window. A sample counts until
    it is as old as all windows together. The rate is the sum by the time since the oldest sample began, but at least by
    all windows but one: the first bytes after a pause would else be an enormous rate. Who is above the bound pauses until
    the rate would be the bound if nothing more was used.

TokenBucket (Kafka's TokenBucket, for changes of topics)
    Holds as many tokens as the windows let through, and fills with the bound. It may go below zero once. Who finds it so
    pauses until it would be zero.

Clients that are counted together (`Limits`) share a meter. Client ids are a stranger's choice, so there are limits: a meter
unused for an hour is dropped, as in Kafka; if there are too many, the least recently used one is dropped. Who comes back begins
with a new one. A long name is kept as its digest.

Times are in milliseconds, bounds in units per second.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ottla.server.security.quotas.entities import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.security.quotas.entities import Entity, Sharers

THROTTLE_MS_MAX = (1 << 31) - 1  # what fits into throttle_time_ms


class Windows(NamedTuple):
    """Time windows over which usage is measured: their number, and their size in ms."""

    number: int
    size_ms: int


class Rate:
    """Usage per second, measured over the time windows as Kafka's Rate does."""

    __slots__ = ("_current", "_last_ms", "_start_ms", "_sums", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._current = 0
        # Of the samples, by their places in Kafka's ring, which has one more place than there are windows.
        self._start_ms: list[int] = []
        self._last_ms: list[int] = []
        self._sums: list[float] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Add `amount` to the usage; a negative amount takes usage back."""
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
        """Return the throttle time in ms; 0 if the rate does not exceed `bound`."""
        span_ms = self._span_ms(now_ms)
        rate = sum(self._sums) * 1000 / span_ms
        if rate <= bound:
            return 0
        return _rounded((rate - bound) / bound * span_ms)

    def _span_ms(self, now_ms: int) -> int:
        """Reset samples that have expired; return the time in ms that the others span."""
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
    """Bucket that fills with tokens at the quota's rate, and loses them by usage. At first it is full (KIP-599)."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf  # as much as there may be: the bound says how much that is
        self._updated_ms = 0

    def record(self, amount: float, bound: float, now_ms: int) -> None:
        """Remove `amount` tokens; a negative amount puts tokens back."""
        most = self._fill(bound, now_ms)
        self._tokens = min(most, self._tokens - amount)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the throttle time in ms; 0 unless more tokens were removed than were there."""
        self._fill(bound, now_ms)
        return _rounded(-self._tokens / bound * 1000) if self._tokens < 0 else 0

    def _fill(self, bound: float, now_ms: int) -> float:
        """Add the tokens for the time since the last call; return the most tokens that the bucket can hold."""
        most = self._windows.number * self._windows.size_ms / 1000 * bound
        self._tokens = min(most, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return most


def _rounded(milliseconds: float) -> int:
    """Round half up like Java's Math.round. As in Kafka, a large value overflows to a negative number."""
    return int(min(milliseconds + 0.5, THROTTLE_MS_MAX))


# ---------------------------------------------------------------------- meters


METERS_MAX = 5_000  # of users, and of client ids, for each sort of quota; with many samples each takes two kilobytes
IDLE_MS = 3_600_000
NAMES_CHARACTERS_MAX = 256  # of a user and a client id together; a character may take four bytes

UseT = TypeVar("UseT")


class _Meter(Generic[UseT]):
    __slots__ = ("bound", "use", "used_ms", "version")

    def __init__(self, use: UseT) -> None:
        self.use = use
        self.used_ms = 0
        self.bound = math.inf
        self.version = -1


def _forget(meters: OrderedDict[Sharers, _Meter[UseT]], now_ms: int) -> None:
    """Remove idle meters, and the oldest if there are too many. `meters`: sorted by last use, oldest first."""
    while meters:
        oldest = next(iter(meters))
        if len(meters) < METERS_MAX and meters[oldest].used_ms > now_ms - IDLE_MS:
            return
        del meters[oldest]


def _digests(sharers: Sharers) -> Sharers:
    import hashlib  # here, because it loads OpenSSL, and hardly anybody has such names

    user, client_id = (hashlib.sha256(each.encode("utf-8", "surrogatepass")).hexdigest() for each in sharers)
    return user, client_id


class Meters(Generic[UseT]):
    """Meters of all clients for one kind of quota. `is_on`: some entity has such a quota; else nothing is measured."""

    def __init__(self, make: Callable[[], UseT]) -> None:
        self.limits = Limits()
        self.is_on = False
        self._make = make
        # Apart, so that made-up client ids cannot evict the usage of a user.
        self._of_users: OrderedDict[Sharers, _Meter[UseT]] = OrderedDict()
        self._of_clients: OrderedDict[Sharers, _Meter[UseT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of_users) + len(self._of_clients)

    def put(self, entity: Entity, bound: float | None) -> None:
        """Set the quota of an entity; None removes it."""
        self.limits.put(entity, bound)
        self.is_on = len(self.limits) > 0
        if not self.is_on:
            self._of_users.clear()
            self._of_clients.clear()

    def _meter(self, user: str, client_id: str, now_ms: int) -> _Meter[UseT]:
        limits = self.limits
        sharers = limits.sharers(user, client_id)
        key = sharers if len(sharers[0]) + len(sharers[1]) <= NAMES_CHARACTERS_MAX else _digests(sharers)
        meters = self._of_clients if sharers[1] else self._of_users
        meter = meters.get(key)
        if meter is None:
            _forget(meters, now_ms)
            meter = meters[key] = _Meter(self._make())
        else:
            meters.move_to_end(key)
        meter.used_ms = now_ms
        if meter.version != limits.version:
            meter.version = limits.version
            bound = limits.bound(sharers)
            meter.bound = math.inf if bound is None else bound
        return meter

    @abstractmethod
    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record a client's usage; return the client's throttle time in ms."""


class RateMeters(Meters[Rate]):
    """Meters of a quota on bytes or request time. `pause_ms_max`: longest throttle time; None: unlimited."""

    def __init__(self, windows: Windows, pause_ms_max: int | None = None) -> None:
        super().__init__(lambda: Rate(windows))
        self._windows, self._pause_ms_max = windows, pause_ms_max

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        meter = self._meter(user, client_id, now_ms)
        meter.use.record(amount, now_ms)
        if meter.bound == math.inf:
            return 0
        pause_ms = meter.use.throttle_ms(meter.bound, now_ms)
        return pause_ms if self._pause_ms_max is None else min(pause_ms, self._pause_ms_max)

    def take_back(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Take back usage that was recorded but did not happen."""
        self._meter(user, client_id, now_ms).use.record(-amount, now_ms)

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float:
        """Return the largest usage of one request. A request that uses more is certainly throttled."""
        number, size_ms = self._windows
        return self._meter(user, client_id, now_ms).bound * (number - 1) * size_ms / 1000


class MutationMeters(Meters[TokenBucket]):
    """Meters of a quota on creating and deleting partitions (KIP-599)."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(lambda: TokenBucket(windows))

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record the usage even if it exceeds the quota; return the throttle time in ms."""
        meter = self._meter(user, client_id, now_ms)
        if meter.bound == math.inf:
            return 0
        meter.use.record(amount, meter.bound, now_ms)
        return meter.use.throttle_ms(meter.bound, now_ms)

    def try_to_record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record the usage and return 0; if the client must be throttled, only return its throttle time in ms."""
        meter = self._meter(user, client_id, now_ms)
        if meter.bound == math.inf:
            return 0
        pause_ms = meter.use.throttle_ms(meter.bound, now_ms)
        if not pause_ms:
            meter.use.record(amount, meter.bound, now_ms)
        return pause_ms
