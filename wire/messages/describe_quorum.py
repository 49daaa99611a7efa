"""DescribeQuorum (key 55): the Raft quorum that keeps Kafka's metadata (KIP-595).

v1 when voters and observers fetched (KIP-836)   v2 messages of errors, directories of voters, addresses of nodes (KIP-853)
"""

from ottla.wire.schema import ZERO_UUID, Array, Int16, Int32, Int64, Message, String, Struct, Uint16, Uuid, field


class DescribeQuorumRequestPartition(Struct):
    partition_index: int = field(Int32)


class DescribeQuorumRequestTopic(Struct):
    topic_name: str = field(String)
    partitions: list[DescribeQuorumRequestPartition] = field(Array(DescribeQuorumRequestPartition))


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopic] = field(Array(DescribeQuorumRequestTopic))


class ReplicaState(Struct):
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="2+", default=ZERO_UUID)
    log_end_offset: int = field(Int64)
    last_fetch_timestamp: int = field(Int64, versions="1+", default=-1)
    last_caught_up_timestamp: int = field(Int64, versions="1+", default=-1)


class DescribeQuorumResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="2+", nullable="2+", default=None)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    high_watermark: int = field(Int64)
    current_voters: list[ReplicaState] = field(Array(ReplicaState))
    observers: list[ReplicaState] = field(Array(ReplicaState))


class DescribeQuorumResponseTopic(Struct):
    topic_name: str = field(String)
    partitions: list[DescribeQuorumResponsePartition] = field(Array(DescribeQuorumResponsePartition))


class QuorumListener(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


class QuorumNode(Struct):
    node_id: int = field(Int32)
    listeners: list[QuorumListener] = field(Array(QuorumListener))


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="2+", nullable="2+", default=None)
    topics: list[DescribeQuorumResponseTopic] = field(Array(DescribeQuorumResponseTopic))
    nodes: list[QuorumNode] = field(Array(QuorumNode), versions="2+", default=[])
