"""The committed offsets of the groups of one shard, and the requests about them.

`replay` and `replay_marker` are the only writers, live and at load: requests return records. Offsets that a Kafka
broker wrote inside a transaction stay pending, per producer, until the marker says whether they count; a fetch that
requires stable offsets gets UNSTABLE_OFFSET_COMMIT meanwhile. Of a plain and a transactional commit the one later in
the log wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.groupcoord.groups.records import (
    NO_EXPIRY,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    offset_tombstone,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.schema import ZERO_UUID

NO_OFFSET = -1
DEFAULT_RETENTION_TIME_MS = -1
LATEST_MS = 2**63 - 1

_NONE = ErrorCode.NONE
_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CommittedOffset:
    """What a group committed for one partition."""

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


class OffsetTable:
    """group -> topic -> partition -> committed offset, without empty levels."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def group(self, group_id: str) -> TopicOffsets:
        return self._groups.get(group_id, {})

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.group(group_id).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.group(group_id)
        partitions = topics.get(topic)
        # Empty levels have to go as well: `has_pending` takes a group that is in a table for one that has offsets
        # there.
        if partitions is None or partitions.pop(partition, None) is None or partitions:
            return
        del topics[topic]
        if not topics:
            del self._groups[group_id]

    def items(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield group_id, topic, partition, committed


class Offsets:
    """All offsets of a shard: the committed ones, and those of transactions that have not ended."""

    __slots__ = ("_committed", "_metadata_max", "_pending", "_retention_ms")

    def __init__(self, *, metadata_max: int, retention_ms: int) -> None:
        self._metadata_max = metadata_max
        self._retention_ms = retention_ms
        self._committed = OffsetTable()
        self._pending: dict[int, OffsetTable] = {}  # by producer id

    # ------------------------------------------------------------------ writing

    def replay(self, record: OffsetRecord, record_offset: int, producer_id: int = -1) -> None:
        """Take over a record of the log; with a producer id it is part of a transaction that is still open."""
        key, value = record
        if value is None:
            self._committed.remove(key.group, key.topic, key.partition)
            # The offsets of open transactions go, too. Otherwise the end of such a transaction would bring the offset
            # back.
            for table in self._pending.values():
                table.remove(key.group, key.topic, key.partition)
            return
        table = self._committed if producer_id < 0 else self._pending.setdefault(producer_id, OffsetTable())
        table.put(key.group, key.topic, key.partition, CommittedOffset(value, record_offset))

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction has ended: its offsets count from now on, or never existed."""
        pending = self._pending.pop(producer_id, None)
        if pending is None or not committed:
            return
        for group_id, topic, partition, offset in pending.items():
            # A plain commit may stand in the log behind the transaction's own, but before its marker. Then the plain
            # one wins.
            known = self._committed.get(group_id, topic, partition)
            if known is None or offset.record_offset > known.record_offset:
                self._committed.put(group_id, topic, partition, offset)

    # ------------------------------------------------------------------ commit

    def commit(
        self, request: OffsetCommitRequest, timestamp_ms: int
    ) -> tuple[list[OffsetRecord], OffsetCommitResponse]:
        """The records of a commit that was found to be allowed, and its answer."""
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
                error = _TOO_LARGE if self._is_too_large(metadata) else _NONE
                answers.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
                if not error:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=timestamp_ms,
                        expire_timestamp=expires_ms,
                        topic_id=topic.topic_id,
                    )
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                    records.append(OffsetRecord(key, value))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return records, OffsetCommitResponse(topics=topics)

    def _is_too_large(self, metadata: str) -> bool:
        """The limit counts UTF-16 units, as a Java string's length does."""
        length = len(metadata)
        # A character is one or two UTF-16 units. So most texts are judged without encoding them.
        if length > self._metadata_max or length * 2 <= self._metadata_max:
            return length > self._metadata_max
        return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > self._metadata_max

    # ------------------------------------------------------------------ fetch

    def count(self, group_id: str) -> int:
        """How many offsets of a group are committed."""
        return sum([len(partitions) for partitions in self._committed.group(group_id).values()])

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """The group's offsets of the partitions asked for, or all of them."""
        group_id = request.group_id
        if request.topics is None:
            asked = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
                for topic, partitions in self._committed.group(group_id).items()
            ]
        else:
            asked = request.topics
        pending = [table for table in self._pending.values() if group_id in table] if require_stable else []
        offsets = self._committed.group(group_id)
        topics = []
        for topic in asked:
            partitions = offsets.get(topic.name, {})
            unstable = {index for table in pending for index in table.group(group_id).get(topic.name, ())}
            answers = [
                unfetched(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if index in unstable
                else _fetched(index, partitions.get(index), topic.topic_id)
                for index in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    # ------------------------------------------------------------------ delete and expire

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is something to delete, committed or pending."""
        tables = (self._committed, *self._pending.values())
        return any(table.get(group_id, topic, partition) is not None for table in tables)

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in table for table in self._pending.values())

    def tombstones_of_group(self, group_id: str) -> list[OffsetRecord]:
        """The end of everything that the group committed or is about to commit."""
        # An offset may be both committed and pending; one tombstone ends both.
        found: dict[tuple[str, int], None] = {}
        for table in (self._committed, *self._pending.values()):
            for topic, partitions in table.group(group_id).items():
                found.update(dict.fromkeys((topic, partition) for partition in partitions))
        return [offset_tombstone(group_id, topic, partition) for topic, partition in found]

    def tombstones_of_topics(self, topics: Mapping[str, bytes], limit: int) -> list[OffsetRecord]:
        """The end of at most `limit` offsets of deleted topics (name -> id), not of later topics of the same name."""
        found: dict[tuple[str, str, int], None] = {}
        for table in (self._committed, *self._pending.values()):
            for group_id in table.group_ids():
                for topic in table.group(group_id).keys() & topics.keys():
                    for partition, committed in table.group(group_id)[topic].items():
                        # A record without a topic id belongs to whatever topic had the name.
                        if committed.topic_id in (ZERO_UUID, topics[topic]):
                            found[group_id, topic, partition] = None
                # Looked at once for each group. So there may be some more than the limit, which are cut off below.
                if len(found) >= limit:
                    break
        return [offset_tombstone(*each) for each in list(found)[:limit]]

    def is_expired(self, committed: CommittedOffset, retained_since_ms: int, timestamp_ms: int) -> bool:
        # A record with an expiry of its own goes by that alone, as in Kafka.
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return timestamp_ms >= committed.expire_timestamp_ms
        return timestamp_ms - retained_since_ms >= self._retention_ms

    def of_group(self, group_id: str) -> TopicOffsets:
        return self._committed.group(group_id)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(table.get(group_id, topic, partition) is not None for table in self._pending.values())


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The answer that gives every partition of a commit the same error."""
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
    """No offset, or one of a deleted topic whose name is in use again, is -1 without an error."""
    if committed is None or _is_of_another_topic(committed.topic_id, topic_id):
        return unfetched(index, _NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=_NONE,
    )


def _is_of_another_topic(ours: bytes, asked: bytes) -> bool:
    return ours != ZERO_UUID and asked != ZERO_UUID and ours != asked
