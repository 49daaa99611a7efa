"""Rebalances of a consumer group in three steps: group epoch, target assignment, reconciliation of a member.

    look_at_topics   the group's epoch rises, if members or topics have changed
    assign           the target assignment is computed for that epoch, at most once in an interval
    reconcile        a member takes its next step towards its target

The members' heartbeats, and the joins of classic members, carry a group through them. Records are in force at once.
A small assignment is computed at once. A large one is computed in a thread; the group goes on with the targets that it
has until the result is there. Members that have come meanwhile get theirs with the next one.

A member gets from what it has to its target one step at each heartbeat (KIP-848):

                         at a heartbeat, if there is another target
    Stable               gives up what is no longer its own    -> UnrevokedPartitions, at its old epoch
                         has nothing to give up                -> Stable or UnreleasedPartitions, at the new epoch
    UnrevokedPartitions  still reports what it has to give up  -> stays, until its rebalance timeout puts it out
                         reports it no more                    -> as from Stable
    UnreleasedPartitions what others have given up is added    -> Stable when nothing is left to wait for
    Unknown              must have given up everything         -> as from Stable; else it is fenced

Members progress independently: no member waits until all others have revoked partitions. A partition has one owner at any
time, because it stays with its member, also at a later epoch, until that reports it no more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.assignors import RANGE, UNIFORM, assign_range, assign_uniform
from ottla.groupcoord.consumer.group import REVOCATION, ConsumerGroup
from ottla.groupcoord.consumer.member import (
    STABLE,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    Member,
    Progress,
)
from ottla.groupcoord.effects import KeyedState, Steps
from ottla.groupcoord.group import TOPICS_HAVE_CHANGED, note_rebalance
from ottla.groupcoord.manager import ShardContext
from ottla.groupcoord.modern.assignor import NOTHING, Assignment, Assignor, EpochsOfPartitions, Readers, read_assignment
from ottla.groupcoord.modern.group import put_targets
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group import TopicPartitions


class Goal(NamedTuple):
    """Target assignment of a member, and the facts that limit its next step towards the target."""

    epoch: int
    target: Assignment
    topic_ids: Container[bytes]
    """Ids of the topics that the member reads now; the target may have been computed for others."""
    owned: Sequence[TopicPartitions] | None
    """Partitions that the member reports to own; None: it reported none."""
    is_taken: Callable[[bytes, int], bool]
    """Whether another member has this partition."""


class _Parts(NamedTuple):
    """Partitions of a member in three parts: partitions to keep, to revoke and to add."""

    kept: dict[bytes, dict[int, int]]
    revoking: dict[bytes, dict[int, int]]
    added: dict[bytes, list[int]]
    some_are_taken: bool


def reconciled(progress: Progress, goal: Goal, *, has_subscription_changed: bool) -> Progress:
    """Return the member's progress after its next reconciliation step. Raises KafkaError if the member is fenced."""
    state = progress.state
    if state is STABLE and progress.epoch == goal.epoch:
        return _without_unread(progress, goal) if has_subscription_changed else progress
    if state is UNREVOKED_PARTITIONS and _has_any(goal.owned, progress.revoking):
        return _without_unread(progress, goal) if has_subscription_changed else progress
    if state is UNKNOWN:
        if goal.owned is None or len(goal.owned):
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The consumer group member is in a unknown state.")
        return _next(progress, goal, goal.epoch)
    return _next(progress, goal, progress.epoch)


def _has_any(owned: Sequence[TopicPartitions] | None, partitions: EpochsOfPartitions) -> bool:
    """Tell whether the member may still own one of `partitions`. `owned` None: not reported, so True is assumed."""
    if owned is None:
        return True
    return any(
        each in partitions.get(topic.topic_id, ())
        for topic in owned
        if topic.topic_id in partitions
        for each in topic.partitions
    )


def _without_unread(progress: Progress, goal: Goal) -> Progress:
    """Return the progress after revoking topics that the member no longer reads. An old target may still have them."""
    unread = [each for each in progress.assigned if each not in goal.topic_ids]
    if not unread:
        return progress
    kept = {each: partitions for each, partitions in progress.assigned.items() if each in goal.topic_ids}
    revoking = dict(progress.revoking)
    for topic_id in unread:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **progress.assigned[topic_id]}
    if _has_any(goal.owned, revoking):
        return progress.at(progress.epoch, state=UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return progress.at(progress.epoch, assigned=kept)


def _next(progress: Progress, goal: Goal, epoch: int) -> Progress:
    """Return the progress after a step towards the target, without partitions that other members still own."""
    parts = _divide(progress, goal)
    if parts.revoking and _has_any(goal.owned, parts.revoking):
        return progress.at(epoch, state=UNREVOKED_PARTITIONS, assigned=parts.kept, revoking=parts.revoking)
    for topic_id, partitions in parts.added.items():
        parts.kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = UNRELEASED_PARTITIONS if parts.some_are_taken else STABLE
    return progress.at(goal.epoch, state=state, assigned=parts.kept, revoking={})


def _divide(progress: Progress, goal: Goal) -> _Parts:
    parts = _Parts({}, {}, {}, False)
    some_are_taken = False
    for topic_id in {**progress.assigned, **goal.target}:
        has: Mapping[int, int] = progress.assigned.get(topic_id, {})
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.topic_ids else frozenset()
        if kept := {each: epoch for each, epoch in has.items() if each in target}:
            parts.kept[topic_id] = kept
        if revoking := {each: epoch for each, epoch in has.items() if each not in target}:
            parts.revoking[topic_id] = revoking
        missing = [each for each in target if each not in has]
        if free := [each for each in missing if not goal.is_taken(topic_id, each)]:
            parts.added[topic_id] = free
        some_are_taken = some_are_taken or len(free) < len(missing)
    return parts._replace(some_are_taken=some_are_taken)


ASSIGNORS: Mapping[str, Assignor] = {
    UNIFORM: assign_uniform,
    RANGE: assign_range,
}

SIZE_AT_ONCE = 1_000
"""A larger assignment of members that read the same topics takes more than some milliseconds."""
MIXED_SIZE_AT_ONCE = 500


class AssignmentComputed(NamedTuple):
    """Internal request with a target assignment that a thread has computed; `targets` is None if it failed."""

    group_id: str
    computation: object
    """Identity of the computation: the group's, if the result is still wanted."""
    epoch: int
    members: Mapping[str, Member]
    """Members that the assignment was computed for."""
    targets: Mapping[str, Assignment] | None


class _TopicsRead(Container[bytes]):
    """Ids of the topics that a member reads. There may be thousands, so an id is looked up only when it is tested."""

    def __init__(self, topics: TopicImages, group: ConsumerGroup, member: Member) -> None:
        self._topics = topics
        self._group = group
        self._member = member

    def __contains__(self, topic_id: object) -> bool:
        assert isinstance(topic_id, bytes)
        image = self._topics.image_by_id(topic_id)
        return image is not None and self._group.reads(self._member, image.name)


class Rebalancing:
    """Driver of consumer groups' rebalances: epochs, target assignments, and members' reconciliation."""

    def __init__(self, context: ShardContext, state: KeyedState) -> None:
        self._config = context.config
        self._effects = context.effects
        self._groups = context.groups
        self._topics = context.topics
        self._state = state

    def put(self, record: KeyedRecord) -> None:
        """Append a record and apply it immediately."""
        self._effects.put(self._state, record)

    def restart_if_refused(self, group_id: str) -> None:
        """Restart the members' deadlines if the log refuses this call's records, so that they remove no member."""

        def restart() -> None:
            group = self._groups.get(group_id)
            if group is not None:
                self._effects.carry_on(group.start_sessions())

        self._effects.undo_if_refused(restart)

    def preferred_assignor(self, group: ConsumerGroup) -> str:
        """Return the assignor that most members request; the first configured one if none is requested."""
        return group.assignors.most_frequent() or self._config.group_consumer_assignors[0]

    # ------------------------------------------------------------------ the group's epoch

    def look_at_topics(self, group: ConsumerGroup, change: str) -> None:
        """Raise the group epoch if the group's topics have changed, or if `change` names a reason ("": none)."""
        if not change and group.has_seen(self._topics):
            return
        metadata_hash = group.hash_of(self._topics)
        group.seen_topics = self._topics.version
        if change or metadata_hash != group.metadata_hash:
            self.begin_epoch(group, metadata_hash, change or TOPICS_HAVE_CHANGED)
        if group.has_partition_metadata:
            self.put(records.partition_metadata_tombstone(group.group_id))

    def begin_epoch(self, group: ConsumerGroup, metadata_hash: int, reason: str) -> None:
        self._effects.undo_if_refused(group.forget_refused_epoch)
        epoch = group.group_epoch + 1
        self.put(records.group_record(group.group_id, epoch, metadata_hash))
        note_rebalance(self._effects, group, epoch, reason)

    # ------------------------------------------------------------------ the target assignment

    def assign(self, group: ConsumerGroup) -> None:
        """Compute the epoch's target assignment, in a thread if large.

        No-op if the target exists, is being computed or is not due yet.
        """
        if group.assignment_epoch >= group.group_epoch or group.computation is not None:
            return
        if not group.may_assign(group.settings.consumer_assignment_interval_ms, self._effects.timestamp_ms):
            return
        readers, assignor = self._readers_of(group), ASSIGNORS[self.preferred_assignor(group)]
        if self._is_small(group, readers):
            for member_id, target in group.changed_targets(readers.assign(assignor)).items():
                self.put(records.target_record(group.group_id, member_id, target))
            self._put_target_epoch(group, group.group_epoch)
        else:
            group.computation, members = object(), dict(group.members)
            done = partial(AssignmentComputed, group.group_id, group.computation, group.group_epoch, members)
            self._effects.compute(partial(readers.assign, assignor), done)

    def _is_small(self, group: ConsumerGroup, readers: Readers) -> bool:
        """Return True if the assignment can be computed in one step: few members, topics and partitions."""
        partitions = sum(each.partition_count for each in readers.images.values())
        if readers.is_homogeneous:
            return partitions + len(group.members) <= SIZE_AT_ONCE
        return partitions + group.subscriptions.pair_count(group.topics_of) <= MIXED_SIZE_AT_ONCE

    def take_computed(self, group: ConsumerGroup | None, computed: AssignmentComputed) -> None:
        """Write and apply a target assignment that a thread has computed; ignore an outdated one."""
        # Another group of that name may have begun, this one was deleted, or the log has refused the epoch.
        if group is None or group.computation is not computed.computation:
            return
        group.computation = None
        if computed.targets is None or not group.assignment_epoch < computed.epoch <= group.group_epoch:
            return
        self._effects.carry_on(self._take_targets(group, computed.epoch, computed.members, computed.targets))

    def _take_targets(
        self, group: ConsumerGroup, epoch: int, members: Mapping[str, Member], computed: Mapping[str, Assignment]
    ) -> Steps:
        def of_present_members() -> Iterator[tuple[str, Assignment]]:
            for member in members.values():
                member_id = member.member_id
                if member_id not in group.members and member.instance_id is not None:
                    # A static member that has come back meanwhile goes by another id.
                    member_id = group.static_members.get(member.instance_id, member_id)
                if member_id in group.members:
                    yield member_id, computed.get(member.member_id, NOTHING)

        written = partial(records.target_record, group.group_id)
        yield from put_targets(
            self._effects, group, of_present_members(), written, lambda value: read_assignment(value.topic_partitions)
        )
        self._put_target_epoch(group, epoch)

    def _put_target_epoch(self, group: ConsumerGroup, epoch: int) -> None:
        self.put(records.target_epoch_record(group.group_id, epoch, self._effects.timestamp_ms))

    def _readers_of(self, group: ConsumerGroup) -> Readers:
        images = {name: image for name in group.subscriptions.topics if (image := self._topics.image(name)) is not None}
        return Readers(group.all_readers(), images, group.is_homogeneous)

    # ------------------------------------------------------------------ one member

    def reconcile(
        self,
        group: ConsumerGroup,
        member: Member,
        owned: Sequence[TopicPartitions] | None,
        *,
        has_subscription_changed: bool,
    ) -> Member:
        """Return the member after its next reconciliation step. `owned`: partitions it reports; None: not reported."""
        if member.is_reconciled_to(group.assignment_epoch) and not has_subscription_changed:
            return member
        member_id = member.member_id
        goal = Goal(
            group.assignment_epoch,
            group.target_of(member_id),
            _TopicsRead(self._topics, group, member),
            owned,
            lambda topic_id, partition: group.is_taken(topic_id, partition, member_id),
        )
        progress = reconciled(member.progress, goal, has_subscription_changed=has_subscription_changed)
        if progress == member.progress and member.known_progress is not None:
            return member
        self.put(records.current_record(group.group_id, member_id, progress.written()))
        member = group.members[member_id]
        # Classic members have a deadline for their next join instead.
        if not member.uses_classic_protocol:
            if member.state is UNREVOKED_PARTITIONS:
                group.schedule(REVOCATION, member_id, member.words.rebalance_timeout_ms)
            else:
                group.cancel(REVOCATION, member_id)
        return member
