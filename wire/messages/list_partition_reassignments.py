"""ListPartitionReassignments (key 46): which partitions are being moved, and to where (KIP-455)."""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
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
