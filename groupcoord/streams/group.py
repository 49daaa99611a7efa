"""A streams group: its state, its offsets and its deadlines. `replay` is the only writer of recorded state.

    Empty         has no members
    NotReady      the topics are not as the topology needs them, so there are no tasks
    Assigning     the group's epoch is ahead of the target assignment's: it has to be computed anew
    Reconciling   the target assignment is there, and some member is not there yet
    Stable        every member has the tasks of the target assignment

The epochs are those of `modern/group.py`; settings raise the group's epoch, too. A member's epoch lags behind while it has
to give up tasks.

Some state is in no record, and a new coordinator does without: the topology checked against the topics (`configured`),
the reported positions of tasks, the member that asked the application to shut down, and the endpoints for queries.

Invariants: those of `EpochGroup`. The owner of a task is always the one that the members' records name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.group import FIRST_EPOCH, LEAVE_EPOCH, CommittingGroup, EpochGroup
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.internal_topics import ConfiguredTopology
from ottla.groupcoord.streams.members import NOTHING_ASSIGNED, Member, MemberState, Task, TaskHolders, Tasks
from ottla.groupcoord.streams.records import (
    NO_EPOCH,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from ottla.groupcoord.streams.topology import Topology
from ottla.wire.messages.streams_group import EndpointToPartitions

EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = "Empty", "NotReady", "Assigning", "Reconciling", "Stable"

GROUP_TYPE = "streams"
SESSION, REVOCATION = "streams-session", "streams-revocation"
FIRST_ASSIGNMENT = "streams-first-assignment"
"""Kinds of timers: of a member's session; of its revocation of tasks; of the group's first assignment."""


@dataclass(slots=True)
class TaskPositions:
    """Offsets and end offsets of the task states on a member's disk, as the member last reported them."""

    offsets: dict[Task, int] = field(default_factory=dict)
    end_offsets: dict[Task, int] = field(default_factory=dict)


class StreamsState(EpochGroup[Member, Tasks]):
    """State of a streams group, without timers and effects."""

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
        """Partitions about which each member answers queries, in the form of a heartbeat's response."""
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
        """Settings on which the current target assignment was based."""
        return {each.key: each.value for each in self.metadata.last_assignment_configs or ()}

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state."""
        # Computed when it is read, because that may take a look at all members.
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
        """Return the value of the record with this key, ready to be written again; None if there is none."""
        return self._readers[type(key)](key)

    def replay(self, record: GroupRecord) -> None:
        """Apply a record to the group's state. The manager handles the group's last tombstone."""
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
        """Return the member with this id, or a new empty one."""
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
        """Remove the member from the indexes of task holders, static members and source partitions."""
        self.source_partitions.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self.holders.remove(member)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]


class StreamsGroup(StreamsState, CommittingGroup[Member]):
    """Streams group that a shard hosts: its state and deadlines."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION, REVOCATION)

    def __init__(
        self, group_id: str, effects: Effects, settings_of: GroupSettingsSource, end: Callable[[StreamsGroup], None]
    ) -> None:
        """`end` deletes the group, which must have no members then."""
        StreamsState.__init__(self, group_id)
        CommittingGroup.__init__(self, effects, settings_of)
        self._end = end

    # ------------------------------------------------------------------ offsets

    def epoch_of(self, member: Member) -> int:
        return member.member_epoch

    def may_commit(self, member: Member, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        """Return True if the member has kept the task of this source partition since `epoch`, or longer."""
        if self.topology is None:
            return False
        task = Task(self.topology.subtopology_of_source.get(topic, ""), partition)
        since = member.assigned.active.get(task)
        if since is None:
            since = member.pending_revocation.active.get(task)
        return since is not None and since <= epoch

    def is_subscribed_to(self, topic: str) -> bool:
        if not self.members or self.topology is None:
            return False
        return topic in self.topology.subtopology_of_source

    def delete(self) -> None:
        self._end(self)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members.values()), self._start_deadlines)

    def _start_deadlines(self, member: Member) -> None:
        self.start_session(member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            self.await_revocation(member)

    def start_session(self, member_id: str) -> None:
        """Restart the member's session timeout."""
        self.schedule(SESSION, member_id, self.settings.streams_session_timeout_ms)

    def await_revocation(self, member: Member) -> None:
        """Start the time that the member has to revoke tasks in its current epoch: its rebalance timeout."""
        self.rebalance_epochs[member.member_id] = member.member_epoch
        self.schedule(REVOCATION, member.member_id, member.rebalance_timeout_ms)

    def cancel_revocation(self, member_id: str) -> None:
        epoch = self.rebalance_epochs.pop(member_id, None)
        if epoch is not None:
            self._effects.restore_if_refused(partial(self.rebalance_epochs.setdefault, member_id, epoch))
        self.cancel(REVOCATION, member_id)

    def delay_assignment(self) -> None:
        """Start the delay of the first assignment, in which more members may join. No-op if it is running."""
        delay_ms = self.settings.streams_initial_rebalance_delay_ms
        if delay_ms > 0:
            self.schedule_if_absent(FIRST_ASSIGNMENT, "", delay_ms)

    def cancel_timers(self) -> None:
        super().cancel_timers()
        self.cancel(FIRST_ASSIGNMENT, "")
