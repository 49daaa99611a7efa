"""The manager of a shard's consumer groups (KIP-848): which of them a request means, and their records.

Everything that is written is put in force at once, and taken back if the log refuses it. So a request is checked as a whole
before anything of it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ottla.groupcoord.causes import note_refused
from ottla.groupcoord.classic.group import refused_join
from ottla.groupcoord.classic.manager import join_new_group
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.consumer.classic_requests import ClassicRequests
from ottla.groupcoord.consumer.group import (
    GROUP_TYPE,
    JOIN,
    REVOCATION,
    SESSION,
    SYNC,
    ConsumerGroup,
    described,
    undescribed,
)
from ottla.groupcoord.consumer.heartbeat import (
    Heartbeats,
    Leaving,
    answered,
    check_room,
    find_member,
    is_ordinary,
    refused_heartbeat,
)
from ottla.groupcoord.consumer.migration import Migration
from ottla.groupcoord.consumer.patterns import PatternRefresh, PatternsResolved
from ottla.groupcoord.consumer.rebalancing import AssignmentComputed, Rebalancing
from ottla.groupcoord.consumer.records import FORMATS
from ottla.groupcoord.effects import Steps, TimerKey
from ottla.groupcoord.group import WAS_SILENT
from ottla.groupcoord.manager import GroupType, ShardContext
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from ottla.groupcoord.modern.manager import EMPTY, ModernGroupManager, gives_way
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


class DescribeConsumerGroup(NamedTuple):
    """Internal request to describe one group; a ConsumerGroupDescribe request is split into these."""

    group_id: str


class ConsumerGroupManager(ModernGroupManager[ConsumerGroup]):
    """Manager of a shard's consumer groups."""

    group_type = GROUP_TYPE
    group_class = ConsumerGroup

    def __init__(self, context: ShardContext) -> None:
        super().__init__(context)
        self._size_max = context.config.group_consumer_max_size
        self._rebalancing = Rebalancing(context, self)
        self._patterns = PatternRefresh(context, self._rebalancing)
        self._migration = Migration(context, self._rebalancing)
        self._heartbeats = Heartbeats(self._rebalancing, self._patterns)
        self._leaving = Leaving(context, self._rebalancing, self._patterns, self._migration)
        self._classic = ClassicRequests(
            context, self._rebalancing, self._patterns, self._migration, self._heartbeats, self._leaving
        )
        self._register()

    def _register(self) -> None:
        self.requests = {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            DescribeConsumerGroup: self._describe,
            AssignmentComputed: self._take_computed,
            PatternsResolved: self._take_resolved,
        }
        self.adopted = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: lambda request, caller: self._classic.sync(self._known(request), request, caller),
            LeaveGroupRequest: lambda request, caller: self._effects.carry_on(
                self._classic.leave(self._known(request), request, caller)
            ),
        }
        self.adopted_reads = {
            **self.adopted_reads,
            HeartbeatRequest: lambda request: self._classic.heartbeat(self._known(request), request),
        }
        self.loads = dict.fromkeys((each.key for each in FORMATS), self.load)
        self.timers = {
            SESSION: self._removing(WAS_SILENT),
            REVOCATION: self._at(self._leaving.end_revocation),
            JOIN: self._removing("did not join again in time"),
            SYNC: self._removing("did not ask for its assignment in time"),
        }

    def _removing(self, reason: str) -> Callable[[TimerKey], None]:
        return self._at(lambda group, member: self._leaving.remove(group, [member], reason))

    def _known(self, request: Any) -> ConsumerGroup:
        """Return the consumer group that a request names; the shard has checked the group's type."""
        group = self._groups[request.group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def _new_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._effects, self._settings_of, self._migration.end)

    # ------------------------------------------------------------------ records

    def replay(self, record: GroupRecord) -> None:
        """Apply a record to its group. The first value creates the group; the last tombstone removes it."""
        group_id = record.key.group_id
        group = self._group(group_id)
        if group is None:
            if record.value is None or not gives_way(self._groups.get(group_id)):
                return
            group = self._groups[group_id] = self._new_group(group_id)
        group.replay(record)
        if not group.has_records:
            del self._groups[group_id]

    # ------------------------------------------------------------------ heartbeats

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        group = self._group(request.group_id)
        if group is not None and is_ordinary(group, request, caller, self._topics):
            member = group.members[request.member_id]
            group.start_session(member)
            self._effects.reply(caller, answered(group, member, with_assignment=False))
            return
        known = self._groups.get(request.group_id)
        if request.member_epoch == JOIN_EPOCH and isinstance(known, ClassicGroup) and known.state_name != EMPTY:
            self._effects.carry_on(self._join_upgraded(known, request, caller))
            return
        try:
            response = self._carry_out(request, caller)
        except KafkaError as error:
            self._refuse(request, caller, error)
            return
        self._effects.answer(caller, response, refused_heartbeat)

    def _refuse(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, error: KafkaError) -> None:
        note_refused(self._effects, request.group_id, request.member_id, caller, error.code, error.message)
        self._effects.reply(caller, refused_heartbeat(error.code, error.message))

    def _carry_out(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leaving.leave(self._existing(request.group_id), request)
        if request.member_epoch != JOIN_EPOCH:
            group = self._existing(request.group_id, "Consumer group")
            member = find_member(group, request)
            self._patterns.check(group, request.subscribed_topic_regex)
        else:
            if not request.member_id:
                request.member_id = self._effects.make_uuid()
            group = self._group_to_join(request)
            member = find_member(group, request)
        return self._heartbeats.carry_out(group, member, request, caller)

    def _group_to_join(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
        """Return the group to join, or a new one, which may replace an empty classic group.

        Raises KafkaError if the group may not be joined.
        """
        group_id, instance_id = request.group_id, request.instance_id
        known = self._groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            check_room(known, request.member_id, instance_id, self._size_max)
            find_member(known, request)
            self._patterns.check(known, request.subscribed_topic_regex)
            return known
        if known is not None and not isinstance(known, ClassicGroup):
            raise self._of_another_kind(group_id)
        self._patterns.check(None, request.subscribed_topic_regex)
        group = self._new_group(group_id)
        if known is None:
            self._groups[group_id] = group
            self._effects.undo_if_refused(partial(self._groups.pop, group_id, None))
        else:
            self._migration.replace(known, group)
        return group

    def _join_upgraded(self, known: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Steps:
        """Turn a classic group that has members into a consumer group, and let a member join that."""
        request.member_id = request.member_id or self._effects.make_uuid()
        try:
            self._patterns.check(None, request.subscribed_topic_regex)
            members = yield from self._migration.check_upgrade(known)
            if len(members) >= self._size_max and not known.members.has(request.member_id, request.instance_id):
                problem = f"The consumer group has reached its maximum capacity of {self._size_max} members."
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, problem)
            group = self._new_group(request.group_id)
            yield from self._migration.upgrade(known, members, group)
            response = self._heartbeats.carry_out(group, find_member(group, request), request, caller)
        except KafkaError as error:
            self._refuse(request, caller, error)
            return
        self._effects.answer(caller, response, refused_heartbeat)

    def _take_computed(self, request: AssignmentComputed, caller: Caller) -> None:
        self._rebalancing.take_computed(self._group(request.group_id), request)
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

    def _take_resolved(self, request: PatternsResolved, caller: Caller) -> None:
        self._patterns.take_resolved(self._group(request.group_id), request)
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

    # ------------------------------------------------------------------ requests of classic members

    def _join(self, request: JoinGroupRequest, caller: Caller) -> None:
        group = self._known(request)
        if not group.is_empty:
            self._classic.join(group, request, caller)
        elif request.member_id:
            # Nobody can be a member of an empty group.
            response = refused_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, caller.api_version)
            self._effects.reply(caller, response)
        else:
            self._migration.end(group)
            join_new_group(self._context, request, caller)
            # First of all, because the consumer group comes back only where nothing is.
            self._effects.undo_if_refused(partial(self._groups.pop, group.group_id, None))

    # ------------------------------------------------------------------ reads

    def _describe(self, request: DescribeConsumerGroup, caller: Caller) -> None:
        response: object
        try:
            group = self._existing(request.group_id)
        except KafkaError as error:
            response = undescribed(request.group_id, error.code, error.message)
        else:
            response = described(group, self._rebalancing.preferred_assignor(group), self._topics)
        self._effects.reply(caller, response)


CONSUMER = GroupType(
    make=ConsumerGroupManager,
    formats=FORMATS,
    # They look at members alone, which are what they were told even before that is committed.
    overlapping=frozenset({ConsumerGroupHeartbeatRequest, DescribeConsumerGroup, AssignmentComputed, PatternsResolved}),
)
