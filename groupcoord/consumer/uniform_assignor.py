"""The uniform assignor: members have equally many partitions (plus or minus one), and as few as possible change hands.

If all members read the same topics each has a quota: it keeps of its partitions what fits into it, and what is left over
fills up the others. If not, `mixed_assignor.py` does it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.groupcoord.consumer import mixed_assignor
from ottla.groupcoord.modern.assignments import Assignment, count_of
from ottla.groupcoord.modern.assignor import GroupSpec, Subscriber

NAME = "uniform"


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    if not spec.subscribers:
        return {}
    if spec.is_homogeneous:
        return _Homogeneous(spec).assign() if spec.subscribers[0].topic_ids else {}
    return mixed_assignor.assign(spec)


class _Homogeneous:
    """One assignment of members that read the same topics."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._topic_ids = spec.subscribers[0].topic_ids
        self._owned: dict[str, dict[bytes, frozenset[int]]] = {}
        """What each member has now, of topics that are still read."""
        self._targets: dict[str, Assignment] = {}
        self._unfilled: list[tuple[str, int]] = []
        count = sum(spec.partition_counts[each] for each in self._topic_ids)
        self._quota, self._extra_left = divmod(count, len(spec.subscribers))

    def assign(self) -> Mapping[str, Assignment]:
        free = self._unassigned()
        for index, member in enumerate(self._spec.subscribers):
            free += self._keep(member, len(self._spec.subscribers) - index)
        self._share_out(free)
        return self._targets

    def _unassigned(self) -> list[tuple[bytes, int]]:
        taken: dict[bytes, set[int]] = {each: set() for each in self._topic_ids}
        for member in self._spec.subscribers:
            owned = self._owned[member.member_id] = {}
            for topic_id, partitions in member.assigned.items():
                if topic_id not in taken:
                    continue
                # The leader of a classic group may have given a partition to several members. The first has it now.
                if not taken[topic_id].isdisjoint(partitions):
                    partitions -= taken[topic_id]
                if partitions:
                    owned[topic_id] = partitions
                    taken[topic_id] |= partitions
        return [
            (topic_id, partition)
            for topic_id in sorted(self._topic_ids)
            for partition in range(self._spec.partition_counts[topic_id])
            if partition not in taken[topic_id]
        ]

    def _keep(self, member: Subscriber, members_left: int) -> list[tuple[bytes, int]]:
        """Let a member keep what fits into its quota. Returns what it has to give up of topics that are still read."""
        may_have_extra = self._extra_left > 0
        left = self._quota + may_have_extra
        given_up: list[tuple[bytes, int]] = []
        kept: dict[bytes, frozenset[int]] = {}
        for topic_id, partitions in self._owned[member.member_id].items():
            if len(partitions) <= left:
                kept[topic_id] = partitions
                left -= len(partitions)
                continue
            ordered = sorted(partitions)
            if left:
                kept[topic_id] = frozenset(ordered[:left])
            given_up += [(topic_id, partition) for partition in ordered[left:]]
            left = 0
        # An extra partition goes to a member that has it already, as long as enough others are left to take the rest.
        if left and may_have_extra and members_left > self._extra_left:
            left -= 1
            may_have_extra = False
        if left:
            self._unfilled.append((member.member_id, left))
        if may_have_extra:
            self._extra_left -= 1
        self._targets[member.member_id] = kept
        return given_up

    def _share_out(self, free: list[tuple[bytes, int]]) -> None:
        start = 0
        for member_id, quota in self._unfilled:
            added: dict[bytes, set[int]] = {}
            for topic_id, partition in free[start : start + quota]:
                added.setdefault(topic_id, set()).add(partition)
            start += quota
            target = dict(self._targets[member_id])
            for topic_id, partitions in added.items():
                target[topic_id] = target.get(topic_id, frozenset()) | partitions
            self._targets[member_id] = target
        assert start >= len(free), "partitions were left over"
        assert sum(map(count_of, self._targets.values())) >= len(free)
