"""InitializeShareGroupState (key 83): the state of share partitions begins (KIP-932).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class PartitionData(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)


class InitializeStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    group_id: str = field(String)
    topics: list[InitializeStateData] = field(Array(InitializeStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field(Array(InitializeStateResult))
