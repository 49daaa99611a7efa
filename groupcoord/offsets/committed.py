"""Committed offsets: records, the table of offsets in force, and offsets pending in transactions.

    key 0, 1   offset of (group, topic, partition)   key 0 is of brokers before 0.9; its values read as value version 0

Values are written in version 4 (version 1 when the client asked for a retention of its own), as Kafka does; all versions
since 0 are read.

Offsets committed in a transaction are pending until the marker, and then on their way to the table. They are kept twice:
by transaction, for the marker that ends it, and by group, topic and partition, for everybody else. Thousands of
transactions may be open in a shard, and no question about one partition walks through them.

A transaction may hold a hundred thousand offsets, and its marker decides about all of them at one moment. So the marker is
only noted (`PendingOffsets.end`), and reads of offsets include those of ended transactions. `settle` moves some of these to
the table at each call, in the order of the markers; the results of reads do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.groupcoord.records import RecordFormat
from ottla.wire.schema import ZERO_UUID, Int32, Int64, String, Struct, Uuid, field

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1

NO_EXPIRY = -1


class OffsetCommitKey(Struct, versions="0", flexible="none"):
    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


class OffsetCommitValue(Struct, versions="0-4", flexible="4+"):
    offset: int = field(Int64)
    leader_epoch: int = field(Int32, versions="3+", default=-1)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    expire_timestamp: int = field(Int64, versions="1", default=NO_EXPIRY)
    topic_id: bytes = field(Uuid, versions="4+", tag=0, default=ZERO_UUID)


class OffsetRecord(NamedTuple):
    """Record of a committed offset; with value None its tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


def offset_tombstone(group: str, topic: str, partition: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def _version_of(value: OffsetCommitValue) -> int:
    # Only version 1 has room for an expiry.
    return 4 if value.expire_timestamp == NO_EXPIRY else 1


FORMATS = (
    RecordFormat(
        OFFSET_COMMIT_KEY,
        OffsetCommitKey,
        OffsetCommitValue,
        written=(4, 1),
        version_of=_version_of,
        make=OffsetRecord,
        former_key_types=(LEGACY_OFFSET_COMMIT_KEY,),
        is_superseding=True,
    ),
)


class CommittedOffset:
    """Offset that a group committed for one partition."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(self, value: OffsetCommitValue, record_offset: int) -> None:
        self.offset = value.offset
        self.leader_epoch = value.leader_epoch
        self.metadata = value.metadata
        self.commit_timestamp_ms = value.commit_timestamp
        self.expire_timestamp_ms = value.expire_timestamp
        self.topic_id = value.topic_id
        self.record_offset = record_offset


TopicOffsets = dict[str, dict[int, CommittedOffset]]


class GroupsOfTopics:
    """Groups by topic, to find a deleted topic's offsets without a walk through all groups."""

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


class OffsetTable:
    """group -> topic -> partition -> committed offset, without empty levels."""

    __slots__ = ("_groups", "_groups_of")

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}
        self._groups_of = GroupsOfTopics()

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def group(self, group_id: str) -> TopicOffsets:
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        """The groups that have offsets."""
        return list(self._groups)

    def groups_of(self, topic: str) -> Collection[str]:
        """The groups that have offsets of a topic."""
        return self._groups_of.of(topic)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.group(group_id).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._partitions(group_id, topic)[partition] = committed

    def put_if_newer(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Put an offset, unless the stored one was written later in the log."""
        partitions = self._partitions(group_id, topic)
        known = partitions.get(partition)
        if known is None or committed.record_offset > known.record_offset:
            partitions[partition] = committed

    def _partitions(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Offsets of a topic; created if missing."""
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_of.add(topic, group_id)
        return partitions

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.group(group_id)
        partitions = topics.get(topic)
        # Empty levels have to go as well: a group that is in the table has offsets.
        if partitions is None or partitions.pop(partition, None) is None or partitions:
            return
        del topics[topic]
        self._groups_of.remove(topic, group_id)
        if not topics:
            del self._groups[group_id]


Place = tuple[str, str, int]
"""Group, topic, partition."""


class TransactionOffsets:
    """Offsets committed in one transaction. `is_committed` is None while it is open."""

    __slots__ = ("is_committed", "offsets")

    def __init__(self) -> None:
        self.is_committed: bool | None = None
        self.offsets: dict[Place, CommittedOffset] = {}


Holders = dict[str, dict[int, set[TransactionOffsets]]]
"""topic -> partition -> the transactions that have committed an offset for it."""


class PendingOffsets:
    """Offsets committed in transactions that are open, or ended and not settled."""

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
        """Remove an offset from all transactions, open or ended."""
        for transaction in list(self._by_group.get(group_id, {}).get(topic, {}).get(partition, ())):
            del transaction.offsets[group_id, topic, partition]
            self._forget(transaction, group_id, topic, partition)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """End a transaction whose marker is in the log."""
        transaction = self._by_producer.pop(producer_id, None)
        if transaction is not None and transaction.offsets:
            transaction.is_committed = committed
            self._ended.append(transaction)

    def settle(self, table: OffsetTable, limit: int) -> None:
        """Move a limited number of ended transactions' offsets to the table, or drop those of aborted ones."""
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
                    table.put_if_newer(*place, offset)
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
        """True if offsets of ended transactions are left to settle."""
        return bool(self._ended)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group

    def group(self, group_id: str) -> Mapping[str, Mapping[int, Collection[TransactionOffsets]]]:
        """topic -> partition -> the transactions that have committed an offset for it, and are not settled."""
        return self._by_group.get(group_id, {})

    def groups_of(self, topic: str) -> Collection[str]:
        """The groups that have offsets of a topic here."""
        return self._groups_of.of(topic)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has an offset for this partition."""
        return any(each.is_committed is None for each in self._holders(group_id, topic, partition))

    def may_count(self, group_id: str, topic: str, partition: int) -> Iterator[CommittedOffset]:
        """Pending offsets of this partition, without those of aborted transactions."""
        for each in self._holders(group_id, topic, partition):
            if each.is_committed is not False:
                yield each.offsets[group_id, topic, partition]

    def newest(
        self, group_id: str, topic: str, partition: int, known: CommittedOffset | None
    ) -> CommittedOffset | None:
        """Offset in force: the table's (`known`), or a newer one that is committed but not settled."""
        for each in self._holders(group_id, topic, partition):
            if each.is_committed:
                offset = each.offsets[group_id, topic, partition]
                if known is None or offset.record_offset > known.record_offset:
                    known = offset
        return known

    def ended_of(self, group_id: str) -> list[dict[Place, CommittedOffset]]:
        """Committed but unsettled offsets of all groups, as a copy."""
        if group_id not in self._by_group:
            return []
        return [each.offsets.copy() for each in self._ended if each.is_committed]

    def open_of(self, group_id: str) -> set[tuple[str, int]]:
        """Partitions of a group for which open transactions have an offset."""
        return {
            (topic, partition)
            for topic, partitions in self._by_group.get(group_id, {}).items()
            for partition, transactions in partitions.items()
            if None in [each.is_committed for each in transactions]
        }

    def _holders(self, group_id: str, topic: str, partition: int) -> Collection[TransactionOffsets]:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition, ())
