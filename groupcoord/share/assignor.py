"""Kafka's SimpleAssignor for share groups.

A partition may be read by several members. All partitions are shared alike: by as many members as it takes to give every
member something to do. Members that read the same topics share one pool of partitions; if members read different topics,
each topic is a pool of its own. A member keeps what it has, as far as that is fair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from ottla.groupcoord.modern.assignor import NOTHING, Assignment

TopicPartition = tuple[bytes, int]


def assign(
    subscriptions: Mapping[str, frozenset[bytes]],
    assignable: Mapping[bytes, Iterable[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Assign the `assignable` partitions (by topic id) to members, and return each member's assignment.

    `subscriptions`: topic ids by member. `current`: assignments by member, kept as far as possible.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for members, topics in _pools(subscriptions):
        partitions = [(topic, index) for topic in topics for index in sorted(assignable.get(topic, ()))]
        if len(partitions) == 1:
            # Everybody reads it. Of topics with one partition there may be thousands.
            for member in members:
                assigned[member] += partitions
            continue
        pool = frozenset(topics)
        before = {member: _of_topics(current.get(member, NOTHING), pool) for member in members}
        for member, shared in share(members, partitions, before).items():
            assigned[member] += shared
    return {member: _by_topic(each) for member, each in assigned.items()}


def _pools(subscriptions: Mapping[str, frozenset[bytes]]) -> list[tuple[list[str], list[bytes]]]:
    """Divide members and topics into pools that can be balanced independently."""
    if len(set(subscriptions.values())) <= 1:
        topics = next(iter(subscriptions.values()), frozenset())
        return [(list(subscriptions), sorted(topics))]
    subscribers: dict[bytes, list[str]] = {}
    for member, topic_ids in subscriptions.items():
        for topic in topic_ids:
            subscribers.setdefault(topic, []).append(member)
    return [(subscribers[topic], [topic]) for topic in sorted(subscribers)]


def share(
    members: Sequence[str], partitions: Sequence[TopicPartition], before: Mapping[str, Iterable[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    """Give each partition equally many members if possible. Members keep partitions that they had `before`."""
    if not members or not partitions:
        return {member: [] for member in members}
    sharing = -(-len(members) // len(partitions))
    wanted = _wanted(members, sharing * len(partitions))
    holders: dict[TopicPartition, set[str]] = {partition: set() for partition in partitions}
    shared: dict[str, list[TopicPartition]] = {}
    for member in members:
        kept: list[TopicPartition] = []
        for partition in before.get(member, ()):
            having = holders.get(partition)
            if having is not None and len(having) < sharing and len(kept) < wanted[member]:
                having.add(member)
                kept.append(partition)
        shared[member] = kept
    _fill(shared, holders, wanted, sharing)
    return shared


def _wanted(members: Sequence[str], total: int) -> dict[str, int]:
    """Return the number of partitions for each member; their sum is `total`."""
    count = len(members)
    ends = [-(-total * number // count) for number in range(count + 1)]
    return {member: ends[number + 1] - ends[number] for number, member in enumerate(members)}


def _fill(
    shared: dict[str, list[TopicPartition]],
    holders: Mapping[TopicPartition, set[str]],
    wanted: Mapping[str, int],
    sharing: int,
) -> None:
    """Add members to partitions that have fewer than `sharing`, round robin among members with room."""
    unfilled = deque(member for member, kept in shared.items() if len(kept) < wanted[member])
    for partition, having in holders.items():
        # A member cannot have a partition twice. If all that are left have it, it is shared less than others: Kafka
        # accepts that, too.
        for _ in range(len(unfilled)):
            if len(having) >= sharing:
                break
            member = unfilled[0]
            unfilled.rotate(-1)
            if member in having:
                continue
            having.add(member)
            shared[member].append(partition)
            if len(shared[member]) >= wanted[member]:
                unfilled.pop()  # it was moved to the end above


def _of_topics(assignment: Assignment, topics: frozenset[bytes]) -> list[TopicPartition]:
    """Return the assignment's partitions of these topics, in order."""
    few, many = sorted((topics, assignment.keys()), key=len)
    return [(topic, index) for topic in sorted(few & many) for index in sorted(assignment[topic])]


def _by_topic(partitions: Iterable[TopicPartition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
