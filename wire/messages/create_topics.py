"""New topics and partitions: CreateTopics and CreatePartitions."""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(Int32)
    broker_ids: list[int] = field(Array(Int32))


class CreatableTopicConfig(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class CreatableTopic(Struct):
    name: str = field(String)
    num_partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig))


class CreateTopicsRequest(Message, key=19, versions="0-7", flexible="5+"):
    """CreateTopics (key 19): create topics, each with counts of partitions and replicas, or with assigned replicas.

    v1 only validates if asked for; error texts   v2 throttle time   v3 answers before throttling   v4 counts of -1 mean the broker's defaults (KIP-464)
    v5 flexible; the response has the new topic's configs (KIP-525)   v6 THROTTLING_QUOTA_EXCEEDED (KIP-599)
    v7 topic id in the response (KIP-516)
    """

    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(Int32, default=60000)
    validate_only: bool = field(Bool, versions="1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(String, versions="5+")
    value: str | None = field(String, versions="5+", nullable="5+")
    read_only: bool = field(Bool, versions="5+")
    config_source: int = field(Int8, versions="5+", default=-1)
    is_sensitive: bool = field(Bool, versions="5+")


class CreatableTopicResult(Struct):
    name: str = field(String)
    topic_id: bytes = field(Uuid, versions="7+", default=ZERO_UUID)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="1+", nullable="0+", default="")
    topic_config_error_code: int = field(Int16, versions="5+", tag=0, default=0)
    num_partitions: int = field(Int32, versions="5+", default=-1)
    replication_factor: int = field(Int16, versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), versions="5+", nullable="5+", default=[]
    )


class CreateTopicsResponse(Message, key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = field(Int32, versions="2+", default=0)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(Array(Int32))


class CreatePartitionsTopic(Struct):
    name: str = field(String)
    count: int = field(Int32)
    assignments: list[CreatePartitionsAssignment] | None = field(Array(CreatePartitionsAssignment), nullable="0+")


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    """CreatePartitions (key 37): raise the partition count of topics.

    v1 answers before throttling   v2 flexible   v3 THROTTLING_QUOTA_EXCEEDED (KIP-599)
    """

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
