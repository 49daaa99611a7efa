"""How members go: they leave, a session ends, or they do not give up tasks in time.

A member that goes takes its records with it, and the group gets a new epoch, so that its tasks are given to others at
their next heartbeats. The last one that goes brings the assignment up to that epoch, and lets the next assignment come at
once. A static member that only goes for a while (-2) keeps its tasks; nobody else gets them before its session ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ottla.groupcoord.modern.group import STATIC_LEAVE_EPOCH
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.joining import known_member, known_static_member
from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.state import StreamsState
from ottla.groupcoord.streams.tasks import NOTHING_ASSIGNED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse


def leaving_member(state: StreamsState, request: StreamsGroupHeartbeatRequest) -> Member:
    """Who leaves. Raises KafkaError if nobody by that name is in."""
    if request.instance_id is None:
        return known_member(state, request.member_id)
    return known_static_member(state, request.member_id, request.instance_id)


def goes_for_a_while(request: StreamsGroupHeartbeatRequest) -> bool:
    return request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH


def records_of_pause(state: StreamsState, member: Member) -> Iterator[KeyedRecord]:
    """A static member goes for a while: whoever comes in its place may commit with any epoch of its own."""
    paused = replace(
        member,
        member_epoch=STATIC_LEAVE_EPOCH,
        assigned=member.assigned.with_epoch(0),
        pending_revocation=NOTHING_ASSIGNED,
    )
    yield records.current_record(state.group_id, paused)


def records_of_end(state: StreamsState, member: Member) -> Iterator[KeyedRecord]:
    """A member goes for good."""
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


def left(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    """The answer to a member that leaves."""
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
