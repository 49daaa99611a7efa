"""ReadShareGroupState (key 84): the leader of a share partition reads its state (KIP-932).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class PartitionData(Struct):
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


class ReadStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    group_id: str = field(String)
    topics: list[ReadStateData] = field(Array(ReadStateData))


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class ReadStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(Array(ReadStateResult))
