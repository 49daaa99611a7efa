"""ElectLeaders (key 43): let partitions be led by their preferred replica, or by any at all (KIP-183, KIP-460).

v1 type of election; error of the whole answer   v2 flexible
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field


class TopicPartitions(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    election_type: int = field(Int8, versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(Int32, default=60000)


class PartitionResult(Struct):
    partition_id: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = field(String)
    partition_result: list[PartitionResult] = field(Array(PartitionResult))


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(Array(ReplicaElectionResult))
