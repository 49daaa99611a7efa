"""Deletion of topics and of records: DeleteTopics and DeleteRecords."""

from ottla.wire.schema import ZERO_UUID, Array, Int16, Int32, Int64, Message, String, Struct, Text, Uuid, field


class DeleteTopicState(Struct):
    name: str | None = field(String, versions="6+", nullable="6+", default=None)
    topic_id: bytes = field(Uuid, versions="6+")


class DeleteTopicsRequest(Message, key=20, versions="0-6", flexible="4+"):
    """DeleteTopics (key 20): delete topics by name, or by id since v6.

    v1 throttle time   v2 answers before throttling   v3 TOPIC_DELETION_DISABLED   v4 flexible
    v5 error text, THROTTLING_QUOTA_EXCEEDED (KIP-599)   v6 topic ids (KIP-516)
    """

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), versions="6+", default=[])
    topic_names: list[str] = field(Array(String), versions="0-5", default=[])
    timeout_ms: int = field(Int32)


class DeletableTopicResult(Struct):
    name: str | None = field(String, nullable="6+")
    topic_id: bytes = field(Uuid, versions="6+", default=ZERO_UUID)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))


class DeleteRecordsPartition(Struct):
    partition_index: int = field(Int32)
    offset: int = field(Int64)


class DeleteRecordsTopic(Struct):
    name: str = field(String)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    """DeleteRecords (key 21): raise log start offsets (-1: to the high watermark).

    v1 answers before throttling   v2 flexible
    """

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
