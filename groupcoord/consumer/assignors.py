"""The assignors of consumer groups.

    uniform   members have equally many partitions (plus or minus one), and as few as possible change hands
    range     of each topic a member gets neighbouring partitions, and of all topics the same ones if they are alike

With the range assignor members that read several topics with the same keys have the same keys of all of them.

If all members read the same topics, the uniform assignor gives each a quota: a member keeps partitions up to its quota, and
the other partitions go to members below their quotas. If not (`_Mixed`):

    1  members lose what they no longer read
    2  partitions that nobody has go to the reader of the topic who has fewest
    3  topic by topic, partitions move from the reader who has most to the one who has fewest, until that gains nothing

Topics that leave least choice come first: those with most partitions for each reader. Step 3 visits all topics again until
a round moves no partition, at most `ROUNDS_MAX` times, because one move may make another one useful if members' topics
overlap.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from ottla.groupcoord.modern.assignor import Assignment, GroupSpec, Subscriber, by_instance, count_of

RANGE = "range"


def assign_range(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Assign each topic's partitions in ranges. If they do not divide evenly, the first members get one more each."""
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
    """Return topics with the ids of the members that read them, in the order of `members`."""
    if spec.is_homogeneous:
        everybody = [each.member_id for each in members]
        return [(topic_id, everybody) for topic_id in sorted(members[0].topic_ids)] if members else []
    readers: dict[bytes, list[str]] = {}
    for member in members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    return [(topic_id, readers[topic_id]) for topic_id in sorted(readers)]


UNIFORM = "uniform"


def assign_uniform(spec: GroupSpec) -> Mapping[str, Assignment]:
    if not spec.subscribers:
        return {}
    if spec.is_homogeneous:
        return _Homogeneous(spec).assign() if spec.subscribers[0].topic_ids else {}
    return assign_mixed(spec)


class _Homogeneous:
    """Uniform assignment of a group in which all members read the same topics."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._topic_ids = spec.subscribers[0].topic_ids
        self._owned: dict[str, dict[bytes, frozenset[int]]] = {}
        """Current partitions of each member, of topics that are still read."""
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
        """Let a member keep partitions up to its quota; return the partitions that it must give up."""
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


ROUNDS_MAX = 16
NOBODY = -1


def assign_mixed(spec: GroupSpec) -> Mapping[str, Assignment]:
    return _Mixed(spec).assign()


class _Mixed:
    """Uniform assignment of a group in which members read different topics. Members are represented by numbers."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._readers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.subscribers):
            for topic_id in member.topic_ids:
                self._readers.setdefault(topic_id, []).append(number)
        self._owners = {each: [NOBODY] * spec.partition_counts[each] for each in sorted(self._readers)}
        self._sizes = [0] * len(spec.subscribers)

    def assign(self) -> Mapping[str, Assignment]:
        self._keep()
        self._share_out()
        self._balance()
        return self._result()

    def _keep(self) -> None:
        for number, member in enumerate(self._spec.subscribers):
            for topic_id, partitions in member.assigned.items():
                if topic_id in member.topic_ids:
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        # A topic that was made again has another id, and topics never shrink.
                        if partition < len(owners) and owners[partition] == NOBODY:
                            owners[partition] = number
                            self._sizes[number] += 1

    def _in_order(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        def choice(topic_id: bytes) -> tuple[float, int, bytes]:
            readers = len(self._readers[topic_id])
            return -self._spec.partition_counts[topic_id] / readers, readers, topic_id

        return sorted(topic_ids, key=choice)

    def _share_out(self) -> None:
        free = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == NOBODY]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in self._in_order([each for each, partitions in free.items() if partitions]):
            readers = _TopicReaders(self._readers[topic_id], self._sizes)
            for partition in free[topic_id]:
                self._owners[topic_id][partition] = readers.add_to_least()

    def _balance(self) -> None:
        topics = self._in_order([each for each, readers in self._readers.items() if len(readers) > 1])
        last_moved = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return  # a whole round has moved nothing
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Balance one topic's partitions among its readers. Return True if a partition has moved."""
        readers, sizes, owners = self._readers[topic_id], self._sizes, self._owners[topic_id]
        counts = [sizes[each] for each in readers]
        if max(counts) - min(counts) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        ordered = _TopicReaders(readers, sizes)
        moved = False
        while (giver := ordered.most(owned)) is not None and sizes[giver] - sizes[ordered.least] > 1:
            partition = owned[giver].pop()
            ordered.take_from(giver)
            owners[partition] = ordered.add_to_least()
            moved = True
        return moved

    def _result(self) -> Mapping[str, Assignment]:
        given: list[dict[bytes, set[int]]] = [{} for _ in self._spec.subscribers]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                given[owner].setdefault(topic_id, set()).add(partition)
        return {
            member.member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            for member, topics in zip(self._spec.subscribers, given, strict=True)
        }


class _TopicReaders:
    """Members that read one topic, ordered by their number of partitions."""

    def __init__(self, numbers: Iterable[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._ordered = sorted((sizes[each], each) for each in numbers)

    @property
    def least(self) -> int:
        """Reader with fewest partitions; on a tie, the reader with the lowest number."""
        return self._ordered[0][1]

    def most(self, owned: Mapping[int, list[int]]) -> int | None:
        """Return the reader with most partitions among those that own this topic's partitions; None if none does."""
        while self._ordered:
            number = self._ordered[-1][1]
            if owned.get(number):
                return number
            if len(self._ordered) == 1:
                break
            self._ordered.pop()
        return None

    def take_from(self, number: int) -> None:
        size, last = self._ordered.pop()
        assert last == number
        self._put(size - 1, number)

    def add_to_least(self) -> int:
        size, number = self._ordered.pop(0)
        self._put(size + 1, number)
        return number

    def _put(self, size: int, number: int) -> None:
        self._sizes[number] = size
        insort(self._ordered, (size, number))
