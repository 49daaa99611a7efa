"""Committed offsets of groups: OffsetCommit, OffsetFetch and OffsetDelete."""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="6+", default=-1)
    commit_timestamp: int = field(Int64, versions="1", default=-1)
    committed_metadata: str | None = field(String, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(String, versions="0-9", default="")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, key=8, versions="0-10", flexible="8+"):
    """OffsetCommit (key 8): store a group's committed offsets.

    v0 stored in ZooKeeper   v1 stored by the group's coordinator; time of the commit   v2 the client may set the retention
    v3 throttle time   v4 answers before throttling   v5 only the broker sets the retention (KIP-211)   v6 leader epoch (KIP-320)   v7 static membership (KIP-345)
    v8 flexible   v9 consumer groups of KIP-848   v10 topic ids in place of names (KIP-848)
    """

    group_id: str = field(String)
    generation_id_or_member_epoch: int = field(Int32, versions="1+", default=-1)
    member_id: str = field(String, versions="1+", default="")
    group_instance_id: str | None = field(String, versions="7+", nullable="7+", default=None)
    retention_time_ms: int = field(Int64, versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(String, versions="0-9", default="")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = field(Int32, versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))


class OffsetFetchRequestTopic(Struct):
    name: str = field(String, versions="0-7")
    partition_indexes: list[int] = field(Array(Int32), versions="0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = field(String, versions="8-9", default="")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    partition_indexes: list[int] = field(Array(Int32), versions="8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(String, versions="8+")
    member_id: str | None = field(String, versions="9+", nullable="9+", default=None)
    member_epoch: int = field(Int32, versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(Array(OffsetFetchRequestTopics), versions="8+", nullable="8+")


class OffsetFetchRequest(Message, key=9, versions="0-10", flexible="6+"):
    """OffsetFetch (key 9): fetch groups' committed offsets.

    v0 from ZooKeeper   v1 from the group's coordinator   v2 null topics mean all of them; top-level error
    v3 throttle time   v4 answers before throttling   v5 leader epoch (KIP-320)   v6 flexible   v7 wait for open transactions (KIP-447)   v8 many groups at once (KIP-709)
    v9 consumer groups of KIP-848   v10 topic ids in place of names (KIP-848)
    """

    group_id: str = field(String, versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), versions="0-7", nullable="2-7", default=[]
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), versions="8+", default=[])
    require_stable: bool = field(Bool, versions="7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(Int32, versions="0-7")
    committed_offset: int = field(Int64, versions="0-7")
    committed_leader_epoch: int = field(Int32, versions="5-7", default=-1)
    metadata: str | None = field(String, versions="0-7", nullable="0-7")
    error_code: int = field(Int16, versions="0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field(String, versions="0-7")
    partitions: list[OffsetFetchResponsePartition] = field(Array(OffsetFetchResponsePartition), versions="0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(Int32, versions="8+")
    committed_offset: int = field(Int64, versions="8+")
    committed_leader_epoch: int = field(Int32, versions="8+", default=-1)
    metadata: str | None = field(String, versions="8+", nullable="8+")
    error_code: int = field(Int16, versions="8+")


class OffsetFetchResponseTopics(Struct):
    name: str = field(String, versions="8-9", default="")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = field(Array(OffsetFetchResponsePartitions), versions="8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(String, versions="8+")
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics), versions="8+")
    error_code: int = field(Int16, versions="8+", default=0)


class OffsetFetchResponse(Message, key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = field(Int32, versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), versions="0-7", default=[])
    error_code: int = field(Int16, versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), versions="8+", default=[])


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(Int32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(String)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, key=47, versions="0", flexible="none"):
    """OffsetDelete (key 47): delete a group's committed offsets of some partitions (KIP-496). Only v0, not flexible."""

    group_id: str = field(String)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(String)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, key=47, versions="0", flexible="none"):
    error_code: int = field(Int16)
    throttle_time_ms: int = field(Int32, default=0)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
