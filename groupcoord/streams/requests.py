"""Checks of a StreamsGroupHeartbeat that need no group."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groupcoord.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH, check_texts, invalid
from ottla.groupcoord.streams.internal_topics import TASKS_MAX
from ottla.groupcoord.streams.tasks import Tasks, tasks_of
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)

TOPOLOGY_SIZE_MAX = 4_000
"""Subtopologies, topics, their settings and copartition groups together. Ten times what large applications have."""
TAGS_MAX = 100


def check_size(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise a KafkaError if the request names so much that to look at it would hold up others. Comes before all else."""
    if sum([1 + len(tasks.partitions) for tasks in named_tasks(request)]) > 2 * TASKS_MAX:
        raise invalid("The request names more tasks than a streams group may have.")
    for offsets in (request.task_offsets, request.task_end_offsets):
        if len(offsets or ()) > TASKS_MAX:
            raise invalid("The request has offsets of more tasks than a streams group may have.")
    if len(request.client_tags or ()) > TAGS_MAX:
        raise invalid(f"A member may have {TAGS_MAX} client tags.")
    if request.topology is not None and _is_too_large(request.topology):
        message = f"The topology names more than {TOPOLOGY_SIZE_MAX} subtopologies, topics and copartition groups."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _is_too_large(topology: Topology) -> bool:
    left = TOPOLOGY_SIZE_MAX
    for each in topology.subtopologies:
        left -= 1 + len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_sink_topics)
        left -= len(each.repartition_source_topics) + len(each.state_changelog_topics) + len(each.copartition_groups)
        if left < 0:
            return True
        topics = (*each.repartition_source_topics, *each.state_changelog_topics)
        left -= sum([len(topic.topic_configs) for topic in topics])
        left -= sum(
            [len(group.source_topics) + len(group.repartition_source_topics) for group in each.copartition_groups]
        )
    return left < 0


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise a KafkaError if nobody may send this. The order of the checks is Kafka's."""
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise invalid("Regular expressions for source topics are not supported yet.")
    check_texts(
        MemberId=request.member_id, GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id
    )
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    given = [request.active_tasks, request.standby_tasks, request.warmup_tasks]
    if any(tasks is not None for tasks in given) and any(tasks is None for tasks in given):
        raise invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid("Topology must be non-null when (re-)joining.")
    _check_changelogs(request.topology)


def _check_changelogs(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}.",
                )


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that the member says it has; None if it says nothing."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def named_tasks(request: StreamsGroupHeartbeatRequest) -> Iterable[TaskIds]:
    """All tasks that the request names, in whatever role."""
    for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        yield from tasks or ()


def refused_heartbeat(error: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    """An answer with nothing but an error."""
    return StreamsGroupHeartbeatResponse(
        error_code=error,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
