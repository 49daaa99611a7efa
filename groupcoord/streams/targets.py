"""The target assignment of a streams group: when it is computed, and which records it takes.

It is computed when the group epoch is ahead of it, but not while joins are waited for after the group was empty
(streams.initial.rebalance.delay.ms), and not too soon after the last time (streams.assignment.interval.ms). A large one is
computed in a thread. Until the result is there the group goes on with the targets that it has.

Kafka 4.4 has a place where warm-up tasks would be put between the target and what members are brought to. It puts none
there yet, and neither does Ottla: a task moves without warming up first.
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
from ottla.groupcoord.streams.assignment import AssignableMember, AssignableSubtopology, Assignor
from ottla.groupcoord.streams.internal_topics import ConfiguredTopology
from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.state import StreamsState, TaskPositions
from ottla.groupcoord.streams.sticky_assignor import StickyAssignor
from ottla.groupcoord.streams.tasks import Tasks

ASSIGNORS: dict[str, Assignor] = {each.name: each for each in (StickyAssignor(),)}
DEFAULT_ASSIGNOR = StickyAssignor.name

NOTHING = Tasks()

SIZE_AT_ONCE = 1_000
"""A larger assignment takes more than some milliseconds."""

NUM_STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"
"""By these names a group's record keeps what its assignment was computed for."""


def assignment_configs(settings: GroupSettings) -> dict[str, str]:
    """The settings that an assignment depends on: the members get another one if they change."""
    configs = {NUM_STANDBY_REPLICAS: str(settings.streams_num_standby_replicas)}
    if settings.streams_rack_aware_assignment_tags:
        configs[RACK_AWARE_ASSIGNMENT_TAGS] = ",".join(settings.streams_rack_aware_assignment_tags)
    return configs


def target_in_force(state: StreamsState, member: Member) -> Tasks:
    """The target of a member; one that takes the place of a static member has that one's."""
    replaced = replaced_by(state, member)
    return state.targets.get(member.member_id if replaced is None else replaced, NOTHING)


def replaced_by(state: StreamsState, member: Member) -> str | None:
    """The id of the static member whose place this one takes, if it does."""
    former = None if member.instance_id is None else state.static_members.get(member.instance_id)
    return None if former == member.member_id else former


class Question(NamedTuple):
    """What a target assignment is made of. Nothing of it changes afterwards, so that it may be answered in a thread."""

    members: Mapping[str, Member]
    positions: Mapping[str, TaskPositions]
    subtopologies: Sequence[AssignableSubtopology]
    standby_replicas: int

    @property
    def is_small(self) -> bool:
        """Whether members, what they have told of tasks, and the tasks with their copies are few enough for one step."""
        tasks = sum([each.task_count for each in self.subtopologies]) * (1 + self.standby_replicas)
        if len(self.members) + tasks > SIZE_AT_ONCE:
            return False
        return len(self.members) + tasks + sum([len(each.offsets) for each in self.positions.values()]) <= SIZE_AT_ONCE

    def answer(self) -> dict[str, Tasks]:
        """The target of every member."""
        members = {member_id: self._assignable(member) for member_id, member in self.members.items()}
        return ASSIGNORS[DEFAULT_ASSIGNOR].assign(members, self.subtopologies, self.standby_replicas)

    def _assignable(self, member: Member) -> AssignableMember:
        positions = self.positions.get(member.member_id)
        offsets = {} if positions is None else positions.offsets
        return AssignableMember(member.process_id, member.assigned.active.keys(), member.assigned.standby, offsets)


class StreamsAssignmentComputed(NamedTuple):
    """The request with a target assignment that was computed beside the loop; None: it could not be."""

    group_id: str
    computation: object
    """That of the group, if the result is still wanted."""
    epoch: int
    members: Mapping[str, Member]
    """Those that it was computed for."""
    targets: Mapping[str, Tasks] | None


def question(
    state: StreamsState,
    changed: Member | None,
    configured: ConfiguredTopology,
    settings: GroupSettings,
) -> Question:
    """What the target of every member depends on, if the group has this changed member, too."""
    members = dict(state.members)
    if changed is not None:
        former = replaced_by(state, changed)
        if former is not None:
            del members[former]
        members[changed.member_id] = changed
    # Without topics as it needs them there are no tasks.
    subtopologies = configured.subtopologies if configured.is_ready else {}
    assert subtopologies is not None
    return Question(
        members,
        dict(state.positions),
        [AssignableSubtopology(name, each.task_count, each.is_stateful) for name, each in subtopologies.items()],
        settings.streams_num_standby_replicas,
    )


def compute(state: StreamsState, asked: Question, epoch: int, effects: Effects) -> dict[str, Tasks] | None:
    """The target of every member; None: it takes long, and comes as a request."""
    if asked.is_small:
        return asked.answer()
    state.computation = object()
    done = partial(StreamsAssignmentComputed, state.group_id, state.computation, epoch, asked.members)
    effects.compute(asked.answer, done)
    return None


def put_computed(
    state: StreamsState, computed: StreamsAssignmentComputed, targets: Mapping[str, Tasks], effects: Effects
) -> Steps:
    """Put targets in force that were computed in a thread; their epoch is for the caller to put."""

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
    """What has to be written for new targets: those that are not in force already, and their epoch."""
    former = None if changed is None else replaced_by(state, changed)
    for member_id, target in targets.items():
        if changed is not None and member_id == changed.member_id and former is not None:
            known = state.targets.get(former)
        else:
            known = state.targets.get(member_id)
        if known != target:
            yield records.target_record(state.group_id, member_id, target)
    yield records.assignment_epoch_record(state.group_id, epoch, timestamp_ms)
