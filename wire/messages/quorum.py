"""The metadata quorum and its nodes: DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UnregisterBroker and UnregisterController."""

from ottla.wire.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Text,
    Uint16,
    Uuid,
    field,
)


class PartitionData(Struct):
    partition_index: int = field(Int32)


class TopicData(Struct):
    topic_name: str = field(String)
    partitions: list[PartitionData] = field(Array(PartitionData))


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    """DescribeQuorum (key 55): describe the Raft quorum that stores Kafka's metadata (KIP-595).

    v1 last fetch times of voters and observers (KIP-836)
    v2 error messages, directories of voters, addresses of nodes (KIP-853)
    """

    topics: list[TopicData] = field(Array(TopicData))


class ReplicaState(Struct):
    replica_id: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="2+", default=ZERO_UUID)
    log_end_offset: int = field(Int64)
    last_fetch_timestamp: int = field(Int64, versions="1+", default=-1)
    last_caught_up_timestamp: int = field(Int64, versions="1+", default=-1)


class DescribedPartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="2+", nullable="2+", default="")
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    high_watermark: int = field(Int64)
    current_voters: list[ReplicaState] = field(Array(ReplicaState))
    observers: list[ReplicaState] = field(Array(ReplicaState))


class DescribedTopicData(Struct):
    topic_name: str = field(String)
    partitions: list[DescribedPartitionData] = field(Array(DescribedPartitionData))


class Listener(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


class Node(Struct):
    node_id: int = field(Int32)
    listeners: list[Listener] = field(Array(Listener))


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="2+", nullable="2+", default="")
    topics: list[DescribedTopicData] = field(Array(DescribedTopicData))
    nodes: list[Node] = field(Array(Node), versions="2+", default=[])


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    """AddRaftVoter (key 80): add a voter to the Raft quorum that stores Kafka's metadata (KIP-853).

    v1 may respond before the change is committed (KIP-1186)
    """

    cluster_id: str | None = field(String, nullable="0+")
    timeout_ms: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    ack_when_committed: bool = field(Bool, versions="1+", default=True)


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    """RemoveRaftVoter (key 81): remove a voter from the Raft quorum that stores Kafka's metadata (KIP-853)."""

    cluster_id: str | None = field(String, nullable="0+")
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    """UnregisterBroker (key 64): remove the registration of a broker that will not return (KIP-631)."""

    broker_id: int = field(Int32)


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class UnregisterControllerRequest(Message, key=94, versions="0", flexible="0+"):
    """UnregisterController (key 94): remove the registration of a controller that will not return."""

    controller_id: int = field(Int32)


class UnregisterControllerResponse(Message, key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
