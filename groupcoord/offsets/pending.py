"""Offsets that are committed in transactions, while these are open, and until they are settled.

Offsets committed in a transaction are pending until the marker, and then on their way to the table. They are kept twice:
by transaction, for the marker that ends it, and by group, topic and partition, for everybody else. Thousands of
transactions may be open in a shard, and no question about one partition walks through them.

A transaction may hold a hundred thousand offsets, and its marker decides about all of them at one moment. So the marker is
only noted (`PendingOffsets.end`), and reads of offsets include those of ended transactions. `settle` moves some of these to
the table at each call, in the order of the markers; the results of reads do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """Offset that a group has committed for one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    record_offset: int


class GroupsOfTopics:
    """Index of groups by the topics for which they have offsets. With it a deleted topic's offsets are found fast."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}

    def add(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is None:
            groups = self._groups[topic] = set()
        groups.add(group_id)

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups[topic]
        groups.remove(group_id)
        if not groups:
            del self._groups[topic]

    def of(self, topic: str) -> Collection[str]:
        return self._groups.get(topic, ())


Place = tuple[str, str, int]
"""Group, topic, partition."""


class TransactionOffsets:
    """Offsets committed in one transaction. `is_committed` tells how it ended; None: it is open."""

    __slots__ = ("is_committed", "offsets")

    def __init__(self) -> None:
        self.is_committed: bool | None = None
        self.offsets: dict[Place, CommittedOffset] = {}


Holders = dict[str, dict[int, set[TransactionOffsets]]]
"""topic -> partition -> the transactions that have committed an offset for it."""


class PendingOffsets:
    """Offsets of transactions that are open, or that have ended but are not settled yet."""

    __slots__ = ("_by_group", "_by_producer", "_ended", "_groups_of")

    def __init__(self) -> None:
        self._by_producer: dict[int, TransactionOffsets] = {}
        self._ended: deque[TransactionOffsets] = deque()
        self._by_group: dict[str, Holders] = {}
        self._groups_of = GroupsOfTopics()

    # ------------------------------------------------------------------ writing

    def put(self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        transaction = self._by_producer.get(producer_id)
        if transaction is None:
            transaction = self._by_producer[producer_id] = TransactionOffsets()
        transaction.offsets[group_id, topic, partition] = committed
        topics = self._by_group.setdefault(group_id, {})
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_of.add(topic, group_id)
        partitions.setdefault(partition, set()).add(transaction)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove a group's offset for a partition from all transactions, open or ended."""
        for transaction in list(self._by_group.get(group_id, {}).get(topic, {}).get(partition, ())):
            del transaction.offsets[group_id, topic, partition]
            self._forget(transaction, group_id, topic, partition)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction after its marker was written to the log."""
        transaction = self._by_producer.pop(producer_id, None)
        if transaction is not None and transaction.offsets:
            transaction.is_committed = committed
            self._ended.append(transaction)

    def settle(self, put_if_newer: Callable[[str, str, int, CommittedOffset], None], limit: int) -> None:
        """Settle about `limit` offsets of ended transactions: pass committed ones to `put_if_newer` and drop others."""
        while self._ended and limit > 0:
            transaction = self._ended[0]
            places = list(islice(transaction.offsets, limit))
            limit -= len(places)
            for place in places:
                offset = transaction.offsets.pop(place)
                self._forget(transaction, *place)
                if transaction.is_committed:
                    # A plain commit may stand in the log behind the transaction's own, but before its marker. Then the
                    # plain one wins.
                    put_if_newer(*place, offset)
            if not transaction.offsets:
                self._ended.popleft()
                limit -= 1

    def _forget(self, transaction: TransactionOffsets, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group[group_id]
        partitions = topics[topic]
        transactions = partitions[partition]
        transactions.discard(transaction)
        # Empty levels go as well: a group that is here has such offsets.
        if not transactions:
            del partitions[partition]
            if not partitions:
                del topics[topic]
                self._groups_of.remove(topic, group_id)
                if not topics:
                    del self._by_group[group_id]

    # ------------------------------------------------------------------ reading

    @property
    def is_settling(self) -> bool:
        """True if ended transactions have offsets that are not settled yet."""
        return bool(self._ended)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group

    def group(self, group_id: str) -> Mapping[str, Mapping[int, Collection[TransactionOffsets]]]:
        """Return the unsettled transactions with offsets of the group, by topic and partition."""
        return self._by_group.get(group_id, {})

    def groups_of(self, topic: str) -> Collection[str]:
        """Return the ids of groups that have pending offsets of a topic."""
        return self._groups_of.of(topic)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if an open transaction has an offset of the group for this partition."""
        return any(each.is_committed is None for each in self._holders(group_id, topic, partition))

    def may_count(self, group_id: str, topic: str, partition: int) -> Iterator[CommittedOffset]:
        """Yield the group's pending offsets for this partition, except those of aborted transactions."""
        for each in self._holders(group_id, topic, partition):
            if each.is_committed is not False:
                yield each.offsets[group_id, topic, partition]

    def newest(
        self, group_id: str, topic: str, partition: int, known: CommittedOffset | None
    ) -> CommittedOffset | None:
        """Return the offset in force, or None: `known`, from the table, or a newer one of a committed transaction."""
        for each in self._holders(group_id, topic, partition):
            if each.is_committed:
                offset = each.offsets[group_id, topic, partition]
                if known is None or offset.record_offset > known.record_offset:
                    known = offset
        return known

    def ended_of(self, group_id: str) -> list[dict[Place, CommittedOffset]]:
        """Return copies of the offsets of committed, unsettled transactions, other groups' included.

        The list is empty if the group has no unsettled offsets.
        """
        if group_id not in self._by_group:
            return []
        return [each.offsets.copy() for each in self._ended if each.is_committed]

    def open_of(self, group_id: str) -> set[tuple[str, int]]:
        """Return the topics and partitions for which open transactions have offsets of the group."""
        return {
            (topic, partition)
            for topic, partitions in self._by_group.get(group_id, {}).items()
            for partition, transactions in partitions.items()
            if None in [each.is_committed for each in transactions]
        }

    def _holders(self, group_id: str, topic: str, partition: int) -> Collection[TransactionOffsets]:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition, ())
