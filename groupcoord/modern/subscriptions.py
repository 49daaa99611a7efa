"""Which topics the members of a group read, counted as members come and go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ottla.groupcoord.java_hashing import hash_map_slot


class Counts:
    """How often something is there; what is there no more is forgotten."""

    __slots__ = ("by_key", "revision")

    def __init__(self) -> None:
        self.by_key: dict[str, int] = {}
        self.revision = 0
        """Rises whenever something is new, or is there no more."""

    def add(self, keys: Iterable[str], step: int = 1) -> None:
        for key in keys:
            before = self.by_key.get(key, 0)
            count = before + step
            if count:
                self.by_key[key] = count
            else:
                self.by_key.pop(key, None)
            if not before or not count:
                self.revision += 1

    def of(self, key: str) -> int:
        return self.by_key.get(key, 0)

    def most_frequent(self) -> str | None:
        """Which is there most often; of several the first in Kafka's hash table."""
        count = len(self.by_key)
        return max(self.by_key, key=lambda key: (self.by_key[key], -hash_map_slot(key, count)), default=None)


class Subscriptions:
    """The topics of a group by their names: how many members name each, and how many patterns stand for it."""

    __slots__ = ("by_name", "by_pattern", "patterns")

    def __init__(self) -> None:
        self.by_name = Counts()
        self.by_pattern = Counts()
        self.patterns = Counts()
        """The patterns themselves, with the number of members who have given each."""

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name.by_key or topic in self.by_pattern.by_key

    @property
    def revision(self) -> tuple[int, int]:
        """Another one when other topics are read than before."""
        return self.by_name.revision, self.by_pattern.revision

    def __len__(self) -> int:
        """How many topics these are, at most."""
        return len(self.by_name.by_key) + len(self.by_pattern.by_key)

    @property
    def topics(self) -> Iterable[str]:
        if not self.by_pattern.by_key:
            return self.by_name.by_key
        return self.by_name.by_key.keys() | self.by_pattern.by_key.keys()

    def pair_count(self, matched_by: Callable[[str], Collection[str]]) -> int:
        """How many pairs of a member and a topic there are; `matched_by` has the topics of a pattern."""
        by_pattern = sum(count * len(matched_by(pattern)) for pattern, count in self.patterns.by_key.items())
        return sum(self.by_name.by_key.values()) + by_pattern

    def are_alike(self, member_count: int) -> bool:
        """Whether all members read the same topics: everybody names the same ones, or everybody gives the same pattern."""
        if not self.patterns.by_key:
            return all(count == member_count for count in self.by_name.by_key.values())
        if next(iter(self.patterns.by_key.values())) != member_count:
            return False
        return not self.by_name.by_key and all(count == 1 for count in self.by_pattern.by_key.values())
