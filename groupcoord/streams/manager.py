"""Manager of a shard's streams groups (KIP-1071).

`heartbeat.py` and `heartbeat_checks.py` make the records of a request. They are put in force at once, and taken back if the log
refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.groupcoord.causes import note_left, note_refused, note_removed, was_silent
from ottla.groupcoord.effects import Steps, TimerKey
from ottla.groupcoord.group import HAS_LEFT, WAS_SILENT, Group, member_reason, note_rebalance
from ottla.groupcoord.manager import GroupType, ShardContext
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from ottla.groupcoord.modern.manager import ModernGroupManager, gives_way
from ottla.groupcoord.records import GroupRecord, KeyedRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.streams import describing, records
from ottla.groupcoord.streams.group import (
    EMPTY,
    FIRST_ASSIGNMENT,
    GROUP_TYPE,
    REVOCATION,
    SESSION,
    StreamsGroup,
)
from ottla.groupcoord.streams.heartbeat import Heartbeat, HeartbeatResult
from ottla.groupcoord.streams.heartbeat_checks import (
    is_static_leave,
    leave_records,
    leaving_member,
    left_response,
    refused_heartbeat,
    static_leave_records,
)
from ottla.groupcoord.streams.members import Member, MemberState, Tasks
from ottla.groupcoord.streams.records import (
    FORMATS,
    assignment_epoch_record,
    assignment_epoch_tombstone,
    metadata_record,
    topology_record,
)
from ottla.groupcoord.streams.targets import (
    StreamsAssignmentComputed,
    assignment_input,
    compute,
    put_computed,
    target_records,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group import StreamsGroupHeartbeatRequest


class DescribeStreamsGroup:
    """Internal request to describe one group; a StreamsGroupDescribe request is split into these."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


class StreamsGroupManager(ModernGroupManager[StreamsGroup]):
    """Manager of a shard's streams groups."""

    group_type = GROUP_TYPE
    group_class = StreamsGroup

    def __init__(self, context: ShardContext) -> None:
        super().__init__(context)
        self.requests = {
            StreamsGroupHeartbeatRequest: self._heartbeat,
            DescribeStreamsGroup: self._describe,
            StreamsAssignmentComputed: self._take_computed,
        }
        self.loads = dict.fromkeys((each.key for each in FORMATS), self.load)
        self.timers = {
            SESSION: self._at(self._fence),
            REVOCATION: self._at(self._end_revocation),
            FIRST_ASSIGNMENT: self._assign_first,
        }

    # ------------------------------------------------------------------ records

    def replay(self, record: GroupRecord) -> None:
        """Apply a record to its group. The first value creates the group; the metadata's tombstone removes it."""
        group_id = record.key.group_id
        group = self._group(group_id)
        if group is None:
            if record.value is None or not gives_way(self._groups.get(group_id)):
                return
            group = self._groups[group_id] = self._new_group(group_id)
        if record.value is None and isinstance(record.key, records.StreamsGroupMetadataKey):
            del self._groups[group_id]
        else:
            group.replay(record)

    def _put(self, written: Iterable[KeyedRecord]) -> None:
        for record in written:
            self._effects.put(self, record)

    def _new_group(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id, self._effects, self._settings_of, self._end)

    # ------------------------------------------------------------------ requests

    def _heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> None:
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                answered = self._leave(request)
            else:
                answered = self._stay(request, caller)
        except KafkaError as error:
            note_refused(self._effects, request.group_id, request.member_id, caller, error.code, error.message)
            self._effects.reply(caller, HeartbeatResult(refused_heartbeat(error.code, error.message), [], ()))
            return
        self._effects.answer(caller, answered, lambda error: HeartbeatResult(refused_heartbeat(error), [], ()))

    def _stay(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> HeartbeatResult:
        known = self._groups.get(request.group_id)
        is_new = request.member_epoch == JOIN_EPOCH and gives_way(known)
        group = self._new_group(request.group_id) if is_new else self._existing(request.group_id, "Streams group")
        answered = Heartbeat(
            group,
            request,
            caller,
            is_new_group=is_new,
            topics=self._topics,
            effects=self._effects,
        ).answer()
        if is_new:
            self._make_room(request.group_id, known)
        self._put(answered.written)
        if answered.written:
            # Its first record has created a new group again.
            made = self._existing(request.group_id)
            made.computation, made.last_rebalance = group.computation, group.last_rebalance
            self._effects.undo_if_refused(made.forget_refused_epoch)
        return answered

    def _make_room(self, group_id: str, known: Group | None) -> None:
        """Delete the empty classic group `known`, if any. The new streams group is created by its first record."""
        if known is not None:
            # Its tombstone is appended before the first record of the new group.
            known.delete()
            known.cancel_timers()
            del self._groups[group_id]

        def restore() -> None:
            self._groups.pop(group_id, None)
            if known is not None:
                self._groups[group_id] = known

        self._effects.undo_if_refused(restore)

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> HeartbeatResult:
        group = self._existing(request.group_id)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        member = leaving_member(group, request)
        if is_static_leave(request):
            self._put(list(static_leave_records(group, member)))
        else:
            self._fence(group, member, HAS_LEFT)
        return HeartbeatResult(left_response(request), [], ())

    def _fence(self, group: StreamsGroup, member: Member, reason: str = WAS_SILENT) -> None:
        if reason == HAS_LEFT:
            note_left(self._effects, group.group_id, member.member_id, member)
        else:
            because = was_silent(group.settings.streams_session_timeout_ms) if reason == WAS_SILENT else f"it {reason}"
            note_removed(self._effects, group.group_id, member.member_id, member, because)
        group.cancel_member(member.member_id)
        # If the log refuses this the member is still in, and its session and its revocation have to end some time.
        self._effects.undo_if_refused(lambda: self._effects.carry_on(group.start_sessions()))
        self._put(list(leave_records(group, member)))
        note_rebalance(self._effects, group, group.group_epoch, member_reason(member.member_id, reason))

    def _end(self, group: StreamsGroup) -> None:
        """Append the tombstones of an empty group."""
        group_id = group.group_id
        group.cancel_timers()
        # The metadata come last, because their tombstone ends the group.
        self._put(
            [
                assignment_epoch_tombstone(group_id),
                topology_record(group_id, None),
                metadata_record(group_id, None),
            ]
        )

    def _describe(self, request: DescribeStreamsGroup, caller: Caller) -> None:
        """Describe a group. This is no read: it waits until everything that is described is committed."""
        description: object
        try:
            description = describing.described(self._existing(request.group_id))
        except KafkaError as error:
            description = describing.undescribed(request.group_id, error.code, error.message)
        self._effects.reply(caller, description)

    # ------------------------------------------------------------------ deadlines

    def _end_revocation(self, group: StreamsGroup, member: Member) -> None:
        """Remove a member that has not revoked its tasks within its rebalance timeout."""
        epoch = group.rebalance_epochs.pop(member.member_id, None)
        # A step whose record the log refused has started this timer as well, and may have left the epoch as it was.
        if member.member_epoch == epoch and member.state is MemberState.UNREVOKED_TASKS:
            self._fence(group, member, "did not give up its tasks in time")

    def _assign_first(self, key: TimerKey) -> None:
        """Compute the first assignment at the end of the initial delay.

        If the topology is not configured yet, a later heartbeat computes it.
        """
        group = self._group(key.group_id)
        if group is None or group.state_name == EMPTY or group.configured is None:
            return
        interval_ms, timestamp_ms = group.settings.streams_assignment_interval_ms, self._effects.timestamp_ms
        if group.group_epoch > group.assignment_epoch and group.may_assign(interval_ms, timestamp_ms):
            if group.computation is not None:
                return
            given = assignment_input(group, None, group.configured, group.settings)
            targets = compute(group, given, group.group_epoch, self._effects)
            if targets is not None:
                self._put(list(target_records(group, None, targets, group.group_epoch, timestamp_ms)))

    # ------------------------------------------------------------------ assignments computed in a thread

    def _take_computed(self, computed: StreamsAssignmentComputed, caller: Caller) -> None:
        group = self._group(computed.group_id)
        # Another group of that name may have begun, this one was deleted, or the log has refused the epoch.
        if group is not None and group.computation is computed.computation:
            group.computation = None
            if computed.targets is not None and group.assignment_epoch < computed.epoch <= group.group_epoch:
                self._effects.carry_on(self._put_computed(group, computed, computed.targets))
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

    def _put_computed(
        self, group: StreamsGroup, computed: StreamsAssignmentComputed, targets: Mapping[str, Tasks]
    ) -> Steps:
        yield from put_computed(group, computed, targets, self._effects)
        self._put([assignment_epoch_record(group.group_id, computed.epoch, self._effects.timestamp_ms)])


STREAMS = GroupType(
    make=StreamsGroupManager,
    formats=FORMATS,
    # These look at members only.
    overlapping=frozenset({StreamsGroupHeartbeatRequest, DescribeStreamsGroup, StreamsAssignmentComputed}),
)
