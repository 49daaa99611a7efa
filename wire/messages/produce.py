"""Produce (key 0): append record batches to partitions.

Acks 0 gets no answer, 1 waits for the leader's log, -1 for all in-sync replicas.

v0-v1 carry message sets of magic 0, v2 of magic 1, v3 and above record batches (magic 2).
v1 throttle time   v2 log append time   v3 transactional id   v4 KAFKA_STORAGE_ERROR   v5 log start offset
v6 answers before throttling   v7 zstd (KIP-110)   v8 errors of single records (KIP-467)   v9 flexible
v10 the new leader in answers (KIP-951)   v11 TRANSACTION_ABORTABLE   v12 Produce adds its partitions to the
transaction itself (KIP-890)   v13 topic ids in place of names (KIP-516)
"""

from ottla.wire.schema import ZERO_UUID, Array, Int16, Int32, Int64, Message, Records, String, Struct, Text, Uuid, field


class PartitionProduceData(Struct):
    index: int = field(Int32)
    records: memoryview | None = field(Records, nullable="0+")


class TopicProduceData(Struct):
    name: str = field(String, versions="0-12", default="")
    topic_id: bytes = field(Uuid, versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


class ProduceRequest(Message, key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    acks: int = field(Int16)
    timeout_ms: int = field(Int32)
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(Int32, versions="8+")
    batch_index_error_message: str | None = field(Text, versions="8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32, versions="10+", default=-1)
    leader_epoch: int = field(Int32, versions="10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(Int32)
    error_code: int = field(Int16)
    base_offset: int = field(Int64)
    log_append_time_ms: int = field(Int64, versions="2+", default=-1)
    log_start_offset: int = field(Int64, versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(Array(BatchIndexAndErrorMessage), versions="8+", default=[])
    error_message: str | None = field(Text, versions="8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, versions="10+", tag=0, default=LeaderIdAndEpoch())


class TopicProduceResponse(Struct):
    name: str = field(String, versions="0-12", default="")
    topic_id: bytes = field(Uuid, versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="10+")
    host: str = field(String, versions="10+")
    port: int = field(Int32, versions="10+")
    rack: str | None = field(String, versions="10+", nullable="10+", default=None)


class ProduceResponse(Message, key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="10+", tag=0, default=[])
