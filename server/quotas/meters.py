"""What clients use of one sort of quota, against what they may. Sans-IO.

Whoever is counted together (`limits.py`) has a meter. Client ids are a stranger's choice, so there are limits: a meter that nobody used for an
hour goes, as with Kafka, and of too many the one that was used least recently. Who comes back begins with a new one. A
long name is kept as its digest.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.server.quotas.limits import Limits
from ottla.server.quotas.rates import Rate, TokenBucket, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.quotas.entities import Entity
    from ottla.server.quotas.limits import Sharers

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
    """Make room for one more; the meters are in the order of their last use."""
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
    """See the module's docstring. `is_on` says whether anybody has such a quota; if not, nothing is measured."""

    def __init__(self, make: Callable[[], UseT]) -> None:
        self.limits = Limits()
        self.is_on = False
        self._make = make
        # Apart, so that nobody can have the use of a user forgotten by making up client ids.
        self._of_users: OrderedDict[Sharers, _Meter[UseT]] = OrderedDict()
        self._of_clients: OrderedDict[Sharers, _Meter[UseT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of_users) + len(self._of_clients)

    def put(self, entity: Entity, bound: float | None) -> None:
        """Set the quota of an entity, or with None take it away."""
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
        """A client has used so much, or wants to: how long it has to pause, in ms."""


class RateMeters(Meters[Rate]):
    """Quotas of bytes and of time. A pause is `pause_ms_max` at most."""

    def __init__(self, windows: Windows, pause_ms_max: int | None = None) -> None:
        super().__init__(lambda: Rate(windows))
        self._windows = windows
        self._pause_ms_max = pause_ms_max

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        meter = self._meter(user, client_id, now_ms)
        meter.use.record(amount, now_ms)
        if meter.bound == math.inf:
            return 0
        pause_ms = meter.use.throttle_ms(meter.bound, now_ms)
        return pause_ms if self._pause_ms_max is None else min(pause_ms, self._pause_ms_max)

    def take_back(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """What was recorded was not used after all."""
        self._meter(user, client_id, now_ms).use.record(-amount, now_ms)

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float:
        """Whoever uses more than that at once has to pause for certain."""
        number, size_ms = self._windows
        return self._meter(user, client_id, now_ms).bound * (number - 1) * size_ms / 1000


class MutationMeters(Meters[TokenBucket]):
    """Quotas of changes by the controller (KIP-599)."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(lambda: TokenBucket(windows))

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Permissive: it is done, whatever comes of it."""
        meter = self._meter(user, client_id, now_ms)
        if meter.bound == math.inf:
            return 0
        meter.use.record(amount, meter.bound, now_ms)
        return meter.use.throttle_ms(meter.bound, now_ms)

    def try_to_record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Strict: it is not done, and not recorded, if there has to be a pause first."""
        meter = self._meter(user, client_id, now_ms)
        if meter.bound == math.inf:
            return 0
        pause_ms = meter.use.throttle_ms(meter.bound, now_ms)
        if not pause_ms:
            meter.use.record(amount, meter.bound, now_ms)
        return pause_ms
