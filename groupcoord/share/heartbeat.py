"""The heartbeats of share groups: members join, stay, leave, or are removed when they are silent.

A member chooses its own id and says everything in heartbeats. Its epoch tells what it knows:

    epoch   of a member that is unknown        of a known member
     0      becomes a member; makes the group  joins anew
    >0      UNKNOWN_MEMBER_ID, or without      its epoch or the one before (the last answer may be lost): goes on;
            group GROUP_ID_NOT_FOUND           any other: FENCED_MEMBER_EPOCH
    -1      as above                           leaves, whatever its epoch was

Each heartbeat moves the group on. When a subscription or a topic has changed, or initialized partitions are assigned to
no member, the group's epoch rises. Then a new target assignment is made, if the last one is old enough, and the member
gets its part of it at once: no member has to revoke a partition first, as partitions are shared. A large assignment is computed in a
thread, and members get their part with the next heartbeat. Partitions of topics that the share coordinator does not know yet
are initialized there (`StatePartitions`), and assigned when it knows them.

Invariants: the epoch of a member is never above that of the target assignment, which is never above that of the group. A
member has partitions only of topics that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from ottla.groupcoord.causes import note_left, note_removed, was_silent
from ottla.groupcoord.effects import Effects, Steps
from ottla.groupcoord.group import (
    HAS_LEFT,
    IS_NEW,
    READS_OTHER_TOPICS,
    TOPICS_HAVE_CHANGED,
    WAS_SILENT,
    member_reason,
    note_rebalance,
)
from ottla.groupcoord.modern.assignor import NOTHING, Assignment, read_assignment
from ottla.groupcoord.modern.group import JOIN_EPOCH, put_targets
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.share.assignor import assign
from ottla.groupcoord.share.group import (
    NEW_MEMBER,
    SESSION,
    KnownTopic,
    Member,
    Position,
    ShareGroup,
    member_value,
    position_value,
    target_value,
)
from ottla.groupcoord.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.groupcoord.topic_images import TopicImage, TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_group import Assignment as WireAssignment
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions
from ottla.wire.messages.share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    InitializeStatePartition,
)

ANY_OFFSET, FIRST_OFFSET = -1, 0
OTHER_PARTITIONS = "other partitions than are assigned may be shared now"
SIZE_AT_ONCE = 1_000
"""Subscribed topics of all members plus partitions. A larger assignment takes more than some milliseconds."""
RETRY_MS = 500
"""Pause before the next try to remove a member, after the log has refused its removal."""


class HeartbeatResult(NamedTuple):
    """Response to a heartbeat, and the partitions to initialize at the share coordinator."""

    response: ShareGroupHeartbeatResponse
    to_initialize: InitializeShareGroupStateRequest | None = None


class ShareAssignmentComputed(NamedTuple):
    """Internal request with a target assignment that a thread has computed; `targets` is None if it failed."""

    group_id: str
    computation: object
    """The group's `computation`, if the result is still wanted."""
    epoch: int
    targets: Mapping[str, Assignment] | None


class Heartbeats:
    """Handler of share group heartbeats, which advance the group's epochs and assignments."""

    def __init__(self, effects: Effects, images: TopicImages) -> None:
        self._effects = effects
        self._images = images

    # ------------------------------------------------------------------ requests

    def heartbeat(self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller) -> HeartbeatResult:
        """Process the heartbeat of a new or existing member. Raises KafkaError if the heartbeat is invalid."""
        self._check(group, request)
        member_id = request.member_id
        before = group.position(member_id)
        change = self._take_subscription(group, request, caller)
        if not change and group.assignment_epoch >= group.group_epoch and self._has_unassigned(group):
            change = OTHER_PARTITIONS
        is_changed = self._raise_epoch(group, change)
        target_epoch = self._update_target(group)
        self._reconcile(group, member_id, target_epoch, is_changed)
        group.start_session(member_id)
        to_initialize = self._begin_partitions(group)
        position = group.position(member_id)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member_id,
            member_epoch=position.epoch,
            heartbeat_interval_ms=group.settings.share_heartbeat_interval_ms,
        )
        # A member that joins, or sends its subscription, gets its whole assignment: it may have lost the last answer.
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        if is_full or before.assigned != position.assigned:
            response.assignment = _wire_assignment(position.assigned)
        return HeartbeatResult(response, to_initialize)

    def leave(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> HeartbeatResult:
        """Remove a member that leaves. Raises KafkaError if the member is unknown."""
        if request.member_id not in group.members:
            raise _unknown_member(group, request.member_id)
        self.remove_member(group, request.member_id, HAS_LEFT)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return HeartbeatResult(response)

    def remove_member(self, group: ShareGroup, member_id: str, reason: str) -> None:
        """Remove a member. Other members get its partitions in their next heartbeats."""
        group_id = group.group_id
        if reason == HAS_LEFT:
            note_left(self._effects, group_id, member_id, group.members[member_id])
        else:
            because = was_silent(group.settings.share_session_timeout_ms) if reason == WAS_SILENT else f"it {reason}"
            note_removed(self._effects, group_id, member_id, group.members[member_id], because)
        is_last = len(group.members) == 1
        self._effects.work += len(group.subscriptions)
        group.put(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        group.put(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        group.put(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        epoch = group.group_epoch + 1
        self._put_epoch(group, epoch, group.hash_of(self._images))
        note_rebalance(self._effects, group, epoch, member_reason(member_id, reason))
        if is_last:
            # An empty group has nothing to assign. Timestamp 0 lets the next member have an assignment at once.
            self._put_target_epoch(group, epoch, timestamp_ms=0)
        group.cancel_member(member_id)
        self._effects.undo_if_refused(partial(group.schedule, SESSION, member_id, RETRY_MS))

    # ------------------------------------------------------------------ checks

    def _check(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> None:
        member_id, epoch = request.member_id, request.member_epoch
        size_max = self._effects.config.group_share_max_size
        if member_id not in group.members:
            if len(group.members) >= size_max:
                reason = f"The share group has reached its maximum capacity of {size_max} members."
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
            if epoch != JOIN_EPOCH:
                raise _unknown_member(group, member_id)
        position = group.position(member_id)
        if epoch not in (JOIN_EPOCH, position.epoch, position.previous_epoch):
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _fenced(position, epoch))

    # ------------------------------------------------------------------ subscriptions and the group epoch

    def _take_subscription(self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller) -> str:
        """Store a member's subscription. Return the reason for a new group epoch; "" if none is needed."""
        is_new = request.member_id not in group.members
        known = group.members.get(request.member_id, NEW_MEMBER)
        names = request.subscribed_topic_names
        member = Member(
            known.rack_id if request.rack_id is None else request.rack_id,
            caller.client_id,
            caller.client_host,
            known.topics if names is None else frozenset(names),
        )
        if member != known:
            key = ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=request.member_id)
            group.put(key, member_value(member))
        if member.topics == known.topics:
            return ""
        return member_reason(request.member_id, IS_NEW if is_new else READS_OTHER_TOPICS)

    def _raise_epoch(self, group: ShareGroup, change: str) -> bool:
        """Raise the group epoch if `change` names a reason or the topics have changed. Return True if raised."""
        if not change and group.has_seen(self._images):
            return False
        topics_hash = group.hash_of(self._images)
        if not change and topics_hash == group.metadata_hash:
            group.seen_topics = self._images.version
            return False
        epoch = group.group_epoch + 1
        self._put_epoch(group, epoch, topics_hash)
        note_rebalance(self._effects, group, epoch, change or TOPICS_HAVE_CHANGED)
        return True

    def _put_epoch(self, group: ShareGroup, epoch: int, topics_hash: int) -> None:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
        group.put(ShareGroupMetadataKey(group_id=group.group_id), value)
        group.seen_topics = self._images.version
        self._effects.undo_if_refused(group.forget_refused_epoch)

    def _read_topics(self, group: ShareGroup) -> list[TopicImage]:
        """Return the subscribed topics that exist."""
        return [image for image in map(self._images.image, group.subscriptions.topics) if image is not None]

    # ------------------------------------------------------------------ the target assignment

    def _has_unassigned(self, group: ShareGroup) -> bool:
        """Return True if the members' targets differ from the assignable partitions of a subscribed topic."""
        version = self._images.version
        if group.fully_assigned_in_version == version:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        initialized = group.share_partitions.initialized
        for topic_id, assignable in self._assignable(group).items():
            if initialized[topic_id].name in group.subscriptions and assigned.get(topic_id, set()) != set(assignable):
                return True
        group.fully_assigned_in_version = version
        return False

    def _update_target(self, group: ShareGroup) -> int:
        """Compute the target assignment if it is due, in a thread if large. Return the epoch of the one in force."""
        interval_ms = group.settings.share_assignment_interval_ms
        if (
            group.assignment_epoch >= group.group_epoch
            or group.computation is not None
            or not group.may_assign(interval_ms, self._effects.timestamp_ms)
        ):
            return group.assignment_epoch
        ids = {image.name: image.topic_id for image in self._read_topics(group)}
        assignable = self._assignable(group)
        # The thread gets copies of all that may change meanwhile; the members and sets in them are immutable.
        compute = partial(_computed, dict(group.members), ids, assignable, dict(group.targets))
        if sum(group.subscriptions.by_name.by_key.values()) + sum(map(len, assignable.values())) <= SIZE_AT_ONCE:
            for member_id, target in compute().items():
                if group.targets.get(member_id) != target:
                    record = _target_record(group.group_id, member_id, target)
                    group.put(record.key, record.value)
            self._put_target_epoch(group, group.group_epoch, timestamp_ms=self._effects.timestamp_ms)
        else:
            group.computation = object()
            done = partial(ShareAssignmentComputed, group.group_id, group.computation, group.group_epoch)
            self._effects.compute(compute, done)
        return group.assignment_epoch

    def take_computed(self, group: ShareGroup | None, computed: ShareAssignmentComputed) -> None:
        """Write and apply a target assignment that a thread has computed; ignore an outdated one."""
        # Another group of that name may have begun, this one was deleted, or the log has refused the epoch.
        if group is None or group.computation is not computed.computation:
            return
        group.computation = None
        if computed.targets is not None and group.assignment_epoch < computed.epoch <= group.group_epoch:
            self._effects.carry_on(self._take_targets(group, computed.epoch, computed.targets))

    def _take_targets(self, group: ShareGroup, epoch: int, computed: Mapping[str, Assignment]) -> Steps:
        # Members may have left meanwhile.
        targets = (each for each in computed.items() if each[0] in group.members)
        written = partial(_target_record, group.group_id)
        yield from put_targets(
            self._effects, group, targets, written, lambda value: read_assignment(value.topic_partitions)
        )
        self._put_target_epoch(group, epoch, timestamp_ms=self._effects.timestamp_ms)

    def _assignable(self, group: ShareGroup) -> dict[bytes, frozenset[int]]:
        """Return the existing partitions that the share coordinator has initialized."""
        found = {}
        for topic_id, known in group.share_partitions.initialized.items():
            if (image := self._images.image_by_id(topic_id)) is not None:
                found[topic_id] = frozenset(each for each in known.partitions if each < image.partition_count)
        return found

    def _put_target_epoch(self, group: ShareGroup, epoch: int, *, timestamp_ms: int) -> None:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        group.put(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)

    def _reconcile(self, group: ShareGroup, member_id: str, target_epoch: int, is_changed: bool) -> None:
        """Set the member's assignment to its target, without topics that it does not subscribe to."""
        position = group.position(member_id)
        if position.epoch == target_epoch and not is_changed:
            return
        names = group.members[member_id].topics
        ids = {image.topic_id for image in map(self._images.image, names) if image is not None}
        assigned = {each: partitions for each, partitions in group.target_of(member_id).items() if each in ids}
        if position.epoch != target_epoch:
            after = Position(target_epoch, position.epoch, assigned or NOTHING)
        else:
            after = position._replace(assigned=assigned)
        if after != position:
            key = ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member_id)
            group.put(key, position_value(after))

    # ------------------------------------------------------------------ partitions to initialize

    def _begin_partitions(self, group: ShareGroup) -> InitializeShareGroupStateRequest | None:
        """Mark new partitions as initializing. Return the request to initialize them; None if there are none."""
        if group.all_begun_in_version == self._images.version:
            return None
        known = group.share_partitions
        retry_ms = self._effects.config.group_share_initialize_retry_interval_ms
        is_recent = self._effects.now_ms - group.initializing_since_ms < retry_ms
        # Each topic is looked up in a phase. A walk along a phase for each topic would take seconds for thousands of them.
        phases = (known.initialized, known.initializing) if is_recent else (known.initialized,)
        missing: dict[bytes, KnownTopic] = {}
        for image in self._read_topics(group):
            begun = [phase[image.topic_id].partitions for phase in phases if image.topic_id in phase]
            left = frozenset(range(image.partition_count)).difference(*begun)
            if left:
                missing[image.topic_id] = KnownTopic(image.name, left)
        if not missing:
            if not known.initializing:
                group.all_begun_in_version = self._images.version
            return None
        request = _initialization(group, missing)
        group.put(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), known.begin(missing).record())
        return request


def _target_record(group_id: str, member_id: str, target: Assignment) -> KeyedRecord:
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return KeyedRecord(key, target_value(target))


def _computed(
    members: Mapping[str, Member],
    ids: Mapping[str, bytes],
    assignable: Mapping[bytes, frozenset[int]],
    current: Mapping[str, Assignment],
) -> Mapping[str, Assignment]:
    """Return the target assignment of each member. All arguments are immutable, so a thread may call this."""
    known: dict[frozenset[str], frozenset[bytes]] = {}
    for member in members.values():
        if (read := member.topics) not in known:
            known[read] = frozenset(ids[name] for name in read if name in ids)
    return assign({member_id: known[each.topics] for member_id, each in members.items()}, assignable, current)


def _initialization(group: ShareGroup, topics: dict[bytes, KnownTopic]) -> InitializeShareGroupStateRequest:
    """Return the request to initialize partitions at the share coordinator.

    A new topic starts at the group's configured offset. A new partition of a known topic starts at 0, so that no record
    is lost.
    """
    known, epoch = group.share_partitions, group.group_epoch
    data = []
    for topic_id, topic in topics.items():
        start_offset = FIRST_OFFSET if known.knows(topic_id) else ANY_OFFSET
        partitions = [
            InitializeStatePartition(partition=each, state_epoch=epoch, start_offset=start_offset)
            for each in sorted(topic.partitions)
        ]
        data.append(InitializeStateData(topic_id=topic_id, partitions=partitions))
    return InitializeShareGroupStateRequest(group_id=group.group_id, topics=data)


def _wire_assignment(assigned: Assignment) -> WireAssignment:
    return WireAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


def _fenced(position: Position, epoch: int) -> str:
    known = f"than the one known by the group coordinator ({position.epoch})"
    if epoch > position.epoch:
        reason = f"greater member epoch ({epoch}) {known}"
    else:
        previous = f"and it does not match the previous member epoch ({position.previous_epoch})"
        reason = f"smaller member epoch ({epoch}) {known}, {previous}"
    return f"The share group member has a {reason}. The member must abandon all its partitions and rejoin."


def _unknown_member(group: ShareGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
