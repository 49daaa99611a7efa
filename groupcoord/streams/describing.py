"""Descriptions of streams groups for StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.groupcoord.modern.describing import Large, with_members
from ottla.groupcoord.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.streams.group import StreamsState, TaskPositions
from ottla.groupcoord.streams.internal_topics import ConfiguredSubtopology, InternalTopic
from ottla.groupcoord.streams.members import Member, Task, Tasks, by_subtopology
from ottla.groupcoord.streams.records import Subtopology, TopicInfo
from ottla.groupcoord.streams.targets import ASSIGNOR, NOTHING
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group as wire


def described(state: StreamsState) -> wire.DescribedGroup | Large[wire.DescribedGroup]:
    description = wire.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=state.group_id,
        group_state=state.state_name,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        topology=_topology(state),
        members=[],
        assignor_name=ASSIGNOR.name,
    )
    nowhere = TaskPositions()
    sources = [
        (member, state.targets.get(member_id, NOTHING), state.positions.get(member_id, nowhere))
        for member_id, member in state.members.items()
    ]
    return with_members(description, sources, lambda source: _member(*source))


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> wire.DescribedGroup:
    """Return a group description that carries only an error."""
    return undescribed_as(wire.DescribedGroup, group_id, error, message)


# ---------------------------------------------------------------------- the topology


def _topology(state: StreamsState) -> wire.DescribedTopology | None:
    """Return the topology's description; None without a topology.

    It has partition counts only if all internal topics exist.
    """
    if state.topology is None:
        return None
    configured = state.configured
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        parts = [_configured(each) for each in configured.subtopologies.values()]
        return wire.DescribedTopology(epoch=configured.epoch, subtopologies=parts)
    parts = [_as_sent(each) for _, each in sorted(state.topology.subtopologies.items())]
    return wire.DescribedTopology(epoch=state.topology.epoch, subtopologies=parts)


def _configured(each: ConfiguredSubtopology) -> wire.DescribedSubtopology:
    return _subtopology(
        each.subtopology,
        [_internal_topic(topic) for topic in each.repartition_source_topics],
        [_internal_topic(topic) for topic in each.state_changelog_topics],
    )


def _as_sent(each: Subtopology) -> wire.DescribedSubtopology:
    return _subtopology(
        each,
        [_topic(topic, topic.partitions) for topic in each.repartition_source_topics],
        [_topic(topic, topic.partitions) for topic in each.state_changelog_topics],
    )


def _subtopology(
    each: Subtopology, repartition: list[wire.TopicInfo], changelogs: list[wire.TopicInfo]
) -> wire.DescribedSubtopology:
    return wire.DescribedSubtopology(
        subtopology_id=each.subtopology_id,
        source_topics=sorted(each.source_topics),
        repartition_sink_topics=sorted(each.repartition_sink_topics),
        state_changelog_topics=sorted(changelogs, key=lambda topic: topic.name),
        repartition_source_topics=sorted(repartition, key=lambda topic: topic.name),
    )


def _internal_topic(topic: InternalTopic) -> wire.TopicInfo:
    return _topic(topic.info, topic.partitions)


def _topic(topic: TopicInfo, partitions: int) -> wire.TopicInfo:
    return wire.TopicInfo(
        name=topic.name,
        partitions=partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[wire.KeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
    )


# ---------------------------------------------------------------------- members


def _member(member: Member, target: Tasks, positions: TaskPositions) -> wire.Member:
    has, endpoint = member.assigned, member.user_endpoint
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(positions.offsets),
        task_end_offsets=_offsets(positions.end_offsets),
        assignment=_assignment(has.active, has.standby, has.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
        is_classic=False,
    )


def _assignment(active: Iterable[Task], standby: Iterable[Task], warmup: Iterable[Task]) -> wire.Assignment:
    return wire.Assignment(
        active_tasks=task_ids(active), standby_tasks=task_ids(standby), warmup_tasks=task_ids(warmup)
    )


def task_ids(tasks: Iterable[Task]) -> list[wire.TaskIds]:
    """Convert tasks to the form in which requests name them."""
    return [wire.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_subtopology(tasks)]


def _offsets(offsets: Mapping[Task, int]) -> list[wire.TaskOffset]:
    return [
        wire.TaskOffset(subtopology_id=task.subtopology_id, partition=task.partition, offset=offset)
        for task, offset in sorted(offsets.items())
    ]
