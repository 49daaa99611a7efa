"""ConsumerGroupHeartbeat and departures: members join, stay, report what they read and own, and get their assignment.

                        no group        its member id, at its epoch    its previous epoch       another epoch    unknown
    epoch 0             makes the group  begins anew, keeps what it had (the same)              (the same)       joins
    its epoch or more   GROUP_ID_NOT_    next step                      the answer was lost:    FENCED_MEMBER_   UNKNOWN_
                        FOUND                                           next step, if it has    EPOCH            MEMBER_ID
                                                                        no more than it should
    -1, -2              GROUP_ID_NOT_    leaves (`Leaving`)             (the same)              (the same)       UNKNOWN_
                        FOUND                                                                                    MEMBER_ID

An instance id decides who a static member is. A joining static member replaces the earlier member of its instance id, with
a new member id, if the earlier one left with epoch -2 or one of the two uses the classic protocol. Otherwise the joining
member gets UNRELEASED_INSTANCE_ID. Later requests with the old member id get FENCED_INSTANCE_ID.

Nearly every heartbeat of a settled group brings nothing new. `is_ordinary` finds that out first.

A member leaves of its own will, for a while, or because it was silent for too long (`Leaving`). The group's epoch rises at
once. The others get the partitions that have become free at their next heartbeats. When only classic members are left the
group becomes a classic one (`migration.py`), if group.consumer.migration.policy allows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ottla.groupcoord.causes import note_left, note_removed, was_silent
from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.consumer.member import UNREVOKED_PARTITIONS, Member
from ottla.groupcoord.consumer.migration import Migration
from ottla.groupcoord.consumer.patterns import PatternRefresh
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.consumer.records import ConsumerGroupMemberMetadataValue as MemberMetadata
from ottla.groupcoord.effects import TEXT_LENGTH_MAX, Steps, in_pieces
from ottla.groupcoord.group import (
    HAS_LEFT,
    IS_NEW,
    READS_OTHER_TOPICS,
    WAS_SILENT,
    member_reason,
)
from ottla.groupcoord.manager import ShardContext
from ottla.groupcoord.modern.assignor import EpochsOfPartitions, with_epoch
from ottla.groupcoord.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def refused_heartbeat(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def is_ordinary(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, topics: TopicImages
) -> bool:
    """Return True if a heartbeat changes nothing in the group, and the member needs nothing new in the response."""
    member = group.members.get(request.member_id)
    if member is None or request.member_epoch != member.epoch:
        return False
    words = member.words
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id == words.instance_id
        and not member.pattern
        and not member.uses_classic_protocol
        and words.client_id == caller.client_id
        and words.client_host == caller.client_host
        and group.group_epoch == group.assignment_epoch
        and member.is_reconciled_to(group.assignment_epoch)
        and group.has_seen(topics)
    )


def answered(group: ConsumerGroup, member: Member, *, with_assignment: bool) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=group.settings.consumer_heartbeat_interval_ms,
        assignment=shown_assignment(member.progress.assigned) if with_assignment else None,
    )


def shown_assignment(assigned: EpochsOfPartitions) -> Assignment:
    topics = [TopicPartitions(topic_id=each, partitions=sorted(assigned[each])) for each in sorted(assigned)]
    return Assignment(topic_partitions=topics)


# ---------------------------------------------------------------------- checks, before anything is changed


def check_room(group: ConsumerGroup | None, member_id: str, instance_id: str | None, size_max: int) -> None:
    """Raise KafkaError if the request would add a new member to a full group. A returning static member is not new."""
    if group is None or group.static_member(instance_id) is not None or member_id in group.members:
        return
    if len(group.members) >= size_max:
        problem = f"The consumer group has reached its maximum capacity of {size_max} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, problem)


def find_member(group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest) -> Member | None:
    """Return the sender, or the static member that it replaces; None if it is new.

    Raises KafkaError if the sender is fenced or unknown.
    """
    instance_id, is_joining = request.instance_id, request.member_epoch == JOIN_EPOCH
    if instance_id is None:
        member = None if group is None else group.members.get(request.member_id)
        if member is None and not is_joining:
            problem = f"Member {request.member_id} is not a member of group {request.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, problem)
    else:
        member = None if group is None else group.static_member(instance_id)
        if is_joining:
            _check_released(member, request)
            # A member that was not static until now may become so.
            return member if member is not None or group is None else group.members.get(request.member_id)
        member = known_static(member, request.member_id, instance_id)
    if member is not None and not is_joining:
        _check_epoch(member, request)
    return member


def known_static(member: Member | None, member_id: str, instance_id: str) -> Member:
    """Return `member`, the owner of the instance id. Raises KafkaError if it is None, or its id is not `member_id`."""
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        problem = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, problem)
    return member


def _check_released(member: Member | None, request: ConsumerGroupHeartbeatRequest) -> None:
    if member is None or member.uses_classic_protocol or member.epoch == STATIC_LEAVE_EPOCH:
        return
    problem = (
        f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because the "
        f"instance id is owned by {member.member_id} member."
    )
    raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, problem)


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    received, epoch = request.member_epoch, member.epoch
    if received == epoch:
        return
    if received > epoch:
        size = "greater"
    else:
        # The answer with the next epoch may have been lost.
        owned = request.topic_partitions
        was_lost = received == member.progress.previous_epoch and owned is not None
        if was_lost and owned is not None and _are_part_of(owned, member.progress.assigned):
            return
        size = "smaller"
    problem = (
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group coordinator "
        f"({epoch}). The member must abandon all its partitions and rejoin."
    )
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, problem)


# ---------------------------------------------------------------------- what changes


def _are_part_of(topics: Iterable[TopicPartitions], assigned: EpochsOfPartitions) -> bool:
    """Return True if all partitions of `topics` are assigned."""
    for each in topics:
        partitions = assigned.get(each.topic_id)
        if partitions is None or not all(partition in partitions for partition in each.partitions):
            return False
    return True


class Heartbeats:
    """Handler of consumer groups' heartbeats that have passed the checks of their service."""

    def __init__(self, rebalancing: Rebalancing, patterns: PatternRefresh) -> None:
        self._rebalancing = rebalancing
        self._patterns = patterns

    def carry_out(
        self,
        group: ConsumerGroup,
        member: Member | None,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
    ) -> ConsumerGroupHeartbeatResponse:
        """Process a heartbeat: update the member and advance the group's rebalance. Return the response."""
        assignor = self._rebalancing.preferred_assignor(group)
        if member is not None and member.member_id != request.member_id:
            member = self.replace_static(group, member, request.member_id)
        before = Member(request.member_id) if member is None else member
        after = self.take_words(group, before, _words(before, request, caller))
        has_changed = before.topics != after.topics
        names_changed = has_changed
        if before.pattern != after.pattern:
            has_changed = self._patterns.take_change(group, before.pattern, after.pattern) or has_changed
        subscription_changed = names_changed or before.pattern != after.pattern
        self._patterns.refresh(group, caller)
        change = change_of(before, after) if has_changed else ""
        if not change and assignor != self._rebalancing.preferred_assignor(group):
            change = "most members ask for another assignor"
        self._rebalancing.look_at_topics(group, change)
        self._rebalancing.assign(group)
        after = self._rebalancing.reconcile(
            group,
            group.members[after.member_id],
            request.topic_partitions,
            has_subscription_changed=subscription_changed,
        )
        group.start_session(after)
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        moved = before.progress.assigned != after.progress.assigned
        return answered(group, after, with_assignment=request.member_epoch == JOIN_EPOCH or is_full or moved)

    def take_words(self, group: ConsumerGroup, member: Member, words: MemberMetadata) -> Member:
        """Write the member's metadata if they have changed. Return the member with these metadata."""
        if member.written is not None and member.words == words:
            return member
        self._rebalancing.put(records.member_record(group.group_id, member.member_id, words))
        # Its first record may have brought the group to life.
        return group.members[member.member_id]

    def replace_static(self, group: ConsumerGroup, old: Member, member_id: str) -> Member:
        """Replace a static member by a new member, which takes over metadata, progress and target assignment."""
        group_id, target = group.group_id, group.target_of(old.member_id)
        self._rebalancing.restart_if_refused(group_id)
        progress = old.progress._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        group.cancel_member(old.member_id)
        # In Kafka's order, which frees the instance id for the new one.
        group.is_held = True
        for record in removal(group_id, old.member_id):
            self._rebalancing.put(record)
        self._rebalancing.put(records.member_record(group_id, member_id, old.written))
        self._rebalancing.put(records.target_record(group_id, member_id, target))
        self._rebalancing.put(records.current_record(group_id, member_id, progress.written()))
        group.is_held = False
        return group.members[member_id]


def removal(group_id: str, member_id: str) -> tuple[KeyedRecord, ...]:
    """Return the tombstones of a member's records."""
    return (
        records.current_record(group_id, member_id, None),
        records.target_record(group_id, member_id, None),
        records.member_record(group_id, member_id, None),
    )


def change_of(before: Member, after: Member) -> str:
    """Return the reason for a new group epoch as text: the member is new, or reads other topics or another pattern."""
    if before.written is None:
        what = IS_NEW
    elif before.topics != after.topics:
        what = READS_OTHER_TOPICS
    else:
        what = "has another regular expression"
    return member_reason(after.member_id, what)


def _words(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> MemberMetadata:
    """Return the member's metadata after a heartbeat. Fields that are None or -1 in the request stay unchanged."""
    known = member.words
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=_either(request.instance_id, known.instance_id),
        rack_id=_either(request.rack_id, known.rack_id),
        client_id=caller.client_id[:TEXT_LENGTH_MAX],
        client_host=caller.client_host,
        subscribed_topic_names=known.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=member.pattern if pattern is None else pattern,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=_either(request.server_assignor, known.server_assignor),
        classic_member_metadata=None,
    )


def _either(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


class Leaving:
    """Remover of members from consumer groups."""

    def __init__(
        self, context: ShardContext, rebalancing: Rebalancing, patterns: PatternRefresh, migration: Migration
    ) -> None:
        self._effects = context.effects
        self._topics = context.topics
        self._rebalancing = rebalancing
        self._patterns = patterns
        self._migration = migration

    def leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Remove the member that sent a leave heartbeat. Raises KafkaError if the member is unknown or fenced."""
        if request.instance_id is None:
            known = group.members.get(request.member_id)
            if known is None:
                problem = f"Member {request.member_id} is not a member of group {request.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, problem)
            member = known
        else:
            member = known_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._go_for_a_while(group, member)
        else:
            self.remove(group, [member], HAS_LEFT)
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )

    def _go_for_a_while(self, group: ConsumerGroup, member: Member) -> None:
        """Let a static member leave temporarily: its partitions stay reserved until its session ends."""
        # Under its next id it will have had them from the first epoch on.
        kept = with_epoch(member.progress.assigned, 0)
        progress = member.progress._replace(epoch=STATIC_LEAVE_EPOCH, assigned=kept, revoking={})
        self._rebalancing.put(records.current_record(group.group_id, member.member_id, progress.written()))

    def remove(self, group: ConsumerGroup, members: Sequence[Member], reason: str) -> None:
        """Remove members from a group. If only classic members remain, it becomes a classic group if policy allows."""
        if not members:
            return
        self._effects.carry_on(in_pieces(members, partial(self._note_end, group, reason)))
        if self._migration.may_downgrade(group, members):
            self._effects.carry_on(self._migration.downgrade(group, members, must_rebalance=True))
        else:
            self._effects.carry_on(self._remove(group, members, reason))

    def _note_end(self, group: ConsumerGroup, reason: str, member: Member) -> None:
        if reason == HAS_LEFT:
            note_left(self._effects, group.group_id, member.member_id, member.words)
            return
        because = f"it {reason}"
        if reason == WAS_SILENT:
            is_classic, settings = member.uses_classic_protocol, group.settings
            because = was_silent(
                member.classic_session_timeout_ms if is_classic else settings.consumer_session_timeout_ms
            )
        note_removed(self._effects, group.group_id, member.member_id, member.words, because)

    def _remove(self, group: ConsumerGroup, members: Sequence[Member], reason: str) -> Steps:
        group_id = group.group_id
        self._effects.work += len(group.subscriptions)
        self._rebalancing.restart_if_refused(group_id)

        def end(member: Member) -> None:
            for record in removal(group_id, member.member_id):
                self._rebalancing.put(record)
            group.cancel_member(member.member_id)

        yield from in_pieces(members, end)
        self._patterns.forget_unused(group, tuple(each.pattern for each in members if each.pattern))
        group.seen_topics = self._topics.version
        self._rebalancing.begin_epoch(group, group.hash_of(self._topics), _departure_reason(members, reason))
        if group.is_empty:
            # There is nothing to assign. Without a time the next member does not have to wait for its assignment.
            self._rebalancing.put(records.target_epoch_record(group_id, group.group_epoch, 0))

    # ------------------------------------------------------------------ deadlines

    def end_revocation(self, group: ConsumerGroup, member: Member) -> None:
        """Remove a member if it has not revoked its partitions within its rebalance timeout."""
        if member.state is UNREVOKED_PARTITIONS:
            self.remove(group, [member], "did not give up its partitions in time")


def _departure_reason(members: Sequence[Member], reason: str) -> str:
    others = len(members) - 1
    return member_reason(members[0].member_id, reason) + (f", and {others} others" if others else "")
