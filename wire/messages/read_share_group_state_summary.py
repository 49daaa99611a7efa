"""ReadShareGroupStateSummary (key 87): where share partitions start, without the states of their records (KIP-932).

v1 count of records that were delivered (KIP-1226)
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class PartitionData(Struct):
    partition: int = field(Int32)
    leader_epoch: int = field(Int32)


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    group_id: str = field(String)
    topics: list[ReadStateSummaryData] = field(Array(ReadStateSummaryData))


class PartitionResult(Struct):
    partition: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionResult] = field(Array(PartitionResult))


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(Array(ReadStateSummaryResult))
