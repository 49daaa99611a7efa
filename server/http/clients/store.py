"""The numbers that clients have pushed, as a scrape tells them: by family, by instance, by labels.

A number stays until its instance has pushed nothing for three of its intervals, a minute at least. So what a client pushes as
it ends is still there for the next scrape. Numbers and the text of their labels are bounded for all instances together: what
finds no room is left out and counted, and so is what would come under a name that means something else already.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import NamedTuple

from ottla.server.http.clients.points import Number
from ottla.server.http.metrics.exposition import COUNTER, SUMMARY, TOTAL, Family

INSTANCES_MAX = 5_000
FAMILIES_MAX = 2_000
NUMBERS_MAX = 50_000
TEXT_BYTES_MAX = 16 * 1024 * 1024  # of labels, as they lie in memory: a character may take four
OF_INSTANCE_MAX = 5_000  # numbers of one instance
EXPIRY_MIN_S = 60.0
_HELP = "Pushed by clients."
_ENDINGS = {COUNTER: (TOTAL, "_created"), SUMMARY: ("_count", "_sum", "_created")}

Key = tuple[str, str]
"""How the sample's name ends, and its labels as text."""


class _Told(NamedTuple):
    family: Family
    by_instance: dict[str, dict[Key, float]]


class _Instance:
    __slots__ = ("expires_s", "families", "labels", "numbers", "text_bytes")

    def __init__(self, labels: str) -> None:
        self.labels = labels  # what is known of the client, as text
        self.families: set[str] = set()
        self.numbers = self.text_bytes = 0
        self.expires_s = 0.0


class ClientNumbers:
    """See the module's docstring. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._families: dict[str, _Told] = {}
        self._names: dict[str, str] = {}  # names of samples and families that are taken, and by which family
        self._instances: dict[str, _Instance] = {}
        self.numbers = self.text_bytes = 0
        self.left_out = 0

    @property
    def instance_count(self) -> int:
        """How many instances have numbers here."""
        return len(self._instances)

    def take(self, instance_id: str, labels: str, numbers: Iterable[Number], interval_s: float, now_s: float) -> None:
        """Keep what an instance has pushed. `labels`: what is known of it."""
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= INSTANCES_MAX:
                self.left_out += 1
                return
            instance = self._instances[instance_id] = _Instance(labels)
        instance.labels = labels
        instance.expires_s = now_s + max(EXPIRY_MIN_S, 3 * interval_s)
        for number in numbers:
            if not self._put(instance_id, instance, number):
                self.left_out += 1

    def _put(self, instance_id: str, instance: _Instance, number: Number) -> bool:
        told = self._families.get(number.family)
        if told is not None and told.family.kind != number.kind:
            return False
        kept = None if told is None else told.by_instance.get(instance_id)
        key = number.ending, number.labels
        if kept is not None and (before := kept.get(key)) is not None:
            kept[key] = before + number.value if number.is_delta else number.value
            return True
        size = getsizeof(number.labels)
        # Looked at first: of what finds no room nothing is left here, neither a family nor an instance in one.
        if (
            self.numbers >= NUMBERS_MAX
            or instance.numbers >= OF_INSTANCE_MAX
            or self.text_bytes + size > TEXT_BYTES_MAX
        ):
            return False
        if told is None and (told := self._new_family(number)) is None:
            return False
        if kept is None:
            kept = told.by_instance[instance_id] = {}
            instance.families.add(told.family.name)
        self.numbers += 1
        self.text_bytes += size
        instance.numbers += 1
        instance.text_bytes += size
        kept[key] = number.value
        return True

    def _new_family(self, number: Number) -> _Told | None:
        names = _names_of(number.family, number.kind)
        # OpenMetrics takes `x` and the `x_total` of a counter `x` for the same, and Prometheus the `x_sum` of a summary.
        if len(self._families) >= FAMILIES_MAX or not self._names.keys().isdisjoint(names):
            return None
        self._names |= dict.fromkeys(names, number.family)
        told = self._families[number.family] = _Told(Family(number.family, number.kind, _HELP), {})
        return told

    def expire(self, now_s: float) -> None:
        """Forget instances whose time is over, and families that nobody pushes any more."""
        for instance_id in [key for key, each in self._instances.items() if each.expires_s <= now_s]:
            self.forget(instance_id)

    def forget(self, instance_id: str) -> None:
        """Forget all numbers of an instance."""
        instance = self._instances.pop(instance_id)
        self.numbers -= instance.numbers
        self.text_bytes -= instance.text_bytes
        for name in instance.families:
            told = self._families[name]
            del told.by_instance[instance_id]
            if not told.by_instance:
                del self._families[name]
                for each in _names_of(name, told.family.kind):
                    del self._names[each]

    # ------------------------------------------------------------------ telling

    def known(self) -> list[str]:
        """The labels of all instances."""
        return [each.labels for each in self._instances.values()]

    def families(self) -> list[tuple[Family, list[dict[Key, float]]]]:
        """All families with the numbers of each instance."""
        return [(told.family, list(told.by_instance.values())) for told in self._families.values()]


def _names_of(family: str, kind: str) -> tuple[str, ...]:
    base = family.removesuffix(TOTAL) if kind == COUNTER else family
    return base, *(base + ending for ending in _ENDINGS.get(kind, ()))
