"""The state of one streams group. `replay` is the only writer of what is in records.

    Empty         nobody is in
    NotReady      the topics are not as the topology needs them, so there are no tasks
    Assigning     the group's epoch is ahead of the target assignment's: it has to be computed anew
    Reconciling   the target assignment is there, and some member is not there yet
    Stable        every member has the tasks of the target assignment

The epochs are those of `modern/group.py`; settings raise the group's epoch, too. A member's epoch lags behind while it has
to give up tasks.

Beside its records a group has what a new coordinator does without: the topology held against the topics (`configured`),
the positions of tasks that members told, who wants the application to stop, and where queries are answered.

Invariants: those of `EpochGroup`. Who has a task is always what the members' records say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.groupcoord.modern.group import FIRST_EPOCH, LEAVE_EPOCH, EpochGroup
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.holders import TaskHolders
from ottla.groupcoord.streams.internal_topics import ConfiguredTopology
from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.tasks import NOTHING_ASSIGNED, Task, Tasks
from ottla.groupcoord.streams.topology import Topology
from ottla.groupcoord.streams.values import (
    NO_EPOCH,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from ottla.wire.messages.streams_group_heartbeat import EndpointToPartitions

EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = "Empty", "NotReady", "Assigning", "Reconciling", "Stable"


@dataclass(slots=True)
class TaskPositions:
    """How far the states of tasks on a member's disk are, and where they end, as the member last told."""

    offsets: dict[Task, int] = field(default_factory=dict)
    end_offsets: dict[Task, int] = field(default_factory=dict)


class StreamsState(EpochGroup[Member, Tasks]):
    """See the module's docstring."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.metadata: StreamsGroupMetadataValue = records.metadata_value(
            FIRST_EPOCH, 0, NO_EPOCH, {}, NO_EPOCH, NO_EPOCH
        )
        self.topology: Topology | None = None
        self.static_members: dict[str, str] = {}
        self.holders = TaskHolders()
        self._state_name: str | None = EMPTY
        # In no record:
        self.configured: ConfiguredTopology | None = None
        self.positions: dict[str, TaskPositions] = {}
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.source_partitions: dict[str, EndpointToPartitions] = {}
        """Which partitions members answer queries about, as all others are told."""
        self.rebalance_epochs: dict[str, int] = {}
        self._readers: dict[type, Callable[[Any], Any]] = {
            StreamsGroupMetadataKey: self.metadata_value,
            StreamsGroupTopologyKey: lambda _: None if self.topology is None else self.topology.value,
            StreamsGroupTargetAssignmentMetadataKey: self.target_metadata_value,
            StreamsGroupTargetAssignmentMemberKey: self._target_value,
            StreamsGroupMemberMetadataKey: self._member_value,
            StreamsGroupCurrentMemberAssignmentKey: self._current_value,
        }
        self._writers: dict[type, Callable[[Any, Any], None]] = {
            StreamsGroupMetadataKey: self.replay_metadata,
            StreamsGroupTopologyKey: lambda _, value: self._replay_topology(value),
            StreamsGroupTargetAssignmentMetadataKey: self.replay_target_metadata,
            StreamsGroupTargetAssignmentMemberKey: self._replay_target,
            StreamsGroupMemberMetadataKey: self._replay_member,
            StreamsGroupCurrentMemberAssignmentKey: self._replay_current,
        }

    # ------------------------------------------------------------------ reads

    @property
    def topology_epoch(self) -> int:
        return NO_EPOCH if self.topology is None else self.topology.epoch

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The settings for which the target assignment was computed."""
        return {each.key: each.value for each in self.metadata.last_assignment_configs or ()}

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        # Found out when somebody asks, because it may mean a look at all members.
        if self._state_name is None:
            self._state_name = self._find_state()
        return self._state_name

    def _find_state(self) -> str:
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.metadata.validated_topology_epoch:
            return NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return STABLE
        return RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    # ------------------------------------------------------------------ records

    def value_of(self, key: Any) -> Any | None:
        """The value in force for a key."""
        return self._readers[type(key)](key)

    def replay(self, record: GroupRecord) -> None:
        """Put a record in force. The end of the group itself is for whoever keeps the groups."""
        self._writers[type(record.key)](record.key, record.value)
        self._state_name = None
        if not self.members:
            self.shutdown_member_id = None

    def _target_value(self, key: StreamsGroupTargetAssignmentMemberKey) -> Any | None:
        target = self.targets.get(key.member_id)
        return None if target is None else records.target_value(target)

    def _member_value(self, key: StreamsGroupMemberMetadataKey) -> Any | None:
        member = self.members.get(key.member_id)
        return None if member is None else records.member_value(member)

    def _current_value(self, key: StreamsGroupCurrentMemberAssignmentKey) -> Any | None:
        member = self.members.get(key.member_id)
        return None if member is None else records.current_value(member)

    def _replay_topology(self, value: Any | None) -> None:
        self.topology = None if value is None else Topology(value)

    def _replay_target(self, key: StreamsGroupTargetAssignmentMemberKey, value: Any | None) -> None:
        self.set_target(key.member_id, None if value is None else records.target_of(value))

    def _replay_member(self, key: StreamsGroupMemberMetadataKey, value: Any | None) -> None:
        if value is None:
            self._remove(key.member_id)
        else:
            self._put(records.with_metadata(self._member(key.member_id), value))

    def _replay_current(self, key: StreamsGroupCurrentMemberAssignmentKey, value: Any | None) -> None:
        if value is not None:
            self._put(records.with_current(self._member(key.member_id), value))
        elif key.member_id in self.members:
            member = self.members[key.member_id]
            self._put(
                replace(
                    member,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NOTHING_ASSIGNED,
                    pending_revocation=NOTHING_ASSIGNED,
                )
            )

    # ------------------------------------------------------------------ members

    def _member(self, member_id: str) -> Member:
        """The member, or one of whom nothing is known yet."""
        return self.members.get(member_id) or Member(member_id)

    def _put(self, member: Member) -> None:
        self._forget(member.member_id)
        self.members[member.member_id] = member
        self.holders.add(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _remove(self, member_id: str) -> None:
        self._forget(member_id)
        self.members.pop(member_id, None)
        self.positions.pop(member_id, None)
        self.rebalance_epochs.pop(member_id, None)

    def _forget(self, member_id: str) -> None:
        """Take out what is kept of a member in other places."""
        self.source_partitions.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self.holders.remove(member)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]
