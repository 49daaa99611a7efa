"""ListOffsets (key 2): the offset that belongs to a timestamp; negative timestamps name special places in the log.

-1 latest, -2 earliest, -3 largest timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9), -6 earliest not yet
uploaded (v11).

v0 some segments' first offsets, by the times of their files   v1 one offset with its timestamp   v2 isolation, throttle time   v3 answers before throttling
v4 leader epochs (KIP-320)   v5 OFFSET_NOT_AVAILABLE   v6 flexible   v7 -3 (KIP-734)   v8 -4 (KIP-405)
v9 -5 (KIP-1005)   v10 timeout for remote lookups (KIP-1075)   v11 -6 (KIP-1023)
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="4+", default=-1)
    timestamp: int = field(Int64)
    max_num_offsets: int = field(Int32, versions="0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(String)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition))


class ListOffsetsRequest(Message, key=2, versions="0-11", flexible="6+"):
    replica_id: int = field(Int32)
    isolation_level: int = field(Int8, versions="2+", default=0)
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic))
    timeout_ms: int = field(Int32, versions="10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    old_style_offsets: list[int] = field(Array(Int64), versions="0", default=[])
    timestamp: int = field(Int64, versions="1+", default=-1)
    offset: int = field(Int64, versions="1+", default=-1)
    leader_epoch: int = field(Int32, versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(String)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message, key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = field(Int32, versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))
