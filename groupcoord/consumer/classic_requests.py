"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup. The broker assigns, so no request is parked.

              in the present epoch                  a newer target assignment is there     has to give up partitions
    join      next step, the answer has its epoch   the same                               the same
    sync      its assignment                        REBALANCE_IN_PROGRESS                  its assignment, without them
    heartbeat NONE                                  REBALANCE_IN_PROGRESS                  REBALANCE_IN_PROGRESS
    leave     the group's epoch rises               the same                               the same

A member's generation is its member epoch. It tells what it has in the subscription of each join, and gives partitions up by
joining without them. Who does not join in time after REBALANCE_IN_PROGRESS, or does not sync after a join, is out.
"""

from __future__ import annotations

from ottla.groupcoord.classic.group import refused_join, refused_sync
from ottla.groupcoord.classic.members import UNKNOWN_MEMBER_ID
from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.group import JOIN, SYNC, ConsumerGroup
from ottla.groupcoord.consumer.heartbeat import Heartbeats, Leaving, change_of, check_room, known_static
from ottla.groupcoord.consumer.member import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, Member
from ottla.groupcoord.consumer.migration import DISABLED, Migration
from ottla.groupcoord.consumer.patterns import PatternRefresh
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.effects import TEXT_LENGTH_MAX, Steps, in_pieces
from ottla.groupcoord.group import HAS_LEFT
from ottla.groupcoord.manager import ShardContext
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.messages.consumer_group import TopicPartitions
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_subscription

CONSUMER = "consumer"


class ClassicRequests:
    """Handler of requests from consumer group members that use the classic protocol."""

    def __init__(
        self,
        context: ShardContext,
        rebalancing: Rebalancing,
        patterns: PatternRefresh,
        migration: Migration,
        heartbeats: Heartbeats,
        leaving: Leaving,
    ) -> None:
        self._config = context.config
        self._effects = context.effects
        self._topics = context.topics
        self._rebalancing = rebalancing
        self._patterns = patterns
        self._migration = migration
        self._heartbeats = heartbeats
        self._leaving = leaving

    # ------------------------------------------------------------------ join

    def join(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller) -> None:
        """Answer a JoinGroup request to a consumer group that has members. As in Kafka, errors contain no member id."""

        def refuse(error: ErrorCode) -> JoinGroupResponse:
            return refused_join(UNKNOWN_MEMBER_ID, error, caller.api_version)

        try:
            response = self._join(group, request, caller)
        except KafkaError as error:
            self._effects.reply(caller, refuse(error.code))
            return
        self._effects.answer(caller, response, refuse)

    def _join(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        member_id = request.member_id or self._effects.make_uuid()
        self._check_join(group, request, member_id)
        if not request.member_id and request.group_instance_id is None and caller.api_version >= 4:
            return refused_join(member_id, ErrorCode.MEMBER_ID_REQUIRED, caller.api_version)
        member = self._place_of(group, request)
        subscription = _subscription_of(request)
        # A static member whose place it takes may be the last one of the consumer protocol.
        downgrades = (
            member is not None
            and request.group_instance_id is not None
            and not member.uses_classic_protocol
            and self._migration.may_downgrade(group, [member], joining=1)
        )
        if member is not None and member.member_id != member_id:
            member = self._heartbeats.replace_static(group, member, member_id)
        before = member or Member(member_id)
        words = _words(before, request, subscription, caller)
        after = self._go_on(group, before, words, subscription, caller, downgrades=downgrades)
        if downgrades:
            must_rebalance = group.assignment_epoch < group.group_epoch
            self._effects.carry_on(self._migration.downgrade(group, [], must_rebalance=must_rebalance))
        else:
            group.cancel(JOIN, member_id)
            group.start_session(after)
            group.schedule(SYNC, member_id, request.rebalance_timeout_ms)
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=after.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
            leader="",
            member_id=member_id,
            members=[],
        )

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
        if self._config.group_consumer_migration_policy == DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        check_room(group, member_id, request.group_instance_id, self._config.group_consumer_max_size)
        if not group.supports_classic(request.protocol_type, [each.name for each in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        texts = (member_id, request.group_instance_id or "", *(each.name for each in request.protocols))
        if max(map(len, texts)) > TEXT_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _place_of(self, group: ConsumerGroup, request: JoinGroupRequest) -> Member | None:
        """Return the joining member, or the static member that it replaces; None for a new member."""
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(request.member_id)
        member = group.static_member(instance_id)
        return known_static(member, request.member_id, instance_id) if request.member_id else member

    def _go_on(
        self,
        group: ConsumerGroup,
        before: Member,
        words: records.ConsumerGroupMemberMetadataValue,
        subscription: ConsumerProtocolSubscription,
        caller: Caller,
        *,
        downgrades: bool,
    ) -> Member:
        after = self._heartbeats.take_words(group, before, words)
        has_changed = before.topics != after.topics or before.pattern != after.pattern
        if before.pattern != after.pattern:
            self._patterns.take_change(group, before.pattern, after.pattern)
        self._patterns.refresh(group, caller)
        self._rebalancing.look_at_topics(group, change_of(before, after) if has_changed else "")
        if downgrades and group.assignment_epoch < group.group_epoch:
            return after  # the classic group will rebalance
        if not downgrades:
            self._rebalancing.assign(group)
        return self._rebalancing.reconcile(
            group,
            group.members[after.member_id],
            self._owned(subscription),
            has_subscription_changed=has_changed,
        )

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
        owned = []
        for topic in subscription.owned_partitions:
            image = self._topics.image(topic.topic)
            if image is not None:
                owned.append(TopicPartitions(topic_id=image.topic_id, partitions=topic.partitions))
        return owned

    # ------------------------------------------------------------------ sync and heartbeat

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller) -> None:
        try:
            response = self._sync(group, request)
        except KafkaError as error:
            response = refused_sync(error.code)
        self._effects.reply(caller, response)

    def _sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        member = _classic_member(group, request)
        protocols = member.classic_protocols
        assert protocols
        for said, known in ((request.protocol_type, CONSUMER), (request.protocol_name, protocols[0].name)):
            if said is not None and said != known:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.cancel(SYNC, member.member_id)
        group.start_session(member)
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._migration.encode_assignment(member.progress.assigned, protocols[0].metadata),
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        """Extend the member's session; return REBALANCE_IN_PROGRESS if it must rejoin, another error, or NONE."""
        try:
            member = _classic_member(group, request)
        except KafkaError as error:
            return error.code
        group.start_session(member)
        must_join = (
            member.epoch < group.assignment_epoch
            or member.state is UNREVOKED_PARTITIONS
            or (member.state is UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not must_join:
            return ErrorCode.NONE
        self._expect_join(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _expect_join(self, group: ConsumerGroup, member: Member) -> None:
        group.schedule_if_absent(JOIN, member.member_id, member.words.rebalance_timeout_ms)

    # ------------------------------------------------------------------ leave

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller) -> Steps:
        """Remove members of the classic or consumer protocol, at their own or an administrator's request."""
        leaving: dict[str, Member] = {}
        responses: list[MemberResponse] = []
        yield from in_pieces(request.members, lambda each: responses.append(self._leave(group, each, leaving)))
        self._leaving.remove(group, list(leaving.values()), HAS_LEFT)
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses)
        self._effects.answer(caller, response, lambda error: LeaveGroupResponse(error_code=error))

    def _leave(self, group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, Member]) -> MemberResponse:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        error = ErrorCode.NONE
        member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        if member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif instance_id is not None and member_id and member.member_id != member_id:
            error = ErrorCode.FENCED_INSTANCE_ID
        else:
            leaving[member.member_id] = member
        return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)


def _classic_member(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> Member:
    """Return the request's sender; raises KafkaError if unknown, in another generation or not a classic member."""
    if request.group_instance_id is None:
        member = group.members.get(request.member_id)
    else:
        static = group.static_member(request.group_instance_id)
        member = known_static(static, request.member_id, request.group_instance_id)
    if member is None or not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.epoch != request.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _subscription_of(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(request.protocols[0].metadata)
    except ProtocolViolation as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error


def _words(
    before: Member, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller
) -> records.ConsumerGroupMemberMetadataValue:
    known = before.words
    # Version 0 has no rebalance timeout. Kafka takes the session timeout for it.
    if caller.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    protocols = {each.name: each.metadata for each in reversed(request.protocols)}
    offered = [records.ClassicProtocol(name=each, metadata=protocols[each]) for each in reversed(protocols)]
    timeout_ms = request.rebalance_timeout_ms
    return records.ConsumerGroupMemberMetadataValue(
        instance_id=known.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or known.rack_id,
        client_id=caller.client_id[:TEXT_LENGTH_MAX],
        client_host=caller.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        # Classic members match patterns themselves.
        subscribed_topic_regex="",
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=known.server_assignor,
        classic_member_metadata=records.ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms, supported_protocols=offered
        ),
    )
