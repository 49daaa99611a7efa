"""WriteShareGroupState (key 85): the leader of a share partition writes its state (KIP-932).

v1 count of records that were delivered (KIP-1226)
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class PartitionData(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    group_id: str = field(String)
    topics: list[WriteStateData] = field(Array(WriteStateData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field(Array(WriteStateResult))
