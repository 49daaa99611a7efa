"""DescribeTopicPartitions (key 75): the partitions of topics, page by page (KIP-966).

v0 is the only version. An answer that hits its limit carries the cursor to go on with.
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: str = field(String)


class Cursor(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(Array(TopicRequest))
    response_partition_limit: int = field(Int32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, default=-1)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    eligible_leader_replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    last_known_elr: list[int] | None = field(Array(Int32), nullable="0+", default=None)
    offline_replicas: list[int] = field(Array(Int32))


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="0+")
    topic_id: bytes = field(Uuid)
    is_internal: bool = field(Bool, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(Array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(Int32, default=-(1 << 31))


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
