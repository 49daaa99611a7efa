"""A share group as its records have it: members, epochs, the target assignment, and what the share coordinator knows.

    Empty     nobody is in
    Stable    somebody is: nobody ever waits for others, because partitions are shared

It is always what its records make of nothing, in living memory too (`replay` is the only writer). What is called soft is in
no record; it may be lost.

Invariants: those of `ModernGroup`, and those of `initialization.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.groupcoord.modern.assignor import NOTHING, Assignment, read_assignment
from ottla.groupcoord.modern.group import ModernGroup
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.share.initialization import StatePartitions
from ottla.groupcoord.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartitions,
)

STABLE_MEMBER = 0
"""A member of a share group gives nothing back before it gets something, so it has this state only."""


class Member(NamedTuple):
    """What a member has said of itself."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]


class Position(NamedTuple):
    """What a member has heard: its epochs, and what it may read."""

    epoch: int
    previous_epoch: int
    assigned: Assignment


NEW_MEMBER = Member(None, "", "", frozenset())
NEW_POSITION = Position(0, -1, NOTHING)


class ShareGroupState(ModernGroup[Member]):
    """See the module's docstring."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.positions: dict[str, Position] = {}
        self.state_partitions: StatePartitions | None = None
        # Soft: when the record of the share partitions came into force, and for which version of the cluster's topics
        # nothing was found to do.
        self.initializing_since_ms = 0
        self.fully_assigned_in_version: int | None = None
        self.all_begun_in_version: int | None = None

    @property
    def share_partitions(self) -> StatePartitions:
        return self.state_partitions or StatePartitions()

    @property
    def is_gone(self) -> bool:
        """Whether no record says anything of the group."""
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
        """The record's value that is in force for a key."""
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
        """Put a record in force."""
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
        # What is read as before keeps its place among the topics.
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
