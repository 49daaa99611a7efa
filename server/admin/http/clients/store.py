"""Pushed numbers of all client instances, as a scrape lists them: by family, by instance, by labels.

A number stays until its instance has pushed nothing for three of its intervals, a minute at least. So the last push of a client that
ends is still there for the next scrape. Numbers, families and the text of labels are bounded for all instances together. Numbers that
find no room are left out and counted, and so are those under a name that means something else already.

Clients choose their ids, so one of them may pretend to be very many. Room is shared by owner: a principal that has logged in, or else
an address. Where there is no room left,

    1. the instance that has pushed nothing for longest goes, if its push is overdue;
    2. else the owner with most loses the instance that has pushed nothing for longest, if that owner has more than the newcomer even
       afterwards, or if the newcomer has nothing.

So an owner has all of the room as long as no other owner needs it, and an owner with little keeps it. Owners of the same size are
left alone, or they would evict each other in turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from typing import NamedTuple

from ottla.server.admin.http.clients.points import Number
from ottla.server.admin.http.metrics.exposition import COUNTER, SUMMARY, TOTAL, Family

INSTANCES, NUMBERS, TEXT_BYTES, FAMILIES = KINDS = range(4)
"""Kinds of limited room."""

OVERDUE_INTERVALS, OVERDUE_MIN_S = 2.5, 30.0


class Owner:
    """Principal or address that owns client instances, and the memory that they use, by kind."""

    __slots__ = ("instances", "name", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.instances: OrderedDict[str, Instance] = OrderedDict()  # who pushed last stands last
        self.used = [0 for _ in KINDS]


class Instance:
    """Memory use of one client instance, by kind. A metric family counts for the instance that created it."""

    __slots__ = ("expires_s", "families", "instance_id", "labels", "overdue_s", "owner", "used")

    def __init__(self, instance_id: str, owner: Owner) -> None:
        self.instance_id, self.owner = instance_id, owner
        self.labels = ""  # what is known of the client, as text
        self.families: set[str] = set()
        self.used = [0 for _ in KINDS]
        self.overdue_s = self.expires_s = 0.0


class Shares:
    """Memory use of all client instances, grouped by owner."""

    def __init__(self) -> None:
        self.instances: OrderedDict[str, Instance] = OrderedDict()  # who pushed last stands last
        self.used = [0 for _ in KINDS]
        self._owners: dict[str, Owner] = {}

    @property
    def owners(self) -> int:
        """Number of owners that have instances."""
        return len(self._owners)

    def owner(self, name: str) -> Owner:
        """Return the owner `name`, or a new one, which is stored when its first instance is added."""
        return self._owners.get(name) or Owner(name)

    def put(self, instance_id: str, owner: Owner) -> Instance:
        """Add and return a new instance."""
        self._owners[owner.name] = owner
        instance = self.instances[instance_id] = owner.instances[instance_id] = Instance(instance_id, owner)
        self.count(instance, INSTANCES, 1)
        return instance

    def note_push(self, instance: Instance, interval_s: float, now_s: float) -> None:
        """Record a push at `now_s`; the next push is due after `interval_s` seconds."""
        instance.overdue_s = now_s + max(OVERDUE_MIN_S, OVERDUE_INTERVALS * interval_s)
        self.instances.move_to_end(instance.instance_id)
        instance.owner.instances.move_to_end(instance.instance_id)

    def count(self, instance: Instance, kind: int, size: int) -> None:
        """Add `size` to the memory that an instance uses of kind `kind`; a negative size subtracts."""
        for used in (self.used, instance.owner.used, instance.used):
            used[kind] += size

    def remove(self, instance_id: str) -> Instance:
        """Remove and return an instance; free its memory, except the memory of metric families."""
        instance = self.instances.pop(instance_id)
        owner = instance.owner
        del owner.instances[instance_id]
        for kind in (INSTANCES, NUMBERS, TEXT_BYTES):
            self.count(instance, kind, -instance.used[kind])
        if not owner.instances:
            del self._owners[owner.name]
        return instance

    def victim(self, owner: Owner, kind: int, now_s: float) -> Instance | None:
        """Choose an instance to evict, to free memory of kind `kind` for `owner`; None if none may be evicted."""
        oldest = next(iter(self.instances.values()), None)
        if oldest is not None and oldest.used[kind] and oldest.overdue_s < now_s:
            return oldest
        largest = max(self._owners.values(), key=lambda each: each.used[kind], default=owner)
        if largest is owner:
            return None
        found = next((each for each in largest.instances.values() if each.used[kind]), None)
        own = owner.used[kind]
        return found if found is not None and (not own or own + found.used[kind] < largest.used[kind]) else None


INSTANCES_MAX = 5_000
FAMILIES_MAX = 2_000
NUMBERS_MAX = 50_000
TEXT_BYTES_MAX = 16 * 1024 * 1024  # of labels, as they lie in memory: a character may take four
OF_INSTANCE_MAX = 5_000  # numbers of one instance
EXPIRY_MIN_S = 60.0
EVICTION_WORK_MAX = 5_000
"""Limit of evictions for one push, some milliseconds: families that are left, EVICTION_WORK for an instance, and a tenth for each owner
that is compared. Numbers without room then come again with the next push."""
EVICTION_WORK, OWNERS_OF_WORK = 100, 10
_HELP = "Pushed by clients."
_ENDINGS = {COUNTER: (TOTAL, "_created"), SUMMARY: ("_count", "_sum", "_created")}

Key = tuple[str, str]
"""Ending of the sample's name, and its labels as text."""


class Pusher(NamedTuple):
    """Client instance that pushes, and its owner."""

    instance_id: str
    owner: str
    labels: str
    """Attributes of the client, as text between braces."""
    interval_s: float
    """Interval until its next push."""


class _KeptFamily:
    """Metric family with the samples of all instances. It counts against the limit of instance `begun_by`."""

    __slots__ = ("begun_by", "by_instance", "family")

    def __init__(self, family: Family, begun_by: str) -> None:
        self.family, self.begun_by = family, begun_by
        self.by_instance: dict[str, dict[Key, float]] = {}


class ClientNumbers:
    """Store of the samples that clients have pushed. Times are in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._families: dict[str, _KeptFamily] = {}
        self._names: dict[str, str] = {}  # names of samples and families that are taken, and by which family
        self._shares = Shares()
        self._work_left = 0
        self._without_victims: set[int] = set()  # kinds of which nobody has to give any to the one who pushes now
        self._now_s = 0.0
        self.left_out = self.evicted = 0

    @property
    def instance_count(self) -> int:
        """Number of instances with samples."""
        return self._shares.used[INSTANCES]

    @property
    def numbers(self) -> int:
        """Number of stored samples."""
        return self._shares.used[NUMBERS]

    @property
    def text_bytes(self) -> int:
        """Size in bytes of the labels of all stored samples."""
        return self._shares.used[TEXT_BYTES]

    def take(self, pusher: Pusher, numbers: Iterable[Number], now_s: float) -> None:
        """Store the samples that an instance has pushed."""
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
        """Tell whether `size` more of kind `kind` fits below `limit`. May evict other instances to make room."""
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

    def _new_family(self, instance: Instance, number: Number) -> _KeptFamily | None:
        names = _names_of(number.family, number.kind)
        # OpenMetrics takes `x` and the `x_total` of a counter `x` for the same, and Prometheus the `x_sum` of a summary.
        if not self._names.keys().isdisjoint(names) or not self._has_room(instance.owner, FAMILIES, 1, FAMILIES_MAX):
            return None
        self._names |= dict.fromkeys(names, number.family)
        told = self._families[number.family] = _KeptFamily(
            Family(number.family, number.kind, _HELP), instance.instance_id
        )
        self._shares.count(instance, FAMILIES, 1)
        return told

    def expire(self, now_s: float) -> None:
        """Remove expired instances, and families without instances."""
        for instance_id in [key for key, each in self._shares.instances.items() if each.expires_s <= now_s]:
            self.forget(instance_id)

    def forget(self, instance_id: str) -> None:
        """Remove an instance and all its samples."""
        instance = self._shares.remove(instance_id)
        for name in instance.families:
            told = self._families[name]
            del told.by_instance[instance_id]
            if told.begun_by == instance_id:
                self._shares.count(instance, FAMILIES, -1)
                self._hand_over(told)

    def _hand_over(self, told: _KeptFamily) -> None:
        """Charge a removed instance's metric family to another instance; drop the family if no other instance has it."""
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
        """Return the attributes of each instance, formatted as labels."""
        return [each.labels for each in self._shares.instances.values()]

    def families(self) -> list[tuple[Family, list[dict[Key, float]]]]:
        """Return all metric families, with the samples of each instance."""
        return [(told.family, list(told.by_instance.values())) for told in self._families.values()]


def _names_of(family: str, kind: str) -> tuple[str, ...]:
    base = family.removesuffix(TOTAL) if kind == COUNTER else family
    return base, *(base + ending for ending in _ENDINGS.get(kind, ()))
