"""Whose heartbeat it is: the member of a request, one that is new, or one that takes the place of a static member.

| the request has | without instance id | with instance id |
|-|-|-|
| epoch 0 (join) | the member; a new one if the id is unknown | new, or in the place of the static member that has left |
| another epoch | the member, if the epoch is its own | the static member, if id and epoch are its own |

A static member that leaves for a while (-2) keeps its place for the session timeout. Whoever joins meanwhile by its
instance id gets its tasks under the new member id. If it has not left, the newcomer hears UNRELEASED_INSTANCE_ID.

A member may come with the epoch before its own, because the answer with the new one may have been lost: if it has no task
that it should not have.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.groupcoord.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.requests import owned_tasks
from ottla.groupcoord.streams.state import StreamsState
from ottla.groupcoord.streams.targets import NOTHING
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def check_size(state: StreamsState, request: StreamsGroupHeartbeatRequest, max_size: int) -> None:
    """Refuse one member more than may be in. A static member that comes back is none more."""
    if request.instance_id in state.static_members or request.member_id in state.members:
        return
    if len(state.members) >= max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {max_size} members.",
        )


def member_of(state: StreamsState, request: StreamsGroupHeartbeatRequest, written: list[KeyedRecord]) -> Member:
    """The member before what this request changes. The records that make it take a place are added to `written`."""
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
    """The static member, if it goes by this member id now."""
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
