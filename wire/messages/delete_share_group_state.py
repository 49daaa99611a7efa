"""DeleteShareGroupState (key 86): the state of share partitions ends (KIP-932).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, Uuid, field


class PartitionData(Struct):
    partition: int = field(Int32)


class DeleteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    group_id: str = field(String)
    topics: list[DeleteStateData] = field(Array(DeleteStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(Array(DeleteStateResult))
