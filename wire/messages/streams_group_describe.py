"""StreamsGroupDescribe (key 89): the topology and the members of streams groups (KIP-1071).

v1 description of the topology (KIP-1331), name of the assignor (KIP-1357)
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Text, Uint16, field


class StreamsGroupDescribeRequest(Message, key=89, versions="0-1", flexible="0+"):
    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool)
    include_topology_description: bool = field(Bool, versions="1+", default=False)


class KeyValue(Struct):
    key: str = field(String)
    value: str = field(String)


class TopicInfo(Struct):
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[KeyValue] = field(Array(KeyValue))


class Subtopology(Struct):
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    repartition_sink_topics: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))


class Topology(Struct):
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] | None = field(Array(Subtopology), nullable="0+", default=None)


class Endpoint(Struct):
    host: str = field(String)
    port: int = field(Uint16)


class TaskOffset(Struct):
    subtopology_id: str = field(String)
    partition: int = field(Int32)
    offset: int = field(Int64)


class TaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


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
    name: str = field(String, versions="1+")
    node_type: int = field(Int8, versions="1+")
    source_topics: list[str] = field(Array(String), versions="1+")
    sink_topic: str | None = field(String, versions="1+", nullable="1+", default=None)
    stores: list[str] = field(Array(String), versions="1+")
    successors: list[str] = field(Array(String), versions="1+")


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(String, versions="1+")
    nodes: list[TopologyDescriptionNode] = field(Array(TopologyDescriptionNode), versions="1+")


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode, versions="1+")
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode, versions="1+")


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(Array(TopologyDescriptionSubtopology), versions="1+")
    global_stores: list[TopologyDescriptionGlobalStore] = field(Array(TopologyDescriptionGlobalStore), versions="1+")


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
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
