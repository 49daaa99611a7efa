"""State of share partitions (KIP-932), which their leaders keep at the share coordinator."""

from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class InitializeStatePartition(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)


class InitializeStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[InitializeStatePartition] = field(Array(InitializeStatePartition))


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    """InitializeShareGroupState (key 83): initialize the state of share partitions (KIP-932). Only v0."""

    group_id: str = field(String)
    topics: list[InitializeStateData] = field(Array(InitializeStateData))


class StatePartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[StatePartitionResult] = field(Array(StatePartitionResult))


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field(Array(InitializeStateResult))


class ReadStatePartition(Struct):
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


class ReadStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[ReadStatePartition] = field(Array(ReadStatePartition))


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    """ReadShareGroupState (key 84): the leader of a share partition reads its state (KIP-932). Only v0."""

    group_id: str = field(String)
    topics: list[ReadStateData] = field(Array(ReadStateData))


class StateBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class ReadStatePartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class ReadStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[ReadStatePartitionResult] = field(Array(ReadStatePartitionResult))


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(Array(ReadStateResult))


class WriteStatePartition(Struct):
    partition: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1)
    state_batches: list[StateBatch] = field(Array(StateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[WriteStatePartition] = field(Array(WriteStatePartition))


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    """WriteShareGroupState (key 85): leaders of share partitions write their state (KIP-932).

    v1 number of delivered records (KIP-1226)
    """

    group_id: str = field(String)
    topics: list[WriteStateData] = field(Array(WriteStateData))


class WriteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[StatePartitionResult] = field(Array(StatePartitionResult))


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field(Array(WriteStateResult))


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[ReadStatePartition] = field(Array(ReadStatePartition))


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    """ReadShareGroupStateSummary (key 87): read start offsets of share partitions (KIP-932).

    v1 number of delivered records (KIP-1226)
    """

    group_id: str = field(String)
    topics: list[ReadStateSummaryData] = field(Array(ReadStateSummaryData))


class ReadStateSummaryPartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[ReadStateSummaryPartitionResult] = field(Array(ReadStateSummaryPartitionResult))


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(Array(ReadStateSummaryResult))


class DeleteStatePartition(Struct):
    partition: int = field(Int32)


class DeleteStateData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[DeleteStatePartition] = field(Array(DeleteStatePartition))


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    """DeleteShareGroupState (key 86): delete the state of share partitions (KIP-932). Only v0."""

    group_id: str = field(String)
    topics: list[DeleteStateData] = field(Array(DeleteStateData))


class DeleteStateResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[StatePartitionResult] = field(Array(StatePartitionResult))


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(Array(DeleteStateResult))
