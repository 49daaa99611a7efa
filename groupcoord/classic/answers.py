"""The answers that members of a classic group get to JoinGroup and SyncGroup."""

from __future__ import annotations

from ottla.groupcoord.classic.group import Group
from ottla.groupcoord.classic.members import NO_LEADER, Member
from ottla.groupcoord.runtime.outcome import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupResponse


def joined(
    group: Group,
    member: Member,
    caller: Caller,
    *,
    skip_assignment: bool = False,
    listed: list[JoinGroupResponseMember] | None = None,
) -> JoinGroupResponse:
    """The answer that makes a member part of the present generation; its leader also gets the list of members.

    `listed`: that list, if it is there already.
    """
    members: list[JoinGroupResponseMember] = []
    if group.members.leader_id == member.member_id:
        members = [each.listed(group.protocol_name) for each in group.members] if listed is None else listed
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation_id,
        protocol_type=group.members.protocol_type,
        protocol_name=_protocol_name(group.protocol_name, caller.api_version),
        leader=group.members.leader_id or NO_LEADER,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def refused_join(member_id: str, error: ErrorCode, api_version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        protocol_name=_protocol_name(None, api_version),
        leader=NO_LEADER,
        member_id=member_id,
        members=[],
    )


def synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.members.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def refused_sync(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def _protocol_name(name: str | None, api_version: int) -> str | None:
    """No name is null since version 7 of JoinGroup and empty before."""
    return name or (None if api_version >= 7 else "")
