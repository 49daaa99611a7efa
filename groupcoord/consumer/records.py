"""The records of a consumer group: keys 3 to 8 and 16, as Kafka 4.4 writes and reads them.

    3   the group: its epoch, and the hash of its topics      6   the epoch of the target assignment, and its time
    4   topics of the group, of brokers before 4.1             7   what a member shall have
    5   a member: what it says about itself                    8   what a member has, and how far it has got
   16   the topics that a regular expression stands for

Key 4 is only read: where a broker before 4.1 has left such a record, the group ends it with its next change.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groupcoord.modern.assignor import Assignment, EpochsOfPartitions
from ottla.groupcoord.records import KeyedRecord, RecordFormat
from ottla.wire.schema import Array, Bytes, Int8, Int32, Int64, String, Struct, Uuid, field


class ConsumerGroupMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class ConsumerGroupMetadataValue(Struct, versions="0", flexible="0+"):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64, versions="0+", tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class PartitionMetadata(Struct):
    partition: int = field(Int32)
    racks: list[str] = field(Array(String))


class TopicMetadata(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    num_partitions: int = field(Int32)
    partition_metadata: list[PartitionMetadata] = field(Array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(Struct, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = field(Array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class ClassicProtocol(Struct):
    name: str = field(String)
    metadata: bytes = field(Bytes)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(Int32)
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Struct, versions="0", flexible="0+"):
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    server_assignor: str | None = field(String, nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, versions="0+", nullable="0+", tag=0, default=None
    )


class ConsumerGroupTargetAssignmentMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class ConsumerGroupTargetAssignmentMetadataValue(Struct, versions="0", flexible="0+"):
    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, versions="0+", tag=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class TopicPartition(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ConsumerGroupTargetAssignmentMemberValue(Struct, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))


class ConsumerGroupCurrentMemberAssignmentKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class AssignedTopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), versions="0+", nullable="0+", tag=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(Struct, versions="0", flexible="0+"):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[AssignedTopicPartitions] = field(Array(AssignedTopicPartitions))
    partitions_pending_revocation: list[AssignedTopicPartitions] = field(Array(AssignedTopicPartitions))


class ConsumerGroupRegularExpressionKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    regular_expression: str = field(String)


class ConsumerGroupRegularExpressionValue(Struct, versions="0", flexible="0+"):
    topics: list[str] = field(Array(String))
    version: int = field(Int64)
    timestamp: int = field(Int64)


FORMATS = (
    RecordFormat(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    RecordFormat(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    RecordFormat(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    RecordFormat(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    RecordFormat(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    RecordFormat(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    RecordFormat(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)


# ---------------------------------------------------------------------- how they are made; without a value: the end


def group_record(group_id: str, epoch: int, metadata_hash: int) -> KeyedRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return KeyedRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def group_tombstone(group_id: str) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> KeyedRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return KeyedRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_epoch_tombstone(group_id: str) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_value(assignment: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    topics = [TopicPartition(topic_id=each, partitions=sorted(assignment[each])) for each in sorted(assignment)]
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)


def target_record(group_id: str, member_id: str, assignment: Assignment | None) -> KeyedRecord:
    value = None if assignment is None else target_value(assignment)
    return KeyedRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(
    group_id: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def regex_record(group_id: str, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> KeyedRecord:
    return KeyedRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def written_partitions(epochs: EpochsOfPartitions) -> list[AssignedTopicPartitions]:
    """Convert partitions with their assignment epochs to the form of a record."""
    return [
        AssignedTopicPartitions(
            topic_id=topic_id,
            partitions=(partitions := sorted(epochs[topic_id])),
            assignment_epochs=[epochs[topic_id][each] for each in partitions],
        )
        for topic_id in sorted(epochs)
    ]


def read_partitions(written: Iterable[AssignedTopicPartitions], member_epoch: int) -> EpochsOfPartitions:
    """Read a record's partitions with their assignment epochs. Brokers before 4.3 wrote none: use `member_epoch`."""
    # A static member that is away has the epoch -2.
    default = max(member_epoch, 0)
    read: dict[bytes, dict[int, int]] = {}
    for topic in written:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default] * len(topic.partitions)
        read[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return read
