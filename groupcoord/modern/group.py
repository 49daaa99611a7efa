"""The common state of consumer, share and streams groups, whose assignments the broker makes.

Three epochs tell what a member has to do. The *group epoch* rises when members, subscriptions or topics change. The
*assignment epoch* is the group epoch for which the *target assignment* was computed: the partitions of each member. A
*member epoch* is the assignment epoch that the member has reached.

Invariants: the assignment epoch is never ahead of the group epoch, and a member's epoch is never ahead of the assignment
epoch.

    EpochGroup       epochs, members and targets
    ModernGroup      a group whose members read partitions of topics that they name (Kafka's ModernGroup)
    HostedGroup      the answers to its shard that all these groups give alike, and the deadlines of members
    CommittingGroup  a hosted group whose members commit offsets
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.groupcoord.effects import TEXT_LENGTH_MAX, Effects, Steps, TimerKey, in_pieces
from ottla.groupcoord.group import LastRebalance, PartitionCheck
from ottla.groupcoord.group_settings import GroupSettings, GroupSettingsSource
from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.groupcoord.modern.assignor import NOTHING, Assignment
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.topic_images import TopicImages, hash_of_topics
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.groups import ListedGroup
from ottla.wire.settings import trimmed


def invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)


def check_texts(**texts: str | None) -> None:
    """Raise KafkaError if a text is blank or too long for a group's record. Keywords are Kafka's field names."""
    for name, text in texts.items():
        if text is None:
            continue
        if not trimmed(text):
            raise invalid(f"{name} can't be empty.")
        if len(text) > TEXT_LENGTH_MAX:
            raise invalid(f"{name} is too long.")


class Counts:
    """Counter of strings that drops keys with count 0."""

    __slots__ = ("by_key", "revision")

    def __init__(self) -> None:
        self.by_key: dict[str, int] = {}
        self.revision = 0
        """Rises whenever something is new, or is there no more."""

    def add(self, keys: Iterable[str], step: int = 1) -> None:
        for key in keys:
            before = self.by_key.get(key, 0)
            count = before + step
            if count:
                self.by_key[key] = count
            else:
                self.by_key.pop(key, None)
            if not before or not count:
                self.revision += 1

    def of(self, key: str) -> int:
        return self.by_key.get(key, 0)

    def most_frequent(self) -> str | None:
        """Return the most frequent key; on a tie the first in Kafka's hash map. None if there are no keys."""
        count = len(self.by_key)
        return max(self.by_key, key=lambda key: (self.by_key[key], -hash_map_slot(key, count)), default=None)


class Subscriptions:
    """Topics and patterns that a group's members subscribe to, each with its number of subscribers."""

    __slots__ = ("by_name", "by_pattern", "patterns")

    def __init__(self) -> None:
        self.by_name = Counts()
        self.by_pattern = Counts()
        self.patterns = Counts()
        """The patterns themselves, with the number of members who have given each."""

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name.by_key or topic in self.by_pattern.by_key

    @property
    def revision(self) -> tuple[int, int]:
        """Pair of numbers that changes whenever the set of subscribed topics changes."""
        return self.by_name.revision, self.by_pattern.revision

    def __len__(self) -> int:
        """Return an upper bound of the number of subscribed topics."""
        return len(self.by_name.by_key) + len(self.by_pattern.by_key)

    @property
    def topics(self) -> Iterable[str]:
        if not self.by_pattern.by_key:
            return self.by_name.by_key
        return self.by_name.by_key.keys() | self.by_pattern.by_key.keys()

    def pair_count(self, matched_by: Callable[[str], Collection[str]]) -> int:
        """Return the number of (member, topic) pairs. `matched_by` returns the topics that match a pattern."""
        by_pattern = sum(count * len(matched_by(pattern)) for pattern, count in self.patterns.by_key.items())
        return sum(self.by_name.by_key.values()) + by_pattern

    def are_alike(self, member_count: int) -> bool:
        """Return True if all members subscribe to the same topics: to the same names, or to the same pattern."""
        if not self.patterns.by_key:
            return all(count == member_count for count in self.by_name.by_key.values())
        if next(iter(self.patterns.by_key.values())) != member_count:
            return False
        return not self.by_name.by_key and all(count == 1 for count in self.by_pattern.by_key.values())


MemberT = TypeVar("MemberT")
TargetT = TypeVar("TargetT")

FIRST_EPOCH = 1
"""Epoch of a group and of its assignment before the first record; that record has the next epoch, as in Kafka."""

NEVER = -1
"""Version of the topics for a group that has not read them yet."""

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
"""Epochs in heartbeats of a member that joins, that leaves, and that leaves for a while."""


class EpochGroup(Generic[MemberT, TargetT]):
    """Base class of groups with epochs: group epoch, assignment epoch, members and targets."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata: Any | None = None
        """The value of the group's own record, and of that of its target assignment; None: there is none."""
        self.target_metadata: Any | None = None
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """Time of the target assignment, in ms since 1970; 0: there is none, or the next one may be computed at once."""
        self.members: dict[str, MemberT] = {}
        self.targets: dict[str, TargetT] = {}
        self.last_rebalance: LastRebalance | None = None
        """Last rebalance, for people; None: none since this broker coordinates the group."""
        self.seen_topics = NEVER
        self.computation: object | None = None
        """The one whose target assignment is being computed in a thread; any other comes too late."""

    def has_seen(self, topics: TopicImages) -> bool:
        """Return True if no topic has changed since the group's topics were last checked."""
        return self.seen_topics == topics.version

    def forget_refused_epoch(self) -> None:
        """Forget the checked topics and the running computation of a group epoch that the log has refused."""
        self.seen_topics = NEVER
        # Another epoch of this number may have other members, who would get nothing of the assignment for this one.
        self.computation = None

    def may_assign(self, interval_ms: int, timestamp_ms: int) -> bool:
        """Tell whether the next target assignment is due: `interval_ms` after the last one. Always due if that is 0."""
        # The interval 0 helps when somebody has set the clock far back.
        if not self.assignment_timestamp_ms or not interval_ms:
            return True
        return timestamp_ms >= self.assignment_timestamp_ms + interval_ms

    def set_target(self, member_id: str, target: TargetT | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replace_targets(self, targets: dict[str, TargetT]) -> None:
        """Replace the targets of all members in one step."""
        self.targets = targets

    # ------------------------------------------------------------------ records that are alike in all kinds

    def replay_metadata(self, key: Any, value: Any | None) -> None:
        self.metadata = value
        self.group_epoch = FIRST_EPOCH if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def metadata_value(self, key: Any) -> Any | None:
        return self.metadata

    def replay_target_metadata(self, key: Any, value: Any | None) -> None:
        self.target_metadata = value
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def target_metadata_value(self, key: Any) -> Any | None:
        return self.target_metadata


def put_targets(
    effects: Effects,
    group: EpochGroup[Any, TargetT],
    computed: Iterable[tuple[str, TargetT]],
    written: Callable[[str, TargetT], GroupRecord],
    read: Callable[[Any], TargetT],
) -> Steps:
    """Write new and changed targets in steps; the last step applies all of them.

    `written` encodes a target, `read` decodes it. The caller writes the epoch's record, without which the next
    heartbeat computes the targets again.
    """
    before, after = group.targets, dict(group.targets)
    made: list[GroupRecord] = []

    def take(each: tuple[str, TargetT]) -> None:
        member_id, target = each
        if target != before.get(member_id):
            record = written(member_id, target)
            after[member_id] = read(record.value)
            made.append(record)

    yield from in_pieces(computed, take)
    effects.be_cuttable()
    effects.records += made
    effects.undo_if_refused(partial(group.replace_targets, before))
    group.replace_targets(after)


class ModernGroup(EpochGroup[MemberT, Assignment]):
    """Consumer or share group (Kafka's ModernGroup): members subscribe to topics and get their partitions."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscriptions = Subscriptions()
        self._hash = 0  # of these topics:
        self._hashed: tuple[int, tuple[int, int]] | None = None

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    @property
    def is_homogeneous(self) -> bool:
        """True if all members read the same topics."""
        return self.subscriptions.are_alike(len(self.members))

    def hash_of(self, topics: TopicImages) -> int:
        """Return the hash of the subscribed topics as they are now."""
        # Members come and go more often than topics, of which there may be thousands.
        hashed = topics.version, self.subscriptions.revision
        if self._hashed != hashed:
            self._hash = hash_of_topics(map(topics.image, self.subscriptions.topics))
            self._hashed = hashed
        return self._hash

    def changed_targets(self, computed: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """Return the targets in `computed` that are new or changed, by member id."""
        changed = {}
        for member_id in self.members:
            target = computed.get(member_id, NOTHING)
            if target != self.targets.get(member_id):
                changed[member_id] = target
        return changed


EPOCHS_SINCE_OFFSET_COMMIT = 9
"""The first version of OffsetCommit that knows member epochs."""

NO_EPOCH = -1
"""Epoch in a commit whose sender names no member."""


class HostedGroup(ABC, Generic[MemberT]):
    """Base class of groups in a shard. Each group type derives a class with its state."""

    group_type: str
    """Kafka's name of the kind, which is that of its members' protocol, too."""
    timer_kinds: tuple[str, ...]
    """The kinds of deadlines that a member may have."""

    group_id: str
    members: dict[str, MemberT]
    last_rebalance: LastRebalance | None

    def __init__(self, effects: Effects, settings_of: GroupSettingsSource) -> None:
        self._effects = effects
        self._settings_of = settings_of

    @abstractmethod
    def value_of(self, key: Any) -> Any | None:
        """Return the value of the record with this key, ready to be written again; None if there is none."""

    @property
    def settings(self) -> GroupSettings:
        """Settings currently in force for the group."""
        return self._settings_of(self.group_id)

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Name of the group's state, as clients see it."""

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.group_type,
            group_state=self.state_name,
            group_type=self.group_type,
        )

    # ------------------------------------------------------------------ its end

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    # ------------------------------------------------------------------ deadlines

    def schedule(self, kind: str, member_id: str, delay_ms: int) -> None:
        key = TimerKey(kind, self.group_id, member_id)
        self._effects.timers.schedule(key, self._effects.now_ms + max(delay_ms, 0))

    def schedule_if_absent(self, kind: str, member_id: str, delay_ms: int) -> None:
        if not self.is_scheduled(kind, member_id):
            self.schedule(kind, member_id, delay_ms)

    def is_scheduled(self, kind: str, member_id: str) -> bool:
        return self._effects.timers.deadline_ms(TimerKey(kind, self.group_id, member_id)) is not None

    def cancel(self, kind: str, member_id: str) -> None:
        """Cancel a deadline of a member, but restore it if the log refuses this call's records."""
        key, timers = TimerKey(kind, self.group_id, member_id), self._effects.timers
        deadline_ms = timers.deadline_ms(key)
        if deadline_ms is None:
            return
        timers.cancel(key)

        def restore() -> None:
            # A later call may have begun a new one.
            if timers.deadline_ms(key) is None:
                timers.schedule(key, deadline_ms)

        self._effects.restore_if_refused(restore)

    def cancel_member(self, member_id: str) -> None:
        for kind in self.timer_kinds:
            self.cancel(kind, member_id)

    def cancel_timers(self) -> None:
        for member_id in self.members:
            self.cancel_member(member_id)

    def end_deadlines(self) -> Steps:
        """Cancel all members' deadlines permanently, as a group of another type replaces this group."""
        timers = self._effects.timers

        def end(member_id: str) -> None:
            for kind in self.timer_kinds:
                timers.cancel(TimerKey(kind, self.group_id, member_id))

        return in_pieces(list(self.members), end)

    # ------------------------------------------------------------------ callers: nobody is ever parked here

    def abandon(self, caller: Caller) -> None:
        """Do nothing: no request of this group type is ever parked."""

    def unload(self, error: ErrorCode) -> Steps:
        """Do nothing: no request of this group type is ever parked."""
        return iter(())


class CommittingGroup(HostedGroup[MemberT]):
    """Base class of hosted groups whose members commit offsets."""

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        """Return an error or NONE. For an older epoch, return a check of whether the member has kept each partition."""
        if generation_id < 0 and not self.members:
            return ErrorCode.NONE
        # A transactional client of old does not say who it is.
        if is_transactional and generation_id == NO_EPOCH and not member_id and group_instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        stale = self.stale(member)
        if not is_transactional and api_version < EPOCHS_SINCE_OFFSET_COMMIT and stale is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = self.epoch_of(member)
        if generation_id == epoch:
            return ErrorCode.NONE
        if generation_id > epoch:
            return stale
        return lambda topic_id, topic, partition: (
            ErrorCode.NONE if self.may_commit(member, generation_id, topic_id, topic, partition) else stale
        )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == self.epoch_of(member) else self.stale(member)

    @abstractmethod
    def epoch_of(self, member: MemberT) -> int:
        """Return the member's current epoch."""

    def stale(self, member: MemberT) -> ErrorCode:
        """Return the error for a request with a stale epoch of this member."""
        return ErrorCode.STALE_MEMBER_EPOCH

    @abstractmethod
    def may_commit(self, member: MemberT, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        """Return True if the member has owned the partition since `epoch`, or longer."""

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    @property
    def is_forgettable(self) -> bool:
        return not self.members
