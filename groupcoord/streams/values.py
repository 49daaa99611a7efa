"""The keys and values of a streams group's records in `__consumer_offsets`, as Kafka's JSON declares them."""

from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, String, Struct, Uint16, field

METADATA_KEY = 17
MEMBER_METADATA_KEY = 19
TARGET_ASSIGNMENT_METADATA_KEY = 20
TARGET_ASSIGNMENT_MEMBER_KEY = 21
CURRENT_MEMBER_ASSIGNMENT_KEY = 22
TOPOLOGY_KEY = 23

NO_EPOCH = -1


class StreamsGroupMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class LastAssignmentConfig(Struct):
    key: str = field(String)
    value: str = field(String)


class StreamsGroupMetadataValue(Struct, versions="0", flexible="0+"):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)
    validated_topology_epoch: int = field(Int32, tag=0, default=NO_EPOCH)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        Array(LastAssignmentConfig), nullable="0+", tag=1, default=None
    )
    stored_description_topology_epoch: int = field(Int32, tag=2, default=NO_EPOCH)
    failed_description_topology_epoch: int = field(Int32, tag=3, default=NO_EPOCH)


class StreamsGroupMemberMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class MemberEndpoint(Struct):
    host: str = field(String)
    port: int = field(Uint16)


class ClientTag(Struct):
    key: str = field(String)
    value: str = field(String)


class StreamsGroupMemberMetadataValue(Struct, versions="0", flexible="0+"):
    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    topology_epoch: int = field(Int32)
    process_id: str = field(String)
    user_endpoint: MemberEndpoint | None = field(MemberEndpoint, nullable="0+", default=None)
    client_tags: list[ClientTag] = field(Array(ClientTag))


class StreamsGroupTargetAssignmentMetadataKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class StreamsGroupTargetAssignmentMetadataValue(Struct, versions="0", flexible="0+"):
    assignment_epoch: int = field(Int32)
    assignment_timestamp: int = field(Int64, tag=0, default=0)


class StreamsGroupTargetAssignmentMemberKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class TargetTaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))


class StreamsGroupTargetAssignmentMemberValue(Struct, versions="0", flexible="0+"):
    active_tasks: list[TargetTaskIds] = field(Array(TargetTaskIds))
    standby_tasks: list[TargetTaskIds] = field(Array(TargetTaskIds))
    warmup_tasks: list[TargetTaskIds] = field(Array(TargetTaskIds))


class StreamsGroupCurrentMemberAssignmentKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    member_id: str = field(String)


class CurrentTaskIds(Struct):
    subtopology_id: str = field(String)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0, default=None)


class StreamsGroupCurrentMemberAssignmentValue(Struct, versions="0", flexible="0+"):
    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    active_tasks: list[CurrentTaskIds] = field(Array(CurrentTaskIds))
    standby_tasks: list[CurrentTaskIds] = field(Array(CurrentTaskIds))
    warmup_tasks: list[CurrentTaskIds] = field(Array(CurrentTaskIds))
    active_tasks_pending_revocation: list[CurrentTaskIds] = field(Array(CurrentTaskIds))
    standby_tasks_pending_revocation: list[CurrentTaskIds] = field(Array(CurrentTaskIds))
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = field(Array(CurrentTaskIds))


class StreamsGroupTopologyKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)


class TopicConfig(Struct):
    key: str = field(String)
    value: str = field(String)


class TopicInfo(Struct):
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[TopicConfig] = field(Array(TopicConfig))


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


class StreamsGroupTopologyValue(Struct, versions="0", flexible="0+"):
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] = field(Array(Subtopology))
