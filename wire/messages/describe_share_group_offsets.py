"""DescribeShareGroupOffsets (key 90): where the share partitions of groups start (KIP-932).

v1 lag (KIP-1226)
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(Array(DescribeShareGroupOffsetsRequestGroup))


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)
    leader_epoch: int = field(Int32)
    lag: int = field(Int64, versions="1+", default=-1)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(String)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(Array(DescribeShareGroupOffsetsResponseTopic))
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(Array(DescribeShareGroupOffsetsResponseGroup))
