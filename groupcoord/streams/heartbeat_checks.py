"""Checks of a StreamsGroupHeartbeat, the member that it comes from, and the records of a member that leaves.

| the request has | without instance id | with instance id |
|-|-|-|
| epoch 0 (join) | the member; a new one if the id is unknown | new, or in the place of the static member that has left |
| another epoch | the member, if the epoch is its own | the static member, if id and epoch are its own |

A static member that leaves for a while (-2) keeps its place and its tasks until its session ends. A member that joins
meanwhile by its instance id gets its tasks under the new member id. If it has not left, the newcomer gets UNRELEASED_INSTANCE_ID.

A member may come with the epoch before its own, because the answer with the new one may have been lost: if it has no task
that it should not have.

The records of a member that leaves for good go with it, and the group gets a new epoch, so that its tasks are given to
others at their next heartbeats. The last one that leaves brings the assignment up to that epoch, and lets the next
assignment come at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla.groupcoord.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH, check_texts, invalid
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.group import StreamsState
from ottla.groupcoord.streams.internal_topics import TASKS_MAX
from ottla.groupcoord.streams.members import NOTHING_ASSIGNED, Member, Tasks, tasks_of
from ottla.groupcoord.streams.targets import NOTHING
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)

TOPOLOGY_SIZE_MAX = 4_000
"""Subtopologies, topics, their settings and copartition groups together. Large applications have a tenth of it."""
TAGS_MAX = 100


def check_size(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise KafkaError if the request is too large for one time slice. Call this before any other work."""
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
    """Raise KafkaError if the heartbeat is invalid in every group. The order of the checks is Kafka's."""
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
    """Return the tasks that the member owns, as it reports; None if the request reports no tasks."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def named_tasks(request: StreamsGroupHeartbeatRequest) -> Iterable[TaskIds]:
    """Yield all tasks that the request names, in any role."""
    for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        yield from tasks or ()


def refused_heartbeat(error: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    """Return a heartbeat response that carries only an error."""
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


# ---------------------------------------------------------------------- joining


def check_group_size(state: StreamsState, request: StreamsGroupHeartbeatRequest, max_size: int) -> None:
    """Raise KafkaError if the request would add a new member to a full group. A returning static member is not new."""
    if request.instance_id in state.static_members or request.member_id in state.members:
        return
    if len(state.members) >= max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {max_size} members.",
        )


def member_of(state: StreamsState, request: StreamsGroupHeartbeatRequest, written: list[KeyedRecord]) -> Member:
    """Return the member that sent the request, in its state before the request. A join may return a new member.

    Records that replace a static member are added to `written`. Raises KafkaError if the member is unknown or fenced.
    """
    if request.instance_id is not None:
        return _static_member(state, request, request.instance_id, written)
    if request.member_epoch == JOIN_EPOCH:
        return state.members.get(request.member_id) or Member(request.member_id)
    member = known_member(state, request.member_id)
    _check_epoch(member, request)
    return member


def known_member(state: StreamsState, member_id: str) -> Member:
    member = state.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {state.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def known_static_member(state: StreamsState, member_id: str, instance_id: str) -> Member:
    """Return the static member with this instance id. Raises KafkaError if unknown, or if it has another member id."""
    member = state.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _static_member(
    state: StreamsState, request: StreamsGroupHeartbeatRequest, instance_id: str, written: list[KeyedRecord]
) -> Member:
    member_id = request.member_id
    if request.member_epoch != JOIN_EPOCH:
        member = known_static_member(state, member_id, instance_id)
        _check_epoch(member, request)
        return member
    former = state.static_member(instance_id)
    if former is None:
        return state.members.get(member_id) or Member(member_id)
    if former.member_epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
            f"owned by {former.member_id} member.",
        )
    newcomer = replace(former, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group_id = state.group_id
    written += records.member_tombstones(group_id, former.member_id)
    written.append(records.member_record(group_id, newcomer))
    written.append(records.target_record(group_id, member_id, state.targets.get(former.member_id, NOTHING)))
    written.append(records.current_record(group_id, newcomer))
    return newcomer


def _check_epoch(member: Member, request: StreamsGroupHeartbeatRequest) -> None:
    received = request.member_epoch
    if received == member.member_epoch:
        return
    if received > member.member_epoch:
        raise _fenced("greater", received, member)
    owned = owned_tasks(request)
    if received != member.previous_member_epoch or owned is None:
        raise _fenced("smaller", received, member)
    has = member.assigned
    if not (owned.active <= has.active.keys() and owned.standby <= has.standby and owned.warmup <= has.warmup):
        raise _fenced("smaller", received, member)


def _fenced(which: str, received: int, member: Member) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {which} member epoch ({received}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


# ---------------------------------------------------------------------- leaving


def leaving_member(state: StreamsState, request: StreamsGroupHeartbeatRequest) -> Member:
    """Return the member that leaves. Raises KafkaError if the member is unknown or fenced."""
    if request.instance_id is None:
        return known_member(state, request.member_id)
    return known_static_member(state, request.member_id, request.instance_id)


def is_static_leave(request: StreamsGroupHeartbeatRequest) -> bool:
    return request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH


def static_leave_records(state: StreamsState, member: Member) -> Iterator[KeyedRecord]:
    """Yield the record of a static member's leave. Its assignment epochs are 0, so that all later commits are valid."""
    paused = replace(
        member,
        member_epoch=STATIC_LEAVE_EPOCH,
        assigned=member.assigned.with_epoch(0),
        pending_revocation=NOTHING_ASSIGNED,
    )
    yield records.current_record(state.group_id, paused)


def leave_records(state: StreamsState, member: Member) -> Iterator[KeyedRecord]:
    """Yield the records that remove a member permanently."""
    yield from records.member_tombstones(state.group_id, member.member_id)
    known = state.metadata
    value = records.metadata_value(
        known.epoch + 1,
        known.metadata_hash,
        known.validated_topology_epoch,
        state.assignment_configs,
        known.stored_description_topology_epoch,
        known.failed_description_topology_epoch,
    )
    yield records.metadata_record(state.group_id, value)
    if len(state.members) == 1:
        yield records.assignment_epoch_record(state.group_id, value.epoch, 0)


def left_response(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    """Return the response to a member that leaves."""
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
