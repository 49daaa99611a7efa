"""The range assignor: of each topic a member gets neighbouring partitions, and of all topics the same ones if they are alike.

So members that read several topics with the same keys have the same keys of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.groupcoord.modern.assignments import Assignment
from ottla.groupcoord.modern.assignor import GroupSpec, Subscriber, by_instance

NAME = "range"


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    """The first members get a partition more than the others where they cannot be shared out evenly."""
    members = by_instance(spec.subscribers)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {each.member_id: {} for each in members}
    for topic_id, readers in _readers(spec, members):
        count = spec.partition_counts[topic_id]
        quota, extra = divmod(count, len(readers))
        start = 0
        for member_id in readers:
            end = start + quota + (1 if extra > 0 else 0)
            extra -= 1
            # The others get nothing either, so this does not go through all members for each small topic.
            if start == end:
                break
            assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assigned


def _readers(spec: GroupSpec, members: list[Subscriber]) -> Iterable[tuple[bytes, list[str]]]:
    """Each topic with those who read it, in order."""
    if spec.is_homogeneous:
        everybody = [each.member_id for each in members]
        return [(topic_id, everybody) for topic_id in members[0].topic_ids] if members else []
    readers: dict[bytes, list[str]] = {}
    for member in members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    return readers.items()
