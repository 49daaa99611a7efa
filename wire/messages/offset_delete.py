"""OffsetDelete (key 47): forget a group's committed offsets of some partitions (KIP-496).

v0 is the only version, and not a flexible one.
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(Int32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(String)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, key=47, versions="0", flexible="none"):
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
