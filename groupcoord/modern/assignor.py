"""Assignments of partitions to members, and the input of assignors, which decide them.

Assignors are pure functions of immutable values, so that they may run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.groupcoord.topic_images import TopicImage

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id. Never changed; a topic without partitions is not in it."""

EpochsOfPartitions = Mapping[bytes, Mapping[int, int]]
"""Assigned partitions by topic id, with the member epoch since which each is assigned."""

NOTHING: Assignment = {}


def read_assignment(topics: Iterable[Any]) -> Assignment:
    """Convert structs with `topic_id` and `partitions`, as in records and requests, to an assignment."""
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def with_epoch(assignment: Mapping[bytes, Iterable[int]], epoch: int) -> EpochsOfPartitions:
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()}


def count_of(assignment: Mapping[bytes, Any]) -> int:
    """Return the number of partitions in an assignment."""
    return sum(map(len, assignment.values()))


class Subscriber(NamedTuple):
    """Member in the assignor's input, with the existing topics that it reads and its current target."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    assigned: Assignment = NOTHING


class GroupSpec(NamedTuple):
    """Input of an assignor: all members of a group, in the order in which Kafka's assignors iterate over them."""

    subscribers: Sequence[Subscriber]
    partition_counts: Mapping[bytes, int]
    """Numbers of partitions, by id, of all topics that a member reads."""
    is_homogeneous: bool
    """All members read the same topics."""


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Makes an assignment for each member; those that it leaves out get nothing."""


class Reader(NamedTuple):
    """Member of a group with its subscription and its current target."""

    member_id: str
    instance_id: str | None
    names: frozenset[str]
    """The topics that it names."""
    matched: frozenset[str]
    """Topics that match the member's pattern. Members with the same pattern have the same set."""
    assigned: Assignment


class Readers(NamedTuple):
    """Members and topics from which `assign` builds a `GroupSpec`. That may be slow: a pattern can match thousands."""

    all: Callable[[], Iterable[Reader]]
    """Makes them, in whatever thread."""
    images: Mapping[str, TopicImage]
    """Images, by name, of the existing topics that a member reads."""
    is_homogeneous: bool

    def assign(self, assignor: Assignor) -> Mapping[str, Assignment]:
        """Run an assignor on the group and return each member's assignment."""
        return assignor(self._spec())

    def _spec(self) -> GroupSpec:
        topic_ids = _TopicIds(self.images)
        by_id = {each.member_id: each for each in self.all()}
        subscribers = []
        for member_id in in_kafkas_order(by_id):
            _, instance_id, names, matched, assigned = by_id[member_id]
            subscribers.append(Subscriber(member_id, instance_id, topic_ids.of(names, matched), assigned))
        counts = {each.topic_id: each.partition_count for each in self.images.values()}
        return GroupSpec(subscribers, counts, self.is_homogeneous)


class _TopicIds:
    """Lookup of topic ids by names, cached for equal sets of names."""

    def __init__(self, images: Mapping[str, TopicImage]) -> None:
        self._images = images
        self._known: dict[tuple[frozenset[str], frozenset[str]], frozenset[bytes]] = {}

    def of(self, names: frozenset[str], matched: frozenset[str]) -> frozenset[bytes]:
        """Return the ids of the topics in `names` or `matched`. Topics that do not exist are left out."""
        known = self._known.get((names, matched))
        if known is None:
            images = map(self._images.get, chain(names, matched))
            known = frozenset([each.topic_id for each in images if each is not None])
            self._known[names, matched] = known
        return known


def in_kafkas_order(member_ids: Iterable[str]) -> list[str]:
    """Return the member ids in the order of Kafka's hash map; the first members get surplus partitions."""
    ids = list(member_ids)
    return sorted(ids, key=lambda member_id: hash_map_slot(member_id, len(ids)))


def by_instance(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    """Return static members in order of instance id, then dynamic members in order of member id."""
    return sorted(
        subscribers,
        key=lambda each: (
            each.instance_id is None,
            each.instance_id if each.instance_id is not None else each.member_id,
        ),
    )
