"""Records of a streams group, made from a group's state and read back into it.

The keys and values of a streams group's records in `__consumer_offsets`, as Kafka's JSON declares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.groupcoord.records import KeyedRecord, RecordFormat
from ottla.groupcoord.streams.members import (
    AssignedTasks,
    Endpoint,
    Member,
    MemberState,
    Task,
    Tasks,
    by_subtopology,
    tasks_of,
)
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


# ---------------------------------------------------------------------- records


FORMATS = (
    RecordFormat(METADATA_KEY, StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    RecordFormat(MEMBER_METADATA_KEY, StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    RecordFormat(
        TARGET_ASSIGNMENT_METADATA_KEY,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMetadataValue,
    ),
    RecordFormat(
        TARGET_ASSIGNMENT_MEMBER_KEY,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMemberValue,
    ),
    RecordFormat(
        CURRENT_MEMBER_ASSIGNMENT_KEY,
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupCurrentMemberAssignmentValue,
    ),
    RecordFormat(TOPOLOGY_KEY, StreamsGroupTopologyKey, StreamsGroupTopologyValue),
)


# ---------------------------------------------------------------------- the group


def metadata_value(
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: Mapping[str, str],
    stored_description_epoch: int,
    failed_description_epoch: int,
) -> StreamsGroupMetadataValue:
    return StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key=key, value=value) for key, value in sorted(assignment_configs.items())
        ],
        stored_description_topology_epoch=stored_description_epoch,
        failed_description_topology_epoch=failed_description_epoch,
    )


def metadata_record(group_id: str, value: StreamsGroupMetadataValue | None) -> KeyedRecord:
    return KeyedRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue | None) -> KeyedRecord:
    return KeyedRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> KeyedRecord:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return KeyedRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def assignment_epoch_tombstone(group_id: str) -> KeyedRecord:
    return KeyedRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None)


# ---------------------------------------------------------------------- members


def member_record(group_id: str, member: Member) -> KeyedRecord:
    return KeyedRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member_value(member)
    )


def member_value(member: Member) -> StreamsGroupMemberMetadataValue:
    endpoint = member.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else MemberEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[ClientTag(key=key, value=value) for key, value in sorted(member.client_tags.items())],
    )


def with_metadata(member: Member, value: StreamsGroupMemberMetadataValue) -> Member:
    """Return the member with the metadata of this record; epoch and tasks are unchanged."""
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
    )


def member_tombstones(group_id: str, member_id: str) -> list[KeyedRecord]:
    """Return the tombstones of a member's records, in Kafka's order."""
    keys = (
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return [KeyedRecord(key, None) for key in keys]


# ---------------------------------------------------------------------- assignments


def target_record(group_id: str, member_id: str, tasks: Tasks) -> KeyedRecord:
    return KeyedRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), target_value(tasks)
    )


def target_value(tasks: Tasks) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_ids(tasks.active),
        standby_tasks=_target_ids(tasks.standby),
        warmup_tasks=_target_ids(tasks.warmup),
    )


def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks))


def current_record(group_id: str, member: Member) -> KeyedRecord:
    return KeyedRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), current_value(member)
    )


def current_value(member: Member) -> StreamsGroupCurrentMemberAssignmentValue:
    has, gives_up = member.assigned, member.pending_revocation
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        active_tasks=_ids_with_epochs(has.active),
        standby_tasks=_current_ids(has.standby),
        warmup_tasks=_current_ids(has.warmup),
        active_tasks_pending_revocation=_ids_with_epochs(gives_up.active),
        standby_tasks_pending_revocation=_current_ids(gives_up.standby),
        warmup_tasks_pending_revocation=_current_ids(gives_up.warmup),
    )


def with_current(member: Member, value: StreamsGroupCurrentMemberAssignmentValue) -> Member:
    """Return the member with the epochs, state and tasks of this record."""
    epoch = value.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=AssignedTasks(
            _tasks_with_epochs(value.active_tasks, epoch),
            tasks_of(value.standby_tasks),
            tasks_of(value.warmup_tasks),
        ),
        pending_revocation=AssignedTasks(
            _tasks_with_epochs(value.active_tasks_pending_revocation, epoch),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
    )


def _target_ids(tasks: Iterable[Task]) -> list[TargetTaskIds]:
    return [TargetTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_subtopology(tasks)]


def _current_ids(tasks: Iterable[Task]) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_subtopology(tasks)]


def _ids_with_epochs(tasks: Mapping[Task, int]) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=name,
            partitions=numbers,
            assignment_epochs=[tasks[Task(name, number)] for number in numbers],
        )
        for name, numbers in by_subtopology(tasks)
    ]


def _tasks_with_epochs(parts: Iterable[CurrentTaskIds], member_epoch: int) -> dict[Task, int]:
    """Return tasks with their assignment epochs. Brokers before 4.2 wrote none: use `member_epoch`."""
    found: dict[Task, int] = {}
    for part in parts:
        epochs = part.assignment_epochs
        if epochs is None or len(epochs) != len(part.partitions):
            epochs = [member_epoch] * len(part.partitions)
        for number, epoch in zip(part.partitions, epochs, strict=True):
            found[Task(part.subtopology_id, number)] = epoch
    return found
