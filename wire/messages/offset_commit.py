"""OffsetCommit (key 8): a group remembers how far it has read.

v2 retention asked by the client   v3 throttle time   v4 answer first, throttle after
v5 retention is the broker's matter alone (KIP-211)   v6 leader epoch (KIP-320)   v7 static membership (KIP-345)
v8 flexible   v9 consumer groups of KIP-848   v10 topic ids in place of names (KIP-848)
"""

from ottla.wire.schema import ZERO_UUID, Array, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="6+", default=-1)
    committed_metadata: str | None = field(String, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(String, versions="0-9", default="")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    group_id: str = field(String)
    generation_id_or_member_epoch: int = field(Int32, versions="1+", default=-1)
    member_id: str = field(String, versions="1+")
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


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(Int32, versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))
