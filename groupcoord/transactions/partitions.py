"""The partitions of a transaction: a set of (topic, index) that is kept by topic.

A transaction may have a hundred thousand of them, and every record of it names all. By topic they go into a record, come
out of it, and are put together with others without a look at each pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

TopicPartition = tuple[str, int]

_NONE: frozenset[int] = frozenset()


class Partitions(AbstractSet[TopicPartition]):
    """See the module's docstring. A value: never changed."""

    __slots__ = ("_count", "topics")

    def __init__(self, topics: Mapping[str, frozenset[int]]) -> None:
        """The indexes of each topic, of which there is one at least."""
        self.topics = topics
        self._count = sum(map(len, topics.values()))

    @classmethod
    def of(cls, pairs: Iterable[TopicPartition]) -> Partitions:
        """These; the same object if they are kept by topic already."""
        if isinstance(pairs, Partitions):
            return pairs
        topics: dict[str, set[int]] = {}
        for topic, index in pairs:
            topics.setdefault(topic, set()).add(index)
        return cls({topic: frozenset(indexes) for topic, indexes in topics.items()})

    @classmethod
    def _from_iterable(cls, iterable: Iterable[TopicPartition]) -> Partitions:  # type: ignore[override]
        return cls.of(iterable)

    def __repr__(self) -> str:
        return f"Partitions({set(self)})"

    def __len__(self) -> int:
        return self._count

    def __contains__(self, pair: object) -> bool:
        return isinstance(pair, tuple) and pair[1] in self.topics.get(pair[0], _NONE)

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, indexes in self.topics.items() for index in indexes)

    __hash__ = AbstractSet._hash

    def __le__(self, other: AbstractSet[object]) -> bool:
        if not isinstance(other, Partitions):
            return super().__le__(other)
        theirs = other.topics
        return all(indexes <= theirs.get(topic, _NONE) for topic, indexes in self.topics.items())

    def __or__(self, other: AbstractSet[TopicPartition]) -> Partitions:  # type: ignore[override]
        topics = dict(self.topics)
        for topic, indexes in Partitions.of(other).topics.items():
            known = topics.get(topic)
            topics[topic] = indexes if known is None else known | indexes
        return Partitions(topics)

    def in_order(self) -> dict[str, list[int]]:
        """The indexes by topic, in order, so that the same set is always told in the same way."""
        return {topic: sorted(self.topics[topic]) for topic in sorted(self.topics)}


NO_PARTITIONS = Partitions({})
