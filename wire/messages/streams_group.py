"""Streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate."""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Text, Uint16, field


class KeyValue(Struct):
    key: str = field(String)
    value: str = field(String)


class TopicInfo(Struct):
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[KeyValue] = field(Array(KeyValue))


class CopartitionGroup(Struct):
    source_topics: list[int] = field(Array(Int16))
    source_topic_regex: list[int] = field(Array(Int16))
    repartition_source_topics: list[int] = field(Array(Int16))


class Subtopology(Struct):
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    source_topic_regex: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_sink_topics: list[str] = field(Array(String))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))
    copartition_groups: list[CopartitionGroup] = field(Array(CopartitionGroup))


class Topology(Struct):
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] = field(Array(Subtopology))


class TaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


class Endpoint(Struct):
    host: str = field(String)
    port: int = field(Uint16)


class TaskOffset(Struct):
    subtopology_id: str = field(String)
    partition: int = field(Int32)
    offset: int = field(Int64)


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0-1", flexible="0+"):
    """StreamsGroupHeartbeat (key 88): join, stay in or leave a streams group with broker-side assignment (KIP-1071).

    v1 the broker may ask for a description of the topology (KIP-1331)
    """

    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    endpoint_information_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    process_id: str | None = field(String, nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(Array(KeyValue), nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(Array(TaskOffset), nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(Array(TaskOffset), nullable="0+", default=None)
    shutdown_application: bool = field(Bool, default=False)


class Status(Struct):
    status_code: int = field(Int8)
    status_detail: str = field(Text)


class TopicPartition(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field(Endpoint)
    active_partitions: list[TopicPartition] = field(Array(TopicPartition))
    standby_partitions: list[TopicPartition] = field(Array(TopicPartition))


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    acceptable_recovery_lag_legacy: int = field(Int32, versions="0", default=0)
    task_offset_interval_ms: int = field(Int32)
    acceptable_recovery_lag: int = field(Int64, versions="1+", default=-1)
    status: list[Status] | None = field(Array(Status), nullable="0+")
    active_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(Array(TaskIds), nullable="0+", default=None)
    topology_description_required: bool = field(Bool, versions="1+", default=False)
    endpoint_information_epoch: int = field(Int32)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        Array(EndpointToPartitions), nullable="0+", default=None
    )


class StreamsGroupDescribeRequest(Message, key=89, versions="0-1", flexible="0+"):
    """StreamsGroupDescribe (key 89): describe the topology and the members of streams groups (KIP-1071).

    v1 description of the topology (KIP-1331), name of the assignor (KIP-1357)
    """

    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool)
    include_topology_description: bool = field(Bool, versions="1+", default=False)


class DescribedSubtopology(Struct):
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    repartition_sink_topics: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))


class DescribedTopology(Struct):
    epoch: int = field(Int32)
    subtopologies: list[DescribedSubtopology] | None = field(Array(DescribedSubtopology), nullable="0+", default=None)


class Assignment(Struct):
    active_tasks: list[TaskIds] = field(Array(TaskIds))
    standby_tasks: list[TaskIds] = field(Array(TaskIds))
    warmup_tasks: list[TaskIds] = field(Array(TaskIds))


class Member(Struct):
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    client_id: str = field(String)
    client_host: str = field(String)
    topology_epoch: int = field(Int32)
    process_id: str = field(String)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(Array(KeyValue))
    task_offsets: list[TaskOffset] = field(Array(TaskOffset))
    task_end_offsets: list[TaskOffset] = field(Array(TaskOffset))
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    is_classic: bool = field(Bool)


class TopologyDescriptionNode(Struct):
    name: str = field(String)
    node_type: int = field(Int8)
    source_topics: list[str] = field(Array(String))
    sink_topic: str | None = field(String, nullable="0+", default=None)
    stores: list[str] = field(Array(String))
    successors: list[str] = field(Array(String))


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(String)
    nodes: list[TopologyDescriptionNode] = field(Array(TopologyDescriptionNode))


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(Array(TopologyDescriptionSubtopology))
    global_stores: list[TopologyDescriptionGlobalStore] = field(Array(TopologyDescriptionGlobalStore))


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    topology: DescribedTopology | None = field(DescribedTopology, nullable="0+", default=None)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(Int32, default=-2147483648)
    topology_description: TopologyDescription | None = field(
        TopologyDescription, versions="1+", nullable="1+", default=None
    )
    topology_description_status: int = field(Int8, versions="1+", default=0)
    assignor_name: str | None = field(String, versions="1+", nullable="1+", default=None)


class StreamsGroupDescribeResponse(Message, key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))


class StreamsGroupTopologyDescriptionUpdateRequest(Message, key=93, versions="0", flexible="0+"):
    """StreamsGroupTopologyDescriptionUpdate (key 93): a streams client describes its topology (KIP-1331). Only v0."""

    group_id: str = field(String)
    member_id: str = field(String)
    topology_epoch: int = field(Int32)
    topology_description: TopologyDescription = field(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Message, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
