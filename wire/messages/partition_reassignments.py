"""Reassignments of partitions (KIP-455): AlterPartitionReassignments and ListPartitionReassignments."""

from ottla.wire.schema import Array, Bool, Int16, Int32, Message, String, Struct, Text, field


class ReassignablePartition(Struct):
    partition_index: int = field(Int32)
    replicas: list[int] | None = field(Array(Int32), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(String)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    """AlterPartitionReassignments (key 45): start or cancel reassignments (KIP-455).

    v1 may demand that the replication factor stays (KIP-860)
    """

    timeout_ms: int = field(Int32, default=60000)
    allow_replication_factor_change: bool = field(Bool, versions="1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(String)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32)
    allow_replication_factor_change: bool = field(Bool, versions="1+", default=True)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    """ListPartitionReassignments (key 46): list the reassignments in progress (KIP-455)."""

    timeout_ms: int = field(Int32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))


class OngoingTopicReassignment(Struct):
    name: str = field(String)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))
