"""CreatePartitions (key 37): raise the partition count of topics.

v1 answer first, throttle after   v2 flexible   v3 THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Message, String, Struct, Text, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(Array(Int32))


class CreatePartitionsTopic(Struct):
    name: str = field(String)
    count: int = field(Int32)
    assignments: list[CreatePartitionsAssignment] | None = field(Array(CreatePartitionsAssignment), nullable="0+")


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(Int32)
    validate_only: bool = field(Bool)


class CreatePartitionsTopicResult(Struct):
    name: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))
