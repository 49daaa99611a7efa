"""The committed offsets of the groups of one shard: their records, the table of those in force, and the requests about them.

    key 0, 1   offset of (group, topic, partition)   key 0 is of brokers before 0.9; its values read as value version 0

Values are written in version 4 (version 1 when the client asked for a retention of its own), as Kafka does; all versions
since 0 are read.

`replay` and `replay_marker` are the only writers, live and at load: requests return records. Offsets that are committed in
a transaction stay pending (`pending.py`), per producer, until the marker says whether they count; a fetch that requires
stable offsets gets UNSTABLE_OFFSET_COMMIT meanwhile. Of a plain and a transactional commit the one later in the log wins.
Applying a marker costs the same for any number of offsets: `settle` moves the offsets later, and until then reads include
the pending offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.groupcoord.offsets.pending import CommittedOffset, GroupsOfTopics, PendingOffsets, Place
from ottla.groupcoord.records import RecordFormat
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.records import NO_PRODUCER_ID
from ottla.wire.schema import ZERO_UUID, Int32, Int64, String, Struct, Uuid, field

NO_OFFSET = -1
DEFAULT_RETENTION_TIME_MS = -1
LATEST_MS = 2**63 - 1
UNKNOWN_TIME_MS = -1
"""Commit time of clients that leave it to the broker: all but those of OffsetCommit v1."""

SETTLED_AT_ONCE = 500
"""Offsets of an ended transaction. As many as one call of a shard may commit, so that what is left never grows for long."""

_new_tuple = tuple.__new__  # past NamedTuple's keyword handling: a load makes a million
_NONE = ErrorCode.NONE
_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


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
    """Record of a committed offset; a tombstone if the value is None."""

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


TopicOffsets = dict[str, dict[int, CommittedOffset]]


class OffsetTable:
    """Committed offsets by group, topic and partition. Only groups and topics with offsets have an entry."""

    __slots__ = ("_groups", "_groups_of")

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}
        self._groups_of = GroupsOfTopics()

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def group(self, group_id: str) -> TopicOffsets:
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        """Return the ids of groups that have committed offsets."""
        return list(self._groups)

    def groups_of(self, topic: str) -> Collection[str]:
        """Return the ids of groups that have committed offsets of a topic."""
        return self._groups_of.of(topic)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.group(group_id).get(topic, {}).get(partition)

    def put_if_newer(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store an offset, unless the stored one is from a later record of the log."""
        partitions = self.partitions(group_id, topic)
        known = partitions.get(partition)
        if known is None or committed.record_offset > known.record_offset:
            partitions[partition] = committed

    def partitions(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Return a group's offsets of a topic by partition; an empty table is created if there is none."""
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


class Offsets:
    """All offsets of a shard: committed ones, and those of transactions that are open or not settled."""

    __slots__ = ("_committed", "_metadata_max", "_pending", "_retention_ms")

    def __init__(self, *, metadata_max: int, retention_ms: int) -> None:
        self._metadata_max = metadata_max
        self._retention_ms = retention_ms
        self._committed = OffsetTable()
        self._pending = PendingOffsets()

    # ------------------------------------------------------------------ writing

    def replay(self, record: OffsetRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record. With a producer id, it belongs to that producer's open transaction."""
        key, value = record
        if value is None:
            self._committed.remove(key.group, key.topic, key.partition)
            # The offsets of open transactions go, too. Otherwise the end of such a transaction would bring the offset
            # back.
            self._pending.remove(key.group, key.topic, key.partition)
            return
        committed = _new_tuple(
            CommittedOffset,
            (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
                record_offset,
            ),
        )
        if producer_id == NO_PRODUCER_ID:
            self._committed.partitions(key.group, key.topic)[key.partition] = committed
        else:
            self._pending.put(producer_id, key.group, key.topic, key.partition, committed)

    def replay_marker(self, producer_id: int, *, committed: bool) -> bool:
        """End a producer's transaction: its offsets take effect or are dropped. Return True if `settle` must follow."""
        self._pending.end(producer_id, committed=committed)
        return self.settle()

    def settle(self) -> bool:
        """Store some offsets of committed transactions, and drop those of aborted ones. Return True if more remain."""
        self._pending.settle(self._committed.put_if_newer, SETTLED_AT_ONCE)
        return self._pending.is_settling

    # ------------------------------------------------------------------ commit

    def commit(
        self, request: OffsetCommitRequest, timestamp_ms: int
    ) -> tuple[list[OffsetRecord], OffsetCommitResponse]:
        """Return the records and the response of a commit that has passed all checks."""
        retention_ms = request.retention_time_ms
        expires_ms = NO_EXPIRY
        if retention_ms != DEFAULT_RETENTION_TIME_MS:
            # A client may send any 64-bit number, and the sum has to fit into the record.
            expires_ms = min(timestamp_ms + retention_ms, LATEST_MS)
        records = []
        topics = []
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                # A client may send null, but the record has room for a text only.
                metadata = partition.committed_metadata or ""
                error = _TOO_LARGE if self.is_too_large(metadata) else _NONE
                answers.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
                if not error:
                    told_ms = partition.commit_timestamp
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=timestamp_ms if told_ms == UNKNOWN_TIME_MS else told_ms,
                        expire_timestamp=expires_ms,
                        topic_id=topic.topic_id,
                    )
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                    records.append(OffsetRecord(key, value))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return records, OffsetCommitResponse(topics=topics)

    def is_too_large(self, metadata: str) -> bool:
        return is_longer(metadata, self._metadata_max)

    # ------------------------------------------------------------------ fetch

    def count(self, group_id: str) -> int:
        """Return the number of a group's committed offsets. It may be slightly too high."""
        count = sum([len(partitions) for partitions in self._committed.group(group_id).values()])
        if self._pending.is_settling:
            count += sum([len(partitions) for partitions in self._pending.group(group_id).values()])
        return count

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return the group's offsets for the requested partitions, or for all if the request names no topics."""
        group_id = request.group_id
        requested = request.topics if request.topics is not None else self._all_of(group_id)
        offsets = self._committed.group(group_id)
        # What is open matters to those who require stable offsets. What has ended and is not settled matters to all.
        is_looked_at = require_stable or self._pending.is_settling
        pending = self._pending.group(group_id) if is_looked_at else {}
        topics = []
        for topic in requested:
            partitions = offsets.get(topic.name, {})
            unsettled = pending.get(topic.name, ())
            answers = [
                self._fetched_beside(group_id, topic, index, require_stable=require_stable)
                if index in unsettled
                else _fetched(index, partitions.get(index), topic.topic_id)
                for index in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _fetched_beside(
        self, group_id: str, topic: OffsetFetchRequestTopics, index: int, *, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        """Return the fetch result for a partition that has pending offsets of transactions."""
        if require_stable and self._pending.is_open(group_id, topic.name, index):
            return unfetched(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        known = self._committed.get(group_id, topic.name, index)
        return _fetched(index, self._pending.newest(group_id, topic.name, index, known), topic.topic_id)

    def _all_of(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        """Return all topics and partitions for which the group has an offset in force."""
        found = {topic: list(partitions) for topic, partitions in self._committed.group(group_id).items()}
        if self._pending.is_settling:
            for topic, partitions in self._pending.group(group_id).items():
                known = self._committed.group(group_id).get(topic, {})
                found.setdefault(topic, []).extend(
                    index
                    for index in partitions
                    if index not in known and self._pending.newest(group_id, topic, index, None) is not None
                )
        return [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in found.items()
            if indexes
        ]

    def snapshot(self, group_id: str, *, require_stable: bool) -> OffsetsSnapshot:
        """Return a snapshot of all offsets of the group, which can be read in parts later."""
        committed = {topic: partitions.copy() for topic, partitions in self._committed.group(group_id).items()}
        unstable = self._pending.open_of(group_id) if require_stable else set()
        return OffsetsSnapshot(group_id, committed, self._pending.ended_of(group_id), unstable)

    # ------------------------------------------------------------------ delete and expire

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if OffsetDelete can delete an offset of the group, committed or pending, for this partition."""
        is_committed = self._committed.get(group_id, topic, partition) is not None
        return is_committed or any(self._pending.may_count(group_id, topic, partition))

    def has_pending(self, group_id: str) -> bool:
        """Return True if the group has offsets of transactions that are open or not settled."""
        return group_id in self._pending

    def all_places_of(self, group_id: str) -> Iterator[Place]:
        """Yield group, topic and partition for each offset of the group, committed or pending; each place once."""
        yield from self.places_of(group_id)
        for topic, partitions in self._pending.group(group_id).items():
            known = self._committed.group(group_id).get(topic, ())
            yield from ((group_id, topic, partition) for partition in partitions if partition not in known)

    def places_of(self, group_id: str) -> Iterator[Place]:
        """Yield group, topic and partition of the group's committed offsets. They may change during the iteration."""
        for topic in list(self._committed.group(group_id)):
            for partition in list(self._committed.group(group_id).get(topic, ())):
                yield group_id, topic, partition

    def places_of_topics(self, topics: Mapping[str, bytes]) -> Iterator[Place | None]:
        """Yield group, topic and partition of all offsets of deleted topics (name -> id).

        Yields None in place of an offset of a newer topic with such a name. Offsets may change during the iteration.
        """
        for topic, topic_id in topics.items():
            # In the order in which an offset moves, so that none that is there all the time is missed.
            for table in (self._pending, self._committed):
                for group_id in list(table.groups_of(topic)):
                    for partition in list(table.group(group_id).get(topic, ())):
                        place = group_id, topic, partition
                        yield place if self._is_all_of(place, topic_id) else None

    def _is_all_of(self, place: Place, topic_id: bytes) -> bool:
        """Return True if all offsets at a place are of the deleted topic, so that a tombstone may remove them."""
        known = self._committed.get(*place)
        found = [*self._pending.may_count(*place), *([] if known is None else [known])]
        # A record without a topic id belongs to whatever topic had the name.
        return bool(found) and all(each.topic_id in (ZERO_UUID, topic_id) for each in found)

    def is_expired(self, committed: CommittedOffset, retained_since_ms: int, timestamp_ms: int) -> bool:
        # A record with an expiry of its own goes by that alone, as in Kafka.
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return timestamp_ms >= committed.expire_timestamp_ms
        return timestamp_ms - retained_since_ms >= self._retention_ms

    def all_committed(self) -> Iterator[tuple[str, TopicOffsets]]:
        """Iterate over group ids with their committed offsets. These may change between two steps."""
        return ((group_id, self._committed.group(group_id)) for group_id in self._committed.group_ids())

    def of_group(self, group_id: str) -> TopicOffsets:
        return self._committed.group(group_id)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(self._pending.may_count(group_id, topic, partition))


def is_longer(text: str, limit: int) -> bool:
    """Return True if the text is longer than the limit, counted in UTF-16 units as Java does."""
    length = len(text)
    # A character is one or two UTF-16 units. So most texts are judged without encoding them.
    if length > limit or length * 2 <= limit:
        return length > limit
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 > limit


class OffsetsSnapshot:
    """Cheap snapshot of a group's offsets, to be read in parts. It has a commit or transaction wholly or not at all."""

    def __init__(
        self,
        group_id: str,
        committed: TopicOffsets,
        ended: list[dict[Place, CommittedOffset]],
        unstable: set[tuple[str, int]],
    ) -> None:
        self._group_id = group_id
        self._committed = committed
        self._ended = ended
        self._unstable = unstable

    def parts(self, elements_max: int) -> Iterator[list[OffsetFetchResponseTopics]]:
        """Yield the offsets in lists of at most `elements_max`; a topic may continue in the next list."""
        yield from self._settle(elements_max)
        for topic, partitions in self._committed.items():
            items = iter(partitions.items())
            while answers := [self._answer(topic, *each) for each in islice(items, elements_max)]:
                yield [OffsetFetchResponseTopics(name=topic, partitions=answers)]

    def _settle(self, elements_max: int) -> Iterator[list[OffsetFetchResponseTopics]]:
        """Merge the offsets of ended transactions into the snapshot. Each step yields an empty list."""
        for offsets in self._ended:
            for number, ((group_id, topic, partition), offset) in enumerate(offsets.items(), 1):
                if group_id == self._group_id:
                    partitions = self._committed.setdefault(topic, {})
                    known = partitions.get(partition)
                    if known is None or offset.record_offset > known.record_offset:
                        partitions[partition] = offset
                if number % elements_max == 0:
                    yield []

    def _answer(self, topic: str, index: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
        if self._unstable and (topic, index) in self._unstable:
            return unfetched(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _fetched(index, committed, ZERO_UUID)


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Return an OffsetCommit response with the same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=_refused(topic.partitions, error)
            )
            for topic in request.topics
        ]
    )


def _refused(partitions: list[OffsetCommitRequestPartition], error: ErrorCode) -> list[OffsetCommitResponsePartition]:
    return [
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error) for each in partitions
    ]


def unfetched(partition_index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition_index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )


def _fetched(index: int, committed: CommittedOffset | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    """Return the fetch result for one partition; with offset -1 and no error if nothing is committed.

    The offset of a deleted topic is ignored: a newer topic with the id `topic_id` now has the same name.
    """
    if committed is None or _is_of_another_topic(committed.topic_id, topic_id):
        return unfetched(index, _NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=_NONE,
    )


def _is_of_another_topic(ours: bytes, requested: bytes) -> bool:
    return ours != ZERO_UUID and requested != ZERO_UUID and ours != requested
