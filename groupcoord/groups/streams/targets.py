"""The target assignment of a streams group: when it is computed, and which records it takes.

It is computed when the group epoch is ahead of it, but not while joins are waited for after the group was empty
(streams.initial.rebalance.delay.ms), and not too soon after the last time (streams.assignment.interval.ms).

Kafka 4.4 has a place where warm-up tasks would be put between the target and what members are brought to. It puts none
there yet, and neither does Ottla: a task moves without warming up first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.groups.records import KeyedRecord
from ottla.groupcoord.groups.streams import records
from ottla.groupcoord.groups.streams.assignment import AssignableMember, AssignableSubtopology, Assignor
from ottla.groupcoord.groups.streams.internal_topics import ConfiguredTopology
from ottla.groupcoord.groups.streams.members import Member
from ottla.groupcoord.groups.streams.state import StreamsState
from ottla.groupcoord.groups.streams.sticky_assignor import StickyAssignor
from ottla.groupcoord.groups.streams.tasks import Tasks

ASSIGNORS: dict[str, Assignor] = {each.name: each for each in (StickyAssignor(),)}
DEFAULT_ASSIGNOR = StickyAssignor.name

NOTHING = Tasks()

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


def compute(
    state: StreamsState,
    changed: Member | None,
    configured: ConfiguredTopology,
    settings: GroupSettings,
) -> dict[str, Tasks]:
    """The target of every member, if the group has this changed member, too."""
    members = dict(state.members)
    if changed is not None:
        former = replaced_by(state, changed)
        if former is not None:
            del members[former]
        members[changed.member_id] = changed
    if not configured.is_ready:
        return dict.fromkeys(members, NOTHING)
    assert configured.subtopologies is not None
    return ASSIGNORS[DEFAULT_ASSIGNOR].assign(
        {member_id: _assignable(member, state) for member_id, member in members.items()},
        [
            AssignableSubtopology(name, each.task_count, each.is_stateful)
            for name, each in configured.subtopologies.items()
        ],
        settings.streams_num_standby_replicas,
    )


def _assignable(member: Member, state: StreamsState) -> AssignableMember:
    positions = state.positions.get(member.member_id)
    offsets = {} if positions is None else positions.offsets
    return AssignableMember(member.process_id, member.assigned.active.keys(), member.assigned.standby, offsets)


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
