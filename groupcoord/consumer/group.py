"""The state of one consumer group. `replay` is the only writer of what is in records.

    Empty         nobody is in
    Assigning     the group's epoch is ahead of the target assignment's: it has to be computed anew
    Reconciling   the target assignment is there, and some member is not there yet
    Stable        every member has the partitions of the target assignment

Members of the classic protocol may be among the others while a group is upgraded or downgraded. Their generation is
their member epoch.

Invariants: those of `ModernGroup`. A partition has at most one owner, which is the member whose record has it as assigned
or as still to be given up.

`ConsumerState` holds this state; `ConsumerGroup` answers the shard, offsets and administrators. `heartbeat.py` changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.member import UNREVOKED_PARTITIONS, Member, Progress
from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.assignor import NOTHING, Assignment, EpochsOfPartitions, Reader, read_assignment
from ottla.groupcoord.modern.describing import Large, described_partitions, with_members
from ottla.groupcoord.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.modern.group import NEVER, CommittingGroup, Counts, ModernGroup
from ottla.groupcoord.records import GroupRecord, KeyedRecord
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group import DescribedAssignment, DescribedGroup, DescribedTopicPartitions
from ottla.wire.messages.consumer_group import Member as DescribedMember

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
NO_TOPICS: frozenset[str] = frozenset()


class ConsumerState(ModernGroup[Member]):
    """State of one consumer group: members, partition owners, subscriptions, targets."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.has_partition_metadata = False
        self.is_held = False  # while its last member is replaced: it does not end in between
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.resolved: dict[str, records.ConsumerGroupRegularExpressionValue] = {}
        self._matched: dict[str, frozenset[str]] = {}  # the topics of `resolved`
        self.patterns_seen_topics = NEVER  # the version of the topics that the patterns were held against
        self.assignors = Counts()
        self.classic_count = 0
        self.classic_protocols = Counts()
        self._owners: dict[bytes, dict[int, str]] = {}

    # ------------------------------------------------------------------ questions

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        epoch = self.assignment_epoch
        return STABLE if all(each.is_reconciled_to(epoch) for each in self.members.values()) else RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def matched_by(self, member: Member) -> frozenset[str]:
        """Return the topics that match the member's pattern. Members with equal patterns share one set."""
        return self.topics_of(member.pattern)

    def topics_of(self, pattern: str) -> frozenset[str]:
        """Return the topics that `pattern` matched when it was last resolved."""
        return self._matched.get(pattern, NO_TOPICS)

    def all_readers(self) -> Callable[[], Iterable[Reader]]:
        """Return a function that yields the current members as the assignor's input. Any thread may call it."""
        # Copies of the tables alone: what is in them never changes.
        return partial(_readers, dict(self.members), dict(self._matched), dict(self.targets))

    def reads(self, member: Member, topic: str) -> bool:
        """Return True if the member subscribes to the topic by name or by pattern."""
        return topic in member.topics or topic in self.matched_by(member)

    def is_taken(self, topic_id: bytes, partition: int, member_id: str) -> bool:
        """Return True if a member other than `member_id` owns the partition."""
        owner = self._owners.get(topic_id, {}).get(partition)
        return owner is not None and owner != member_id

    def waits_for_others(self, member: Member) -> bool:
        """Return True if other members still own partitions of the member's target."""
        assigned = member.progress.assigned
        return any(
            partition not in assigned.get(topic_id, ()) and self._owners.get(topic_id, {}).get(partition) is not None
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    def supports_classic(self, protocol_type: str, names: list[str]) -> bool:
        """Return True if there is a protocol in `names` that all classic members support."""
        if protocol_type != "consumer":
            return False
        if self.is_empty:
            return bool(names)
        return any(self.classic_protocols.of(each) == self.classic_count for each in names)

    # ------------------------------------------------------------------ records

    def value_of(self, key: Any) -> Any | None:
        """Return the value of the record with this key, ready to be written again; None if there is none."""
        return _VALUES[type(key)](self, key)

    def replay(self, record: GroupRecord) -> None:
        """Apply a record to the group's state."""
        _REPLAYS[type(record.key)](self, record.key, record.value)

    @property
    def has_records(self) -> bool:
        """True if the group has at least one record with a current value."""
        return bool(
            self.is_held
            or self.metadata is not None
            or self.members
            or self.targets
            or self.target_metadata is not None
            or self.resolved
            or self.has_partition_metadata
        )

    def _replay_partition_metadata(self, key: Any, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _replay_target(self, key: Any, value: records.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        self.set_target(key.member_id, None if value is None else read_assignment(value.topic_partitions))

    def _target_value(self, key: Any) -> records.ConsumerGroupTargetAssignmentMemberValue | None:
        target = self.targets.get(key.member_id)
        return None if target is None else records.target_value(target)

    def _replay_words(self, key: Any, value: records.ConsumerGroupMemberMetadataValue | None) -> None:
        self._replace(key.member_id, Member(key.member_id, value, self._known(key.member_id).known_progress))

    def _words(self, key: Any) -> records.ConsumerGroupMemberMetadataValue | None:
        return self._known(key.member_id).written

    def _replay_progress(self, key: Any, value: records.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        progress = None if value is None else Progress.read(value)
        self._replace(key.member_id, Member(key.member_id, self._known(key.member_id).written, progress))

    def _progress(self, key: Any) -> records.ConsumerGroupCurrentMemberAssignmentValue | None:
        progress = self._known(key.member_id).known_progress
        return None if progress is None else progress.written()

    def _replay_resolved(self, key: Any, value: records.ConsumerGroupRegularExpressionValue | None) -> None:
        pattern = key.regular_expression
        before = self.resolved.pop(pattern, None)
        self._matched.pop(pattern, None)
        if before is not None:
            self.subscriptions.by_pattern.add(before.topics, -1)
        if value is not None:
            self.resolved[pattern] = value
            self._matched[pattern] = frozenset(value.topics)
            self.subscriptions.by_pattern.add(value.topics)

    def _resolved(self, key: Any) -> records.ConsumerGroupRegularExpressionValue | None:
        return self.resolved.get(key.regular_expression)

    # ------------------------------------------------------------------ what is counted

    def _known(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _replace(self, member_id: str, member: Member) -> None:
        before = self.members.get(member_id)
        if member.is_gone:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
        # A member says much less often something new about itself than it moves on.
        if before is None or before.written is not member.written or member.is_gone:
            if before is not None:
                self._count(before, -1)
            if not member.is_gone:
                self._count(member, 1)
        had = member.progress if before is None else before.progress
        if before is None or had is not member.progress or member.is_gone:
            self._give_up(had.assigned, member_id)
            self._give_up(had.revoking, member_id)
            self._take(member.progress.assigned, member_id)
            self._take(member.progress.revoking, member_id)

    def _count(self, member: Member, step: int) -> None:
        self.subscriptions.by_name.add(member.topics, step)
        if member.pattern:
            self.subscriptions.patterns.add((member.pattern,), step)
        if member.words.server_assignor is not None:
            self.assignors.add((member.words.server_assignor,), step)
        if member.classic_protocols is not None:
            self.classic_count += step
            self.classic_protocols.add([each.name for each in member.classic_protocols], step)
        if member.instance_id is not None:
            if step > 0:
                self.static_members[member.instance_id] = member.member_id
            elif self.static_members.get(member.instance_id) == member.member_id:
                del self.static_members[member.instance_id]

    def _take(self, partitions: EpochsOfPartitions, member_id: str) -> None:
        for topic_id, epochs in partitions.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def _give_up(self, partitions: EpochsOfPartitions, member_id: str) -> None:
        for topic_id, epochs in partitions.items():
            owners = self._owners.get(topic_id, {})
            for partition in epochs:
                # In a log that was compacted the next owner's record may come first.
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)

    # ------------------------------------------------------------------ its end

    def tombstones(self) -> Iterator[KeyedRecord]:
        """Yield tombstones of all records of the group; the last one is of the group's metadata record."""
        group_id, members = self.group_id, list(self.members)
        yield from (records.current_record(group_id, each, None) for each in members)
        yield from (records.target_record(group_id, each, None) for each in members)
        yield records.target_epoch_tombstone(group_id)
        yield from (records.member_record(group_id, each, None) for each in members)
        yield from [records.regex_record(group_id, each, None) for each in self.resolved]
        yield records.partition_metadata_tombstone(group_id)
        yield records.group_tombstone(group_id)


def _readers(
    members: Mapping[str, Member], matched: Mapping[str, frozenset[str]], targets: Mapping[str, Assignment]
) -> Iterator[Reader]:
    for each in members.values():
        topics = matched.get(each.pattern, NO_TOPICS)
        yield Reader(each.member_id, each.instance_id, each.topics, topics, targets.get(each.member_id, NOTHING))


_REPLAYS: Mapping[type, Callable[[ConsumerState, Any, Any], None]] = {
    records.ConsumerGroupMetadataKey: ConsumerState.replay_metadata,
    records.ConsumerGroupPartitionMetadataKey: ConsumerState._replay_partition_metadata,
    records.ConsumerGroupMemberMetadataKey: ConsumerState._replay_words,
    records.ConsumerGroupTargetAssignmentMetadataKey: ConsumerState.replay_target_metadata,
    records.ConsumerGroupTargetAssignmentMemberKey: ConsumerState._replay_target,
    records.ConsumerGroupCurrentMemberAssignmentKey: ConsumerState._replay_progress,
    records.ConsumerGroupRegularExpressionKey: ConsumerState._replay_resolved,
}

_VALUES: Mapping[type, Callable[[ConsumerState, Any], Any | None]] = {
    records.ConsumerGroupMetadataKey: ConsumerState.metadata_value,
    records.ConsumerGroupPartitionMetadataKey: lambda state, key: None,
    records.ConsumerGroupMemberMetadataKey: ConsumerState._words,
    records.ConsumerGroupTargetAssignmentMetadataKey: ConsumerState.target_metadata_value,
    records.ConsumerGroupTargetAssignmentMemberKey: ConsumerState._target_value,
    records.ConsumerGroupCurrentMemberAssignmentKey: ConsumerState._progress,
    records.ConsumerGroupRegularExpressionKey: ConsumerState._resolved,
}


GROUP_TYPE = "consumer"

SESSION, REVOCATION = "consumer-session", "consumer-revocation"
JOIN, SYNC = "consumer-join", "consumer-sync"
"""Kinds of deadlines: of every member; for giving up partitions; of classic members, for joining again and for asking for
their assignment."""


class ConsumerGroup(ConsumerState, CommittingGroup[Member]):
    """Consumer group that a shard hosts: its state and deadlines."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION, REVOCATION, JOIN, SYNC)

    def __init__(
        self,
        group_id: str,
        effects: Effects,
        settings_of: GroupSettingsSource,
        end: Callable[[ConsumerGroup], None],
    ) -> None:
        ConsumerState.__init__(self, group_id)
        CommittingGroup.__init__(self, effects, settings_of)
        self._end = end

    # ------------------------------------------------------------------ offsets

    def epoch_of(self, member: Member) -> int:
        return member.epoch

    def stale(self, member: Member) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH

    def may_commit(self, member: Member, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        return member.may_commit(topic_id, partition, epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def delete(self) -> None:
        self._end(self)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members.values()), self.start_deadlines)

    def start_deadlines(self, member: Member) -> None:
        """Start the member's session timeout and, if it must revoke partitions, its revocation deadline."""
        self.start_session(member)
        if member.state is UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
            self.schedule(REVOCATION, member.member_id, member.words.rebalance_timeout_ms)

    def start_session(self, member: Member) -> None:
        """Restart the member's session timeout."""
        # Classic members have chosen their timeout. The broker chooses that of the others.
        classic = member.uses_classic_protocol
        timeout_ms = member.classic_session_timeout_ms if classic else self.settings.consumer_session_timeout_ms
        self.schedule(SESSION, member.member_id, timeout_ms)


CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """Return a group description that carries only an error."""
    return undescribed_as(DescribedGroup, group_id, error, message, assignor_name="")


def described(group: ConsumerState, assignor: str, topics: TopicImages) -> DescribedGroup | Large[DescribedGroup]:
    description = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[],
    )
    sources = [(each, group.target_of(each.member_id)) for each in group.members.values()]
    return with_members(description, sources, lambda source: _member(*source, topics))


def _member(member: Member, target: Assignment, topics: TopicImages) -> DescribedMember:
    words, progress = member.words, member.progress
    # What it still has to give up is its own until then.
    has = chain(progress.assigned.items(), progress.revoking.items())
    return DescribedMember(
        member_id=member.member_id,
        instance_id=words.instance_id,
        rack_id=words.rack_id,
        member_epoch=member.epoch,
        client_id=words.client_id,
        client_host=words.client_host,
        subscribed_topic_names=list(words.subscribed_topic_names),
        subscribed_topic_regex=words.subscribed_topic_regex,
        assignment=_assignment(has, topics),
        target_assignment=_assignment(target.items(), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[tuple[bytes, Iterable[int]]], topics: TopicImages) -> DescribedAssignment:
    return DescribedAssignment(topic_partitions=described_partitions(DescribedTopicPartitions, partitions, topics))
