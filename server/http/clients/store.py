"""The numbers that clients have pushed, as a scrape tells them: by family, by instance, by labels.

A number stays until its instance has pushed nothing for three of its intervals, a minute at least. So what a client pushes as
it ends is still there for the next scrape. Numbers, families and the text of labels are bounded for all instances together, and
`shares.py` says who makes room for whom: somebody with very many numbers does not keep others out. What finds no room is left
out and counted, and so is what would come under a name that means something else already.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import NamedTuple

from ottla.server.http.clients.points import Number
from ottla.server.http.clients.shares import FAMILIES, INSTANCES, NUMBERS, TEXT_BYTES, Instance, Owner, Shares
from ottla.server.http.metrics.exposition import COUNTER, SUMMARY, TOTAL, Family

INSTANCES_MAX = 5_000
FAMILIES_MAX = 2_000
NUMBERS_MAX = 50_000
TEXT_BYTES_MAX = 16 * 1024 * 1024  # of labels, as they lie in memory: a character may take four
OF_INSTANCE_MAX = 5_000  # numbers of one instance
EXPIRY_MIN_S = 60.0
EVICTION_WORK_MAX = 5_000
"""For one push, some milliseconds: families that are left, and as many as EVICTION_WORK for an instance and a tenth for each owner
among whom the one who has most is looked for. What finds no room then comes again with the next push."""
EVICTION_WORK, OWNERS_OF_WORK = 100, 10
_HELP = "Pushed by clients."
_ENDINGS = {COUNTER: (TOTAL, "_created"), SUMMARY: ("_count", "_sum", "_created")}

Key = tuple[str, str]
"""How the sample's name ends, and its labels as text."""


class Pusher(NamedTuple):
    """Who pushes."""

    instance_id: str
    owner: str
    labels: str
    """What is known of the client, as text."""
    interval_s: float
    """In which it pushes again."""


class _Told:
    """A family, and the numbers of each instance in it. It is counted for the instance that has begun it, or has taken it over."""

    __slots__ = ("begun_by", "by_instance", "family")

    def __init__(self, family: Family, begun_by: str) -> None:
        self.family = family
        self.begun_by = begun_by
        self.by_instance: dict[str, dict[Key, float]] = {}


class ClientNumbers:
    """See the module's docstring. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._families: dict[str, _Told] = {}
        self._names: dict[str, str] = {}  # names of samples and families that are taken, and by which family
        self._shares = Shares()
        self._work_left = 0
        self._without_victims: set[int] = set()  # kinds of which nobody has to give any to the one who pushes now
        self._now_s = 0.0
        self.left_out = self.evicted = 0

    @property
    def instance_count(self) -> int:
        """How many instances have numbers here."""
        return self._shares.used[INSTANCES]

    @property
    def numbers(self) -> int:
        """How many numbers there are."""
        return self._shares.used[NUMBERS]

    @property
    def text_bytes(self) -> int:
        """How much memory their labels take."""
        return self._shares.used[TEXT_BYTES]

    def take(self, pusher: Pusher, numbers: Iterable[Number], now_s: float) -> None:
        """Keep what an instance has pushed."""
        self._work_left, self._now_s = EVICTION_WORK_MAX, now_s
        self._without_victims.clear()
        instance = self._shares.instances.get(pusher.instance_id)
        if instance is None:
            owner = self._shares.owner(pusher.owner)
            if not self._has_room(owner, INSTANCES, 1, INSTANCES_MAX):
                self.left_out += 1
                return
            instance = self._shares.put(pusher.instance_id, owner)
        elif instance.owner.name != pusher.owner:
            # Nobody writes over the numbers of another one. When these have expired the id is free.
            self.left_out += 1
            return
        instance.labels = pusher.labels
        instance.expires_s = now_s + max(EXPIRY_MIN_S, 3 * pusher.interval_s)
        self._shares.note_push(instance, pusher.interval_s, now_s)
        for number in numbers:
            if not self._put(instance, number):
                self.left_out += 1

    def _has_room(self, owner: Owner, kind: int, size: int, limit: int) -> bool:
        """Whether there is so much left for an owner, if need be by forgetting others."""
        while self._shares.used[kind] + size > limit:
            if kind in self._without_victims or self._work_left <= 0:
                return False
            victim = self._shares.victim(owner, kind, self._now_s)
            if victim is None:
                self._without_victims.add(kind)
                return False
            self._work_left -= EVICTION_WORK + len(victim.families) + self._shares.owners // OWNERS_OF_WORK
            self.evicted += 1
            self.forget(victim.instance_id)
        return True

    def _put(self, instance: Instance, number: Number) -> bool:
        told = self._families.get(number.family)
        if told is not None and told.family.kind != number.kind:
            return False
        kept = None if told is None else told.by_instance.get(instance.instance_id)
        key = number.ending, number.labels
        if kept is not None and (before := kept.get(key)) is not None:
            kept[key] = before + number.value if number.is_delta else number.value
            return True
        size, owner = getsizeof(number.labels), instance.owner
        # Looked at first: of what finds no room nothing is left here, neither a family nor an instance in one.
        if (
            instance.used[NUMBERS] >= OF_INSTANCE_MAX
            or not self._has_room(owner, NUMBERS, 1, NUMBERS_MAX)
            or not self._has_room(owner, TEXT_BYTES, size, TEXT_BYTES_MAX)
        ):
            return False
        # Looked up once more: whoever made room may have been the last in this family.
        told = self._families.get(number.family) or self._new_family(instance, number)
        if told is None:
            return False
        if kept is None:
            kept = told.by_instance[instance.instance_id] = {}
            instance.families.add(told.family.name)
        self._shares.count(instance, NUMBERS, 1)
        self._shares.count(instance, TEXT_BYTES, size)
        kept[key] = number.value
        return True

    def _new_family(self, instance: Instance, number: Number) -> _Told | None:
        names = _names_of(number.family, number.kind)
        # OpenMetrics takes `x` and the `x_total` of a counter `x` for the same, and Prometheus the `x_sum` of a summary.
        if not self._names.keys().isdisjoint(names) or not self._has_room(instance.owner, FAMILIES, 1, FAMILIES_MAX):
            return None
        self._names |= dict.fromkeys(names, number.family)
        told = self._families[number.family] = _Told(Family(number.family, number.kind, _HELP), instance.instance_id)
        self._shares.count(instance, FAMILIES, 1)
        return told

    def expire(self, now_s: float) -> None:
        """Forget instances whose time is over, and families that nobody pushes any more."""
        for instance_id in [key for key, each in self._shares.instances.items() if each.expires_s <= now_s]:
            self.forget(instance_id)

    def forget(self, instance_id: str) -> None:
        """Forget all numbers of an instance."""
        instance = self._shares.remove(instance_id)
        for name in instance.families:
            told = self._families[name]
            del told.by_instance[instance_id]
            if told.begun_by == instance_id:
                self._shares.count(instance, FAMILIES, -1)
                self._hand_over(told)

    def _hand_over(self, told: _Told) -> None:
        """Whoever has begun this family has gone."""
        for instance_id in told.by_instance:
            told.begun_by = instance_id
            self._shares.count(self._shares.instances[instance_id], FAMILIES, 1)
            return
        name = told.family.name
        del self._families[name]
        for each in _names_of(name, told.family.kind):
            del self._names[each]

    # ------------------------------------------------------------------ telling

    def known(self) -> list[str]:
        """The labels of all instances."""
        return [each.labels for each in self._shares.instances.values()]

    def families(self) -> list[tuple[Family, list[dict[Key, float]]]]:
        """All families with the numbers of each instance."""
        return [(told.family, list(told.by_instance.values())) for told in self._families.values()]


def _names_of(family: str, kind: str) -> tuple[str, ...]:
    base = family.removesuffix(TOTAL) if kind == COUNTER else family
    return base, *(base + ending for ending in _ENDINGS.get(kind, ()))
