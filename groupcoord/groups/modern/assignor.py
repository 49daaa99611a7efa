"""What an assignor is given, and what it gives: it decides which member shall have which partitions.

Assignors are pure functions of immutable values, so that they may run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.groupcoord.groups.metadata import TopicImage, TopicImages
from ottla.groupcoord.groups.modern.assignments import NOTHING, Assignment
from ottla.groupcoord.java_hashing import hash_map_slot


class Subscriber(NamedTuple):
    """A member: the topics that it reads, as far as they exist, and what it should have until now."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    assigned: Assignment = NOTHING


class GroupSpec(NamedTuple):
    """All members of a group, in the order in which Kafka's assignors go through them."""

    subscribers: Sequence[Subscriber]
    partition_counts: Mapping[bytes, int]
    """Of all topics that somebody reads."""
    is_homogeneous: bool
    """All members read the same topics."""

    @property
    def size(self) -> int:
        """How much there is to go through: members, their topics, and the partitions."""
        pairs = len(self.subscribers) if self.is_homogeneous else sum(len(each.topic_ids) for each in self.subscribers)
        return pairs + sum(self.partition_counts.values())


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Makes an assignment for each member; those that it leaves out get nothing."""


class TopicIds:
    """Looks up topics by name, the same set of names once."""

    def __init__(self, topics: TopicImages) -> None:
        self._topics = topics
        self._known: dict[frozenset[str], frozenset[bytes]] = {}
        self.partition_counts: dict[bytes, int] = {}

    def of(self, names: frozenset[str]) -> frozenset[bytes]:
        """The ids of those that exist."""
        known = self._known.get(names)
        if known is None:
            known = self._known[names] = frozenset(self._look_up(names))
        return known

    def _look_up(self, names: Iterable[str]) -> Iterable[bytes]:
        for name in names:
            image: TopicImage | None = self._topics.image(name)
            if image is not None:
                self.partition_counts[image.topic_id] = image.partition_count
                yield image.topic_id


def in_kafkas_order(member_ids: Iterable[str]) -> list[str]:
    """Members as Kafka's hash map has them. Whoever comes first gets the odd partition."""
    ids = list(member_ids)
    return sorted(ids, key=lambda member_id: hash_map_slot(member_id, len(ids)))


def by_instance(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    """Static members first, by their instance ids; then the others, by their member ids."""
    return sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id if each.instance_id is not None else each.member_id)
    )
