"""Manager of a shard's classic groups: finds a request's group, creates groups and deletes them.

`rebalancing.py` decides what becomes of a request. Most of a rebalance is in no record, so a living group is ahead of its
record: that is replayed at load only. The end of a group comes into force when its tombstone is committed.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ottla.groupcoord.classic.group import DEAD, EMPTY, GROUP_TYPE, JOIN, SESSION, SYNC, refused_join, refused_sync
from ottla.groupcoord.classic.members import (
    FORMATS,
    UNKNOWN_MEMBER_ID,
    GroupMetadataKey,
    GroupMetadataRecord,
    LoadedGroup,
)
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.effects import TimerKey
from ottla.groupcoord.group import AskLastRebalance, Group, LastRebalance
from ottla.groupcoord.manager import GroupType, MetadataManager, ShardContext
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
)
from ottla.wire.messages.groups import DescribedGroup

STREAMS_TYPE = "streams"


class DescribeGroup(NamedTuple):
    """Internal request to describe one group; a DescribeGroups request is split into these."""

    group_id: str
    api_version: int


class ClassicGroupManager(MetadataManager):
    """Manager of a shard's classic groups."""

    group_type = GROUP_TYPE

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._effects = context.effects
        self._groups = context.groups
        self.requests = {JoinGroupRequest: self._join, SyncGroupRequest: self._sync, LeaveGroupRequest: self._leave}
        self.reads = {
            HeartbeatRequest: self._heartbeat,
            DescribeGroup: self._describe,
            AskLastRebalance: self._last_rebalance,
        }
        self.loads = {GroupMetadataKey: self._load}
        self.commits = {GroupMetadataKey: self._end_if_ending}
        self._oversized: dict[str, None] = {}  # found while loading, in the order of the log
        self.timers = {SESSION: self._expire_session, JOIN: self._expire_join, SYNC: self._expire_sync}

    def loaded(self) -> None:
        # Not a look at all groups: there may be a million, and this is done in one step.
        for group_id in self._oversized:
            group = self._group(group_id)
            if group is not None:
                group.shrink_to_size()
        self._oversized.clear()

    def _group(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # ------------------------------------------------------------------ records

    def _load(self, record: GroupMetadataRecord, record_offset: int, producer_id: int) -> None:
        group_id = record.key.group
        if record.value is None:
            self._end(record, record_offset, producer_id)
        else:
            members = record.take_members() if isinstance(record, LoadedGroup) else None
            group = self._groups[group_id] = ClassicGroup.of_record(group_id, record.value, self._effects, members)
            if len(group.members) > self._effects.config.group_max_size:
                self._oversized[group_id] = None

    def _end(self, record: GroupMetadataRecord, record_offset: int, producer_id: int) -> None:
        """Remove the group if `record` is a tombstone. Ignore other records: the group in memory is newer."""
        group = self._group(record.key.group)
        # The tombstone of a classic group that was turned into another kind of group leaves that alone.
        if record.value is None and group is not None:
            del self._groups[group.group_id]
            # Deadlines know a group by its id only. They would hit the next group of that name.
            group.cancel_timers()

    def _end_if_ending(self, record: GroupMetadataRecord, record_offset: int, producer_id: int) -> None:
        """Remove a tombstone's group if it is being deleted. Otherwise a newer group has this id, which stays."""
        group = self._group(record.key.group)
        if group is not None and group.is_ending:
            self._end(record, record_offset, producer_id)

    # ------------------------------------------------------------------ requests

    def _join(self, request: JoinGroupRequest, caller: Caller) -> None:
        group, other = self._group(request.group_id), self._groups.get(request.group_id)
        if group is not None:
            group.join(request, caller)
        elif other is not None and not (other.group_type == STREAMS_TYPE and other.state_name == EMPTY.value):
            # A group of a kind that cannot have classic members. An empty streams group gives way, as when an application
            # of Kafka Streams returns to the classic protocol.
            response = refused_join(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, caller.api_version)
            self._effects.reply(caller, response)
        elif request.member_id:
            # Nobody can be a member of a group that does not exist.
            response = refused_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, caller.api_version)
            self._effects.reply(caller, response)
        else:
            if other is not None:
                self._take_place_of(other)
            join_new_group(self._context, request, caller)

    def _take_place_of(self, other: Group) -> None:
        """Delete an empty group of another type to make room for a classic group; the offsets stay."""
        other.delete()
        # The last undo is the first to be called. Those before it put the group's records back, for which it has to be there.
        self._effects.undo_if_refused(lambda: self._groups.update({other.group_id: other}))

    def _sync(self, request: SyncGroupRequest, caller: Caller) -> None:
        group = self._group(request.group_id)
        if group is None:
            self._effects.reply(caller, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            group.sync(request, caller)

    def _leave(self, request: LeaveGroupRequest, caller: Caller) -> None:
        group = self._group(request.group_id)
        if group is not None:
            self._effects.carry_on(group.leave(request, caller))
            return
        members = [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for each in request.members
        ]
        self._effects.reply(caller, LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

    # ------------------------------------------------------------------ reads

    def _heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        group = self._group(request.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.heartbeat(request)

    def _last_rebalance(self, request: AskLastRebalance) -> LastRebalance | None:
        group = self._group(request.group_id)
        return None if group is None else group.last_rebalance

    def _describe(self, request: DescribeGroup) -> DescribedGroup:
        """Describe a group. An unknown group is an error since version 6; in earlier versions its state is Dead."""
        group_id = request.group_id
        group = self._group(group_id)
        if group is not None:
            return group.described()
        if request.api_version < 6:
            return undescribed(group_id, ErrorCode.NONE, state=DEAD.value)
        problem = (
            f"Group {group_id} is not a classic group." if group_id in self._groups else f"Group {group_id} not found."
        )
        return undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, problem, state=DEAD.value)

    # ------------------------------------------------------------------ deadlines

    def _expire_session(self, key: TimerKey) -> None:
        if (group := self._group(key.group_id)) is not None:
            group.expire_session(key.member_id)

    def _expire_join(self, key: TimerKey) -> None:
        if (group := self._group(key.group_id)) is not None:
            group.expire_join()

    def _expire_sync(self, key: TimerKey) -> None:
        if (group := self._group(key.group_id)) is not None:
            group.expire_sync()


def join_new_group(context: ShardContext, request: JoinGroupRequest, caller: Caller) -> None:
    """Create a group for its first join. The group exists from then on, even if the join is refused."""
    # As in Kafka the group is made even if it refuses the join. A refusal with MEMBER_ID_REQUIRED needs it,
    # because the group remembers the id that it hands out.
    group = ClassicGroup(request.group_id, context.effects)
    group.join(request, caller)

    def settle(error: ErrorCode) -> None:
        if error:
            # The log has refused the group's first record, so there never was a group. Whoever is parked in it
            # hears why.
            deque(group.unload(error), maxlen=0)
            group.cancel_timers()
            if context.groups.get(group.group_id) is group:
                del context.groups[group.group_id]

    # Not left to the replay, which does not bring a group to life after the load.
    context.groups[group.group_id] = group
    context.effects.append(group.creation_record(), settle)


def undescribed(group_id: str, error: ErrorCode, message: str | None = None, *, state: str = "") -> DescribedGroup:
    """Return a group description that carries only an error."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


CLASSIC = GroupType(
    make=ClassicGroupManager,
    formats=FORMATS,
    # They look at members alone.
    overlapping=frozenset({JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest}),
)
