"""Who has how much of the room that all clients share, and who has to make room for whom.

Clients choose their ids, so somebody may be very many of them. What counts is who has them: a principal that has logged in, or
else an address (`owner`). Where there is no room left,

    1. the instance that has pushed nothing for longest goes, if its push is overdue;
    2. else the one that has pushed nothing for longest of the owner who has most, if that owner has more than whoever comes also
       afterwards, or if whoever comes has nothing.

So an owner has all of the room as long as nobody else wants it, and who has little keeps it. Owners of the same size are left
alone, or they would push each other out by turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

INSTANCES, NUMBERS, TEXT_BYTES, FAMILIES = KINDS = range(4)
"""Of what there is only so much."""

OVERDUE_INTERVALS, OVERDUE_MIN_S = 2.5, 30.0


class Owner:
    """Whoever has instances, and what these take of each kind."""

    __slots__ = ("instances", "name", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.instances: OrderedDict[str, Instance] = OrderedDict()  # who pushed last stands last
        self.used = [0 for _ in KINDS]


class Instance:
    """What is known of an instance of a client, and what it takes. The families that it is counted for are those it has begun."""

    __slots__ = ("expires_s", "families", "instance_id", "labels", "overdue_s", "owner", "used")

    def __init__(self, instance_id: str, owner: Owner) -> None:
        self.instance_id, self.owner = instance_id, owner
        self.labels = ""  # what is known of the client, as text
        self.families: set[str] = set()
        self.used = [0 for _ in KINDS]
        self.overdue_s = self.expires_s = 0.0


class Shares:
    """All instances, and their owners."""

    def __init__(self) -> None:
        self.instances: OrderedDict[str, Instance] = OrderedDict()  # who pushed last stands last
        self.used = [0 for _ in KINDS]
        self._owners: dict[str, Owner] = {}

    @property
    def owners(self) -> int:
        """How many have instances."""
        return len(self._owners)

    def owner(self, name: str) -> Owner:
        """The owner of this name. One who has nothing is not remembered."""
        return self._owners.get(name) or Owner(name)

    def put(self, instance_id: str, owner: Owner) -> Instance:
        """Take up a new instance."""
        self._owners[owner.name] = owner
        instance = self.instances[instance_id] = owner.instances[instance_id] = Instance(instance_id, owner)
        self.count(instance, INSTANCES, 1)
        return instance

    def note_push(self, instance: Instance, interval_s: float, now_s: float) -> None:
        """It has pushed now, and is to push again in `interval_s`."""
        instance.overdue_s = now_s + max(OVERDUE_MIN_S, OVERDUE_INTERVALS * interval_s)
        self.instances.move_to_end(instance.instance_id)
        instance.owner.instances.move_to_end(instance.instance_id)

    def count(self, instance: Instance, kind: int, size: int) -> None:
        """An instance takes more, or less."""
        for used in (self.used, instance.owner.used, instance.used):
            used[kind] += size

    def remove(self, instance_id: str) -> Instance:
        """Forget an instance. What it took of each kind but families is free."""
        instance = self.instances.pop(instance_id)
        owner = instance.owner
        del owner.instances[instance_id]
        for kind in (INSTANCES, NUMBERS, TEXT_BYTES):
            self.count(instance, kind, -instance.used[kind])
        if not owner.instances:
            del self._owners[owner.name]
        return instance

    def victim(self, owner: Owner, kind: int, now_s: float) -> Instance | None:
        """Who has to go where there is none left of a kind for an instance of this owner; None: nobody."""
        oldest = next(iter(self.instances.values()), None)
        if oldest is not None and oldest.used[kind] and oldest.overdue_s < now_s:
            return oldest
        largest = max(self._owners.values(), key=lambda each: each.used[kind], default=owner)
        if largest is owner:
            return None
        found = _oldest(largest.instances, kind)
        own = owner.used[kind]
        return found if found is not None and (not own or own + found.used[kind] < largest.used[kind]) else None


def _oldest(instances: Mapping[str, Instance], kind: int) -> Instance | None:
    return next((each for each in instances.values() if each.used[kind]), None)
