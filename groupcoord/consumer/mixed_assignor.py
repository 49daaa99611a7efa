"""The uniform assignor for members that do not all read the same topics.

    1  members lose what they no longer read
    2  partitions that nobody has go to the reader of the topic who has fewest
    3  topic by topic, partitions move from the reader who has most to the one who has fewest, until that gains nothing

Topics that leave least choice come first: those with most partitions for each reader. Step 3 goes round the topics again
until a whole round has moved nothing, at most `ROUNDS_MAX` times: members whose topics overlap may pass partitions on
along a chain.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from ottla.groupcoord.modern.assignments import Assignment
from ottla.groupcoord.modern.assignor import GroupSpec

ROUNDS_MAX = 16
NOBODY = -1


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    return _Mixed(spec).assign()


class _Mixed:
    """One assignment. Members are numbered, because numbers are quick to compare."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._readers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.subscribers):
            for topic_id in member.topic_ids:
                self._readers.setdefault(topic_id, []).append(number)
        self._owners = {each: [NOBODY] * spec.partition_counts[each] for each in self._readers}
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
                        # A topic that was made anew has another id, and topics never shrink.
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
            readers = Readers(self._readers[topic_id], self._sizes)
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
        """Whether a partition has moved."""
        readers, sizes, owners = self._readers[topic_id], self._sizes, self._owners[topic_id]
        counts = [sizes[each] for each in readers]
        if max(counts) - min(counts) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        ordered = Readers(readers, sizes)
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


class Readers:
    """The readers of one topic, ordered by how many partitions they have in all."""

    def __init__(self, numbers: Iterable[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._ordered = sorted((sizes[each], each) for each in numbers)

    @property
    def least(self) -> int:
        """Who has fewest; the first of several."""
        return self._ordered[0][1]

    def most(self, owned: Mapping[int, list[int]]) -> int | None:
        """Who has most of those that have a partition of this topic; the others can give nothing any more."""
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
