"""Records of a share group (KIP-932): ShareFetch and ShareAcknowledge."""

from ottla.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Text,
    Uuid,
    field,
)


class AcknowledgementBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    acknowledge_types: list[int] = field(Array(Int8))


class FetchPartition(Struct):
    partition_index: int = field(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


class FetchTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    """ShareFetch (key 78): acquire records for a share group, and acknowledge earlier ones (KIP-932).

    v1 is the first stable version   v2 renewal of locks (KIP-1222), acquire mode (KIP-1206)
    """

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, default=2147483647)
    max_records: int = field(Int32, versions="1+")
    batch_size: int = field(Int32, versions="1+")
    share_acquire_mode: int = field(Int8, versions="2+", default=0)
    is_renew_ack: bool = field(Bool, versions="2+", default=False)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)


class AcquiredRecords(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_count: int = field(Int16)


class PartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    acknowledge_error_code: int = field(Int16)
    acknowledge_error_message: str | None = field(Text, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: bytes | None = field(Records, nullable="0")
    acquired_records: list[AcquiredRecords] = field(Array(AcquiredRecords))


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, versions="1+")
    responses: list[ShareFetchableTopicResponse] = field(Array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))


class AcknowledgePartition(Struct):
    partition_index: int = field(Int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(Array(AcknowledgementBatch))


class AcknowledgeTopic(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[AcknowledgePartition] = field(Array(AcknowledgePartition))


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    """ShareAcknowledge (key 79): acknowledge records (KIP-932). v1 first stable; v2 renewal of locks (KIP-1222)."""

    group_id: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+")
    share_session_epoch: int = field(Int32)
    is_renew_ack: bool = field(Bool, versions="2+", default=False)
    topics: list[AcknowledgeTopic] = field(Array(AcknowledgeTopic))


class AcknowledgedPartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[AcknowledgedPartition] = field(Array(AcknowledgedPartition))


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(Int32, versions="2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint))
