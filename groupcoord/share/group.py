"""A share group: its state as its records have it, its share partitions at the share coordinator, and its sessions.

    Empty     has no members
    Stable    has members: they never wait for one another, because partitions are shared

`replay` is the only writer of recorded state, at the load and later. Soft state is in no record; it may be lost.

A member may read a share partition only when the share coordinator, which may be another broker, has its state. So the
group's record of share partitions has two phases:

    (unknown) --begin--> initializing --confirm--> initialized --delete--> deleting --forget--> (unknown)
                              |                         |
                              +----- give up: (unknown) +----- the topic is gone: (unknown)

A partition is initializing before the request goes out, and initialized when its answer has come. If the answer never comes,
a later heartbeat repeats the request. Topics are deleting as a whole. `begin` ends the deletion of a topic: it counts anew.

Invariants: those of `ModernGroup`; a topic that is deleting is neither initializing nor initialized by a deletion of offsets
or of the group; no topic is without partitions in either phase.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ottla.groupcoord.effects import Effects, KeyedState, Steps, in_pieces
from ottla.groupcoord.group import PartitionCheck
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.assignor import NOTHING, Assignment, read_assignment
from ottla.groupcoord.modern.group import HostedGroup, ModernGroup
from ottla.groupcoord.records import GroupRecord, KeyedRecord
from ottla.groupcoord.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)
from ottla.wire.errors import ErrorCode

GROUP_TYPE = "share"
EMPTY, STABLE = "Empty", "Stable"
SESSION = "share-session"

PartitionsByTopic = Mapping[bytes, Collection[int]]
STABLE_MEMBER = 0
"""The only state of a share group's member: it never has to revoke partitions first."""


# ---------------------------------------------------------------------- share partitions at the share coordinator


class KnownTopic(NamedTuple):
    """Name of a topic, and those of its partitions that are in one phase."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[bytes, KnownTopic]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Share partitions of one group by phase: initializing, initialized, deleting. Immutable, to revert changes."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    """Topic names by id."""

    def knows(self, topic_id: bytes) -> bool:
        """Return True if any partition of the topic is initializing or initialized."""
        return topic_id in self.initialized or topic_id in self.initializing

    def begin(self, topics: Topics) -> StatePartitions:
        initializing = united(self.initializing, topics)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in initializing}
        return replace(self, initializing=initializing, deleting=deleting)

    def confirm(self, partitions: PartitionsByTopic) -> StatePartitions:
        """Return a copy with `partitions` as initialized. Those that are not initializing are ignored."""
        confirmed = {
            topic_id: KnownTopic(known.name, known.partitions.intersection(partitions.get(topic_id, ())))
            for topic_id, known in self.initializing.items()
        }
        initialized = united(self.initialized, _present(confirmed))
        return replace(self, initializing=without(self.initializing, partitions), initialized=initialized)

    def give_up(self, partitions: PartitionsByTopic) -> StatePartitions:
        """Return a copy without `partitions` as initializing: the share coordinator refused. A heartbeat retries it."""
        return replace(self, initializing=without(self.initializing, partitions))

    def delete_all(self, again: Topics) -> tuple[StatePartitions, Topics]:
        """Return a copy in which all topics are deleting, and the partitions to delete, with those in `again`."""
        doomed = united(united(self.initialized, self.initializing), again)
        return StatePartitions(deleting={topic_id: known.name for topic_id, known in doomed.items()}), doomed

    def delete(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Return a copy in which these topics are deleting, because their offsets are to be deleted."""
        deleting = dict(self.deleting)
        deleting |= {each: known.name for each, known in self.initialized.items() if each in topic_ids}
        initialized = {each: known for each, known in self.initialized.items() if each not in topic_ids}
        return replace(self, initialized=initialized, deleting=deleting)

    def forget_deleted(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Return a copy without these topics in phase deleting: the share coordinator has deleted their state."""
        return replace(self, deleting={each: name for each, name in self.deleting.items() if each not in topic_ids})

    def forget_topics(self, topic_ids: Collection[bytes]) -> StatePartitions:
        """Return a copy without deleted topics in any phase. The share coordinator drops their state by itself."""
        return StatePartitions(
            {each: known for each, known in self.initializing.items() if each not in topic_ids},
            {each: known for each, known in self.initialized.items() if each not in topic_ids},
            {each: name for each, name in self.deleting.items() if each not in topic_ids},
        )

    def mentions(self, topic_ids: Collection[bytes]) -> bool:
        """Return True if any of these topics is in some phase."""
        # Walks the shorter of the two: a group may have thousands of topics, and a shard thousands of groups.
        phases = (self.initializing.keys(), self.initialized.keys(), self.deleting.keys())
        return any(not phase.isdisjoint(topic_ids) for phase in phases)

    # ------------------------------------------------------------------ their record

    @classmethod
    def of_record(cls, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        return cls(
            _of_infos(value.initializing_topics),
            _of_infos(value.initialized_topics),
            {each.topic_id: each.topic_name for each in value.deleting_topics},
        )

    def record(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(self.initializing),
            initialized_topics=_infos(self.initialized),
            deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in self.deleting.items()],
        )


def united(topics: Topics, more: Topics) -> dict[bytes, KnownTopic]:
    """Return the union of `topics` and `more` by topic; names are those in `more`. Empty topics are left out."""
    found = dict(topics)
    for topic_id, known in more.items():
        before = found.get(topic_id)
        found[topic_id] = known if before is None else KnownTopic(known.name, before.partitions | known.partitions)
    return _present(found)


def without(topics: Topics, partitions: PartitionsByTopic) -> dict[bytes, KnownTopic]:
    """Return `topics` without `partitions`. Topics that have no partitions then are left out."""
    return _present(
        {
            topic_id: KnownTopic(known.name, known.partitions.difference(partitions.get(topic_id, ())))
            for topic_id, known in topics.items()
        }
    )


def _present(topics: Topics) -> dict[bytes, KnownTopic]:
    return {topic_id: known for topic_id, known in topics.items() if known.partitions}


def _of_infos(infos: Iterable[TopicPartitionsInfo]) -> dict[bytes, KnownTopic]:
    return {each.topic_id: KnownTopic(each.topic_name, frozenset(each.partitions)) for each in infos}


def _infos(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=known.name, partitions=sorted(known.partitions))
        for topic_id, known in topics.items()
    ]


# ---------------------------------------------------------------------- the group


class Member(NamedTuple):
    """Member of a share group, as described in its heartbeats."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]


class Position(NamedTuple):
    """Epochs and current assignment of a member."""

    epoch: int
    previous_epoch: int
    assigned: Assignment


NEW_MEMBER = Member(None, "", "", frozenset())
NEW_POSITION = Position(0, -1, NOTHING)


class ShareGroupState(ModernGroup[Member]):
    """State of a share group, without timers and effects."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.positions: dict[str, Position] = {}
        self.state_partitions: StatePartitions | None = None
        # Soft: the time at which the record of the share partitions came into force, and the version of the metadata for
        # which there was nothing to do.
        self.initializing_since_ms = 0
        self.fully_assigned_in_version: int | None = None
        self.all_begun_in_version: int | None = None

    @property
    def share_partitions(self) -> StatePartitions:
        return self.state_partitions or StatePartitions()

    @property
    def is_gone(self) -> bool:
        """True if the group has no records left."""
        return (
            self.metadata is None
            and self.target_metadata is None
            and self.state_partitions is None
            and not (self.members or self.positions or self.targets)
        )

    def position(self, member_id: str) -> Position:
        return self.positions.get(member_id, NEW_POSITION)

    # ------------------------------------------------------------------ records

    def value_of(self, key: Any) -> Any | None:
        """Return the value of the record with this key, ready to be written again; None if there is none."""
        match key:
            case ShareGroupMemberMetadataKey():
                member = self.members.get(key.member_id)
                return None if member is None else member_value(member)
            case ShareGroupCurrentMemberAssignmentKey():
                position = self.positions.get(key.member_id)
                return None if position is None else position_value(position)
            case ShareGroupTargetAssignmentMemberKey():
                target = self.targets.get(key.member_id)
                return None if target is None else target_value(target)
            case ShareGroupMetadataKey():
                return self.metadata
            case ShareGroupTargetAssignmentMetadataKey():
                return self.target_metadata
            case _:
                assert isinstance(key, ShareGroupStatePartitionMetadataKey)
                return None if self.state_partitions is None else self.state_partitions.record()

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Apply a record to the group's state."""
        key, value = record.key, record.value
        match key:
            case ShareGroupMemberMetadataKey():
                self._set_member(key.member_id, value)
            case ShareGroupCurrentMemberAssignmentKey():
                _put(self.positions, key.member_id, None if value is None else _position_of(value))
            case ShareGroupTargetAssignmentMemberKey():
                target = None if value is None else read_assignment(value.topic_partitions)
                self.set_target(key.member_id, target)
                self.fully_assigned_in_version = None
            case ShareGroupMetadataKey():
                self.replay_metadata(key, value)
            case ShareGroupTargetAssignmentMetadataKey():
                self.replay_target_metadata(key, value)
            case _:
                assert isinstance(key, ShareGroupStatePartitionMetadataKey)
                self.state_partitions = None if value is None else StatePartitions.of_record(value)
                self.initializing_since_ms = now_ms
                self.fully_assigned_in_version = self.all_begun_in_version = None

    def _set_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id, NEW_MEMBER)
        member = None if value is None else _member_of(value)
        _put(self.members, member_id, member)
        # A topic that is read as before keeps its place among the topics.
        self.subscriptions.by_name.add(() if member is None else member.topics)
        self.subscriptions.by_name.add(before.topics, -1)
        self.fully_assigned_in_version = self.all_begun_in_version = None


def _put(values: dict[str, Any], member_id: str, value: Any | None) -> None:
    if value is None:
        values.pop(member_id, None)
    else:
        values[member_id] = value


def _written(assignment: Assignment) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in assignment.items()
    ]


def member_value(member: Member) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )


def _member_of(value: ShareGroupMemberMetadataValue) -> Member:
    return Member(value.rack_id, value.client_id, value.client_host, frozenset(value.subscribed_topic_names))


def position_value(position: Position) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=position.epoch,
        previous_member_epoch=position.previous_epoch,
        state=STABLE_MEMBER,
        assigned_partitions=_written(position.assigned),
    )


def _position_of(value: ShareGroupCurrentMemberAssignmentValue) -> Position:
    return Position(value.member_epoch, value.previous_member_epoch, read_assignment(value.assigned_partitions))


def target_value(target: Assignment) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_written(target))


class ShareGroup(ShareGroupState, HostedGroup[Member]):
    """Share group that a shard hosts: its state and deadlines."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION,)

    def __init__(self, group_id: str, effects: Effects, keyed: KeyedState, settings_of: GroupSettingsSource) -> None:
        """`keyed`: the state to which the group's records are applied."""
        ShareGroupState.__init__(self, group_id)
        HostedGroup.__init__(self, effects, settings_of)
        self._keyed = keyed

    def put(self, key: Any, value: Any | None) -> None:
        """Append a record and apply it immediately; value None is a tombstone."""
        self._effects.put(self._keyed, KeyedRecord(key, value))

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    # ------------------------------------------------------------------ offsets, which share groups have elsewhere

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        # It has none, and Kafka answers as for a group that does not exist.
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        return None

    # ------------------------------------------------------------------ its end

    @property
    def is_forgettable(self) -> bool:
        # The offsets of a share group are with the share coordinator, and never expire.
        return False

    def delete(self) -> None:
        """Append tombstones of all records of the group; the last one is of the group's metadata record."""
        for member_id in list(self.positions):
            self.put(ShareGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member_id), None)
        for member_id in list(self.targets):
            self.put(ShareGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id), None)
        self.put(ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        for member_id in list(self.members):
            self.put(ShareGroupMemberMetadataKey(group_id=self.group_id, member_id=member_id), None)
        self.put(ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None)
        self.put(ShareGroupMetadataKey(group_id=self.group_id), None)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members), self.start_session)

    def start_session(self, member_id: str) -> None:
        self.schedule(SESSION, member_id, self.settings.share_session_timeout_ms)
