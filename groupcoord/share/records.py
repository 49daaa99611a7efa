"""The records of share groups: keys 10 to 15, as Kafka's JSON declares them.

10  a member: its description of itself
11  the group: its epoch, and the hash of the topics that it reads
12  the target assignment: its epoch, and when it was made
13  the target assignment of a member
14  the current assignment of a member, and its epochs
15  the partitions that the group has begun, is to begin, or is to forget at the share coordinator
"""

from __future__ import annotations

from ottla.groupcoord.records import RecordFormat
from ottla.wire.schema import Array, Int8, Int32, Int64, String, Struct, Uuid, field


class ShareGroupMemberMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class ShareGroupMemberMetadataValue(Struct, versions="0", flexible="0+"):
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))


class ShareGroupMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class ShareGroupMetadataValue(Struct, versions="0", flexible="0+"):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)


class ShareGroupTargetAssignmentMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class ShareGroupTargetAssignmentMetadataValue(Struct, versions="0", flexible="0+"):
    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, versions="0+", tag=0, default=0)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ShareGroupTargetAssignmentMemberKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class ShareGroupTargetAssignmentMemberValue(Struct, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class ShareGroupCurrentMemberAssignmentKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class ShareGroupCurrentMemberAssignmentValue(Struct, versions="0", flexible="0+"):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class TopicInfo(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)


class ShareGroupStatePartitionMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class ShareGroupStatePartitionMetadataValue(Struct, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(Array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(Array(TopicInfo))


FORMATS = (
    RecordFormat(10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    RecordFormat(11, ShareGroupMetadataKey, ShareGroupMetadataValue),
    RecordFormat(12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    RecordFormat(13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    RecordFormat(14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    RecordFormat(15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
)
