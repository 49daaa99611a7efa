"""OffsetForLeaderEpoch (key 23): where the records of a leader epoch end (KIP-101, KIP-279).

v1 the epoch that was found   v2 the asker's leader epoch, for fencing (KIP-320); throttle time   v3 replica id
v4 flexible
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="2+", default=-1)
    leader_epoch: int = field(Int32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(String)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message, key=23, versions="0-4", flexible="4+"):
    replica_id: int = field(Int32, versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    error_code: int = field(Int16)
    partition: int = field(Int32)
    leader_epoch: int = field(Int32, versions="1+", default=-1)
    end_offset: int = field(Int64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(String)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message, key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))
