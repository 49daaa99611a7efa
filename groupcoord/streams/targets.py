"""The target assignment of a streams group: its computation and its records.

It is computed when the group epoch is ahead of it, but not while joins are waited for after the group was empty
(streams.initial.rebalance.delay.ms), and not too soon after the last time (streams.assignment.interval.ms). A large one is
computed in a thread. Until the result is there the group goes on with the targets that it has.

Kafka 4.4 could put warm-up tasks between the target and the assignments of members. It does not yet, and neither does
Ottla: a task moves without warming up first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.groupcoord.effects import Effects, Steps
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.modern.group import put_targets
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.assignor import AssignableMember, AssignableSubtopology, StickyAssignor
from ottla.groupcoord.streams.group import StreamsState, TaskPositions
from ottla.groupcoord.streams.internal_topics import ConfiguredTopology
from ottla.groupcoord.streams.members import Member, Tasks

ASSIGNOR = StickyAssignor()
"""The only one that Kafka 4.4 has for streams groups."""

NOTHING = Tasks()

SIZE_AT_ONCE = 1_000
"""A larger assignment takes more than some milliseconds, and is computed in a thread."""

NUM_STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"
"""Names under which a group's record keeps the settings of its last assignment."""


def assignment_configs(settings: GroupSettings) -> dict[str, str]:
    """Return the settings on which an assignment depends. If one changes, another assignment is needed."""
    configs = {NUM_STANDBY_REPLICAS: str(settings.streams_num_standby_replicas)}
    if settings.streams_rack_aware_assignment_tags:
        configs[RACK_AWARE_ASSIGNMENT_TAGS] = ",".join(settings.streams_rack_aware_assignment_tags)
    return configs


def target_in_force(state: StreamsState, member: Member) -> Tasks:
    """Return the member's current target. If it replaces a static member, it has that member's target."""
    replaced = replaced_by(state, member)
    return state.targets.get(member.member_id if replaced is None else replaced, NOTHING)


def replaced_by(state: StreamsState, member: Member) -> str | None:
    """Return the id of the static member that this member replaces, or None."""
    former = None if member.instance_id is None else state.static_members.get(member.instance_id)
    return None if former == member.member_id else former


class AssignmentInput(NamedTuple):
    """Input of a target assignment. It is immutable, so that a thread may use it."""

    members: Mapping[str, Member]
    positions: Mapping[str, TaskPositions]
    subtopologies: Sequence[AssignableSubtopology]
    standby_replicas: int

    @property
    def is_small(self) -> bool:
        """True if one step can compute the targets: few members, reported offsets and tasks (with standby tasks)."""
        tasks = sum([each.task_count for each in self.subtopologies]) * (1 + self.standby_replicas)
        if len(self.members) + tasks > SIZE_AT_ONCE:
            return False
        return len(self.members) + tasks + sum([len(each.offsets) for each in self.positions.values()]) <= SIZE_AT_ONCE

    def targets(self) -> dict[str, Tasks]:
        """Compute the target of every member; return the targets by member id."""
        members = {member_id: self._assignable(member) for member_id, member in self.members.items()}
        return ASSIGNOR.assign(members, self.subtopologies, self.standby_replicas)

    def _assignable(self, member: Member) -> AssignableMember:
        positions = self.positions.get(member.member_id)
        offsets = {} if positions is None else positions.offsets
        return AssignableMember(member.process_id, member.assigned.active.keys(), member.assigned.standby, offsets)


class StreamsAssignmentComputed(NamedTuple):
    """Internal request with a target assignment that a thread has computed; `targets` is None if it failed."""

    group_id: str
    computation: object
    """The group's `computation`, if the result is still wanted."""
    epoch: int
    members: Mapping[str, Member]
    """The members that it was computed for."""
    targets: Mapping[str, Tasks] | None


def assignment_input(
    state: StreamsState,
    changed: Member | None,
    configured: ConfiguredTopology,
    settings: GroupSettings,
) -> AssignmentInput:
    """Return the input of the next assignment.

    `changed` is a member that takes the place of its former state, or of a static member; None: all are as in `state`.
    """
    members = dict(state.members)
    if changed is not None:
        former = replaced_by(state, changed)
        if former is not None:
            del members[former]
        members[changed.member_id] = changed
    # While a topic is missing there are no tasks.
    subtopologies = configured.subtopologies if configured.is_ready else {}
    assert subtopologies is not None
    return AssignmentInput(
        members,
        dict(state.positions),
        [AssignableSubtopology(name, each.task_count, each.is_stateful) for name, each in subtopologies.items()],
        settings.streams_num_standby_replicas,
    )


def compute(state: StreamsState, given: AssignmentInput, epoch: int, effects: Effects) -> dict[str, Tasks] | None:
    """Return the targets of all members by id; None if the input is large.

    Then a thread computes them, and submits `StreamsAssignmentComputed` to the shard.
    """
    if given.is_small:
        return given.targets()
    state.computation = object()
    done = partial(StreamsAssignmentComputed, state.group_id, state.computation, epoch, given.members)
    effects.compute(given.targets, done)
    return None


def put_computed(
    state: StreamsState, computed: StreamsAssignmentComputed, targets: Mapping[str, Tasks], effects: Effects
) -> Steps:
    """Write and apply targets that a thread has computed. The caller writes their epoch afterwards."""

    def of_present_members() -> Iterator[tuple[str, Tasks]]:
        for member_id, target in targets.items():
            if member_id not in state.members:
                # A static member that has come back meanwhile goes by another id.
                member_id = state.static_members.get(computed.members[member_id].instance_id or "", member_id)
            if member_id in state.members:
                yield member_id, target

    return put_targets(
        effects, state, of_present_members(), partial(records.target_record, state.group_id), records.target_of
    )


def target_records(
    state: StreamsState, changed: Member | None, targets: Mapping[str, Tasks], epoch: int, timestamp_ms: int
) -> Iterator[KeyedRecord]:
    """Yield the records of targets that differ from the current ones, and then the record of the target epoch."""
    former = None if changed is None else replaced_by(state, changed)
    for member_id, target in targets.items():
        if changed is not None and member_id == changed.member_id and former is not None:
            known = state.targets.get(former)
        else:
            known = state.targets.get(member_id)
        if known != target:
            yield records.target_record(state.group_id, member_id, target)
    yield records.assignment_epoch_record(state.group_id, epoch, timestamp_ms)
