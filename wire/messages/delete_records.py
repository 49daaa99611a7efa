"""DeleteRecords (key 21): raise the log start offset of partitions; offset -1 stands for the high watermark.

v1 answer first, throttle after   v2 flexible
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, field


class DeleteRecordsPartition(Struct):
    partition_index: int = field(Int32)
    offset: int = field(Int64)


class DeleteRecordsTopic(Struct):
    name: str = field(String)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(Int32)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(Int32)
    low_watermark: int = field(Int64)
    error_code: int = field(Int16)


class DeleteRecordsTopicResult(Struct):
    name: str = field(String)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))
