"""AlterShareGroupOffsets (key 91): move the starts of the share partitions of an empty group (KIP-932).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(Int32)
    start_offset: int = field(Int64)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(Array(AlterShareGroupOffsetsRequestPartition))


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    group_id: str = field(String)
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(Array(AlterShareGroupOffsetsRequestTopic))


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(Array(AlterShareGroupOffsetsResponsePartition))


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(Array(AlterShareGroupOffsetsResponseTopic))
