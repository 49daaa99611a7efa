"""The heartbeat of a member that joins or stays: five steps, as in Kafka.

1. Find the member, and take over its description.
2. Take over the topology if the group has none.
3. Check the topology against the topics, if it or they have changed.
4. If something changed, the group gets a new epoch, and soon a new target assignment.
5. Bring the member a step nearer to its target.

The records are computed first, from the state as it is, and put in force only then: a request that is refused on the
way changes nothing of the group but `configured`.

The group gets a new epoch for a new member, or a changed one (of a static one only its topology, rack, process or tags);
a group without topology; topics that changed; a topology that has become ready, or is no longer; other settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.groupcoord.effects import Effects
from ottla.groupcoord.group import IS_NEW, TOPICS_HAVE_CHANGED, member_reason, note_rebalance
from ottla.groupcoord.modern.group import JOIN_EPOCH, NEVER
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.streams import records
from ottla.groupcoord.streams.describing import task_ids
from ottla.groupcoord.streams.group import FIRST_ASSIGNMENT, StreamsGroup, StreamsState, TaskPositions
from ottla.groupcoord.streams.heartbeat_checks import check_group_size, member_of, named_tasks, owned_tasks
from ottla.groupcoord.streams.internal_topics import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    InternalTopic,
    PartitionCount,
    configure,
)
from ottla.groupcoord.streams.members import Endpoint, Member, MemberState, Task, Tasks, by_subtopology
from ottla.groupcoord.streams.reconciliation import reconcile
from ottla.groupcoord.streams.records import NO_EPOCH
from ottla.groupcoord.streams.targets import (
    assignment_configs,
    assignment_input,
    compute,
    replaced_by,
    target_in_force,
    target_records,
)
from ottla.groupcoord.streams.topology import Status, Topology, source_topics, topology_of
from ottla.groupcoord.topic_images import TopicImages, hash_of_topics
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import streams_group as wire
from ottla.wire.messages.streams_group import (
    EndpointToPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopicPartition,
)

HAS_CHANGED = "says other things of itself"
OTHER_TOPOLOGY = "its topology has become ready or is no longer, or its settings have changed"

TAGS_STATUS_VERSION = 1
"""Older clients fail on a status that they do not know."""


class HeartbeatResult(NamedTuple):
    """Result of a heartbeat: the response, the records to write, and the internal topics to create."""

    response: StreamsGroupHeartbeatResponse
    written: list[KeyedRecord]
    missing_topics: Sequence[InternalTopic]


class Heartbeat:
    """One heartbeat that is processed in numbered steps."""

    def __init__(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        caller: Caller,
        *,
        is_new_group: bool,
        topics: TopicImages,
        effects: Effects,
    ) -> None:
        self._state = group
        self._request = request
        self._caller = caller
        self._is_new_group = is_new_group
        self._settings = group.settings
        self._topics = topics
        self._effects = effects
        self._timestamp_ms = effects.timestamp_ms
        self._size_max = effects.config.group_streams_max_size
        self._is_joining = request.member_epoch == JOIN_EPOCH
        self._owned = owned_tasks(request)
        self._written: list[KeyedRecord] = []
        self._status: list[tuple[Status, str]] = []

    def answer(self) -> HeartbeatResult:
        """Process the heartbeat and return the result. Raises KafkaError if the request is refused."""
        if self._is_joining:
            check_group_size(self._state, self._request, self._size_max)
        before = member_of(self._state, self._request, self._written)
        member = self._described(before)
        change = self._write_member(before, member)
        topology = self._topology()
        self._add_stale_topology_status(member)
        metadata_hash = self._configured_for(topology)
        configured = self._state.configured
        assert configured is not None
        self._take_positions(configured)
        epoch = self._epoch(configured, metadata_hash, change)
        self._delay_first_assignment()
        assignment_epoch, target = self._target(epoch, member, configured)
        reconciled = reconcile(member, assignment_epoch, target, self._state.holders, self._owned)
        self._write_current(member, reconciled)
        return HeartbeatResult(self._response(before, reconciled, configured), self._written, configured.missing)

    # ------------------------------------------------------------------ 1. the member

    def _described(self, member: Member) -> Member:
        """Return the member with the request's fields. Absent fields stay, but a join without endpoint clears it."""
        request = self._request
        endpoint = member.user_endpoint
        if request.user_endpoint is not None:
            endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
        elif self._is_joining:
            endpoint = None
        tags = member.client_tags
        if request.client_tags is not None:
            tags = {tag.key: tag.value for tag in request.client_tags}
        timeout_ms = request.rebalance_timeout_ms
        return replace(
            member,
            instance_id=_given(request.instance_id, member.instance_id),
            rack_id=_given(request.rack_id, member.rack_id),
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
            client_id=self._caller.client_id,
            client_host=self._caller.client_host,
            process_id=member.process_id if request.process_id is None else request.process_id,
            user_endpoint=endpoint,
            client_tags=tags,
        )

    def _write_member(self, before: Member, member: Member) -> str:
        """Write the member if it has changed. Return the reason for a new group epoch; "" if none is needed."""
        if member == before:
            return ""
        self._written.append(records.member_record(self._state.group_id, member))
        instance_id, state = self._request.instance_id, self._state
        is_new = before.member_id not in state.members and (
            instance_id is None or state.static_member(instance_id) is None
        )
        change = member_reason(member.member_id, IS_NEW if is_new else HAS_CHANGED)
        if instance_id is None:
            return change
        # A static member that comes back under another id takes its tasks with it.
        is_other = (before.topology_epoch, before.rack_id, before.client_tags, before.process_id) != (
            member.topology_epoch,
            member.rack_id,
            member.client_tags,
            member.process_id,
        )
        return change if is_other else ""

    # ------------------------------------------------------------------ 2. the topology

    def _topology(self) -> Topology:
        known, given = self._state.topology, self._request.topology
        if given is None:
            if known is None:
                # The group has had the one of its first member, but its record was lost.
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return known
        topology = topology_of(given)
        if known is None:
            self._written.append(records.topology_record(self._state.group_id, topology.value))
            return topology
        if known.epoch <= topology.epoch and not known.is_same(topology):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def _add_stale_topology_status(self, member: Member) -> None:
        known = self._state.topology_epoch
        if member.topology_epoch < known:
            detail = (
                f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {known}."
            )
            self._add_status(Status.STALE_TOPOLOGY, detail)

    # ------------------------------------------------------------------ 3. the topics

    def _configured_for(self, topology: Topology) -> int:
        """Check the topology against the existing topics if either is new. Return the hash of the topology's topics."""
        state = self._state
        known = state.metadata_hash
        if state.topology is not None and state.configured is not None and state.has_seen(self._topics):
            return known
        found = hash_of_topics(self._topics.image(name) for name in sorted(topology.required_topics))
        if state.topology is None or state.configured is None or found != known:
            state.configured = configure(topology, self._partition_count)
            state.source_partitions.clear()
        # Until the new hash is in force, every heartbeat looks again.
        state.seen_topics = self._topics.version if found == known else NEVER
        return found

    def _partition_count(self, name: str) -> int | None:
        image = self._topics.image(name)
        return None if image is None else image.partition_count

    def _take_positions(self, configured: ConfiguredTopology) -> None:
        """Store the task offsets that the member reports. Raises KafkaError if the request names unknown tasks."""
        request = self._request
        if configured.is_ready:
            self._check_tasks(configured)
        offsets, ends = _offsets(request.task_offsets), _offsets(request.task_end_offsets)
        # While the topology is not ready there are no tasks, and offsets from unknown members are not kept.
        if (offsets is None and ends is None) or not configured.is_ready:
            return
        known = self._state.positions.get(request.member_id, TaskPositions())
        self._state.positions[request.member_id] = TaskPositions(
            known.offsets if offsets is None else _existing(offsets, configured),
            known.end_offsets if ends is None else _existing(ends, configured),
        )

    def _check_tasks(self, configured: ConfiguredTopology) -> None:
        assert configured.subtopologies is not None
        for tasks in named_tasks(self._request):
            subtopology = configured.subtopologies.get(tasks.subtopology_id)
            if subtopology is None:
                message = f"Subtopology {tasks.subtopology_id} does not exist in the topology."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            for number in tasks.partitions:
                if not 0 <= number < subtopology.task_count:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {number} for subtopology {tasks.subtopology_id} is invalid. "
                        f"Number of tasks for this subtopology: {subtopology.task_count}",
                    )

    # ------------------------------------------------------------------ 4. epochs and target

    def _epoch(self, configured: ConfiguredTopology, metadata_hash: int, change: str) -> int:
        """Return the group epoch, after raising it if needed.

        `change`: why this member needs a new assignment; "" if it needs none.
        """
        state = self._state
        validated = configured.epoch if configured.is_ready else NO_EPOCH
        configs = assignment_configs(self._settings)
        if not (
            change
            or metadata_hash != state.metadata_hash
            or validated != state.metadata.validated_topology_epoch
            or configs != state.assignment_configs
        ):
            return state.group_epoch
        known = state.metadata
        value = records.metadata_value(
            known.epoch + 1,
            metadata_hash,
            validated,
            configs,
            known.stored_description_topology_epoch,
            known.failed_description_topology_epoch,
        )
        self._written.append(records.metadata_record(state.group_id, value))
        if not change:
            change = TOPICS_HAVE_CHANGED if metadata_hash != state.metadata_hash else OTHER_TOPOLOGY
        note_rebalance(self._effects, state, value.epoch, change)
        return value.epoch

    def _delay_first_assignment(self) -> None:
        """Delay the first assignment of an empty group, so that it includes members that join soon."""
        if not self._state.members:
            self._state.delay_assignment()

    def _target(self, epoch: int, member: Member, configured: ConfiguredTopology) -> tuple[int, Tasks]:
        """Return the target's epoch and the member's target, after computing the target assignment if it is due."""
        state, settings = self._state, self._settings
        if state.is_scheduled(FIRST_ASSIGNMENT, ""):
            self._add_status(
                Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
            )
            return state.assignment_epoch, Tasks()
        if state.assignment_epoch >= epoch:
            return state.assignment_epoch, target_in_force(state, member)
        if not state.may_assign(settings.streams_assignment_interval_ms, self._timestamp_ms):
            self._add_status(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
            return state.assignment_epoch, target_in_force(state, member)
        if state.computation is not None:
            return state.assignment_epoch, target_in_force(state, member)
        targets = compute(state, assignment_input(state, member, configured, settings), epoch, self._effects)
        if targets is None:
            return state.assignment_epoch, target_in_force(state, member)
        self._written += target_records(state, member, targets, epoch, self._timestamp_ms)
        return epoch, targets[member.member_id]

    # ------------------------------------------------------------------ 5. the member's step

    def _write_current(self, member: Member, reconciled: Member) -> None:
        """Write the member's reconciliation step. Restart its session timeout, and its time to revoke if needed."""
        state = self._state
        if reconciled is not member and reconciled != member:
            self._written.append(records.current_record(state.group_id, reconciled))
            if reconciled.state is MemberState.UNREVOKED_TASKS:
                state.await_revocation(reconciled)
            else:
                state.cancel_revocation(reconciled.member_id)
        state.start_session(reconciled.member_id)

    # ------------------------------------------------------------------ the answer

    def _response(
        self, before: Member, member: Member, configured: ConfiguredTopology
    ) -> StreamsGroupHeartbeatResponse:
        settings = self._settings
        response = StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=settings.streams_heartbeat_interval_ms,
            task_offset_interval_ms=settings.streams_task_offset_interval_ms,
            acceptable_recovery_lag=settings.streams_acceptable_recovery_lag,
            status=[],
            endpoint_information_epoch=0,
        )
        has_other_tasks = before.assigned != member.assigned
        if self._is_joining or has_other_tasks or self._missed_its_tasks(member):
            response.active_tasks = task_ids(member.assigned.active)
            response.standby_tasks = task_ids(member.assigned.standby)
            response.warmup_tasks = task_ids(member.assigned.warmup)
        self._add_endpoints(response, before, member, has_other_tasks)
        self._add_group_status(member, configured)
        response.status = [wire.Status(status_code=code, status_detail=detail) for code, detail in self._status]
        return response

    def _missed_its_tasks(self, member: Member) -> bool:
        """Return True if the member lacks tasks after a lost response. Kafka resends them only at reassignment."""
        owned, has = self._owned, member.assigned
        return owned is not None and not (
            owned.active >= has.active.keys() and owned.standby >= has.standby and owned.warmup >= has.warmup
        )

    def _add_endpoints(
        self, response: StreamsGroupHeartbeatResponse, before: Member, member: Member, has_other_tasks: bool
    ) -> None:
        """Add all query endpoints to the response, unless the client already has the group's endpoint epoch."""
        state = self._state
        replaced = replaced_by(state, member) if self._is_joining else None
        has_other_endpoint = before.user_endpoint != member.user_endpoint
        if self._is_joining or has_other_tasks or has_other_endpoint:
            state.source_partitions.pop(member.member_id, None)
        if has_other_endpoint or (has_other_tasks and member.user_endpoint is not None):
            state.endpoint_epoch += 1
        if state.endpoint_epoch != self._request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = partitions_by_endpoint(
                state, member, replaced, self._partition_count
            )
        # As in Kafka a group that is being created forgets this epoch, so no client gets it.
        if not self._is_new_group:
            response.endpoint_information_epoch = state.endpoint_epoch

    def _add_group_status(self, member: Member, configured: ConfiguredTopology) -> None:
        if configured.problem is not None:
            self._add_status(configured.problem.status, configured.problem.detail)
        if self._request.shutdown_application and self._state.shutdown_member_id is None:
            self._state.shutdown_member_id = member.member_id
        if self._state.shutdown_member_id is not None:
            self._add_status(
                Status.SHUTDOWN_APPLICATION,
                f"Streams group member {self._state.shutdown_member_id} encountered a fatal error "
                "and requested a shutdown for the entire application.",
            )
        missing = [tag for tag in self._settings.streams_rack_aware_assignment_tags if tag not in member.client_tags]
        if missing and self._caller.api_version >= TAGS_STATUS_VERSION:
            self._add_status(
                Status.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
                "Configure them via 'client.tag.<tagKey>' in your Streams config.",
            )

    def _add_status(self, status: Status, detail: str) -> None:
        self._status.append((status, detail))


def _given(text: str | None, known: str | None) -> str | None:
    return known if text is None else text


def _existing(offsets: Mapping[Task, int], configured: ConfiguredTopology) -> dict[Task, int]:
    """Return only the offsets of tasks that the topology contains."""
    assert configured.subtopologies is not None
    counts = {name: each.task_count for name, each in configured.subtopologies.items()}
    return {
        task: offset for task, offset in offsets.items() if 0 <= task.partition < counts.get(task.subtopology_id, 0)
    }


def _offsets(reported: Iterable[wire.TaskOffset] | None) -> dict[Task, int] | None:
    if reported is None:
        return None
    offsets: dict[Task, int] = {}
    for each in reported:
        task = Task(each.subtopology_id, each.partition)
        if task in offsets:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {task.subtopology_id} "
                f"and partition {task.partition}.",
            )
        offsets[task] = each.offset
    return offsets


def partitions_by_endpoint(
    state: StreamsState, updated: Member, replaced: str | None, partition_count: PartitionCount
) -> list[EndpointToPartitions]:
    """Return the source partitions of each member that has an endpoint.

    `updated` takes the place of the group's member with its id, and of the static member with id `replaced`.
    """
    others = [member for member_id, member in state.members.items() if member_id not in (updated.member_id, replaced)]
    found = []
    for member in (*others, updated):
        if member.user_endpoint is not None:
            known = state.source_partitions.get(member.member_id)
            if known is None:
                known = state.source_partitions[member.member_id] = _endpoint_of(state, member, partition_count)
            found.append(known)
    return found


def _endpoint_of(state: StreamsState, member: Member, partition_count: PartitionCount) -> EndpointToPartitions:
    configured = None if state.configured is None else state.configured.subtopologies
    assert member.user_endpoint is not None
    has = member.assigned
    return EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
        active_partitions=_partitions(has.active, configured or {}, partition_count),
        # To a client a warm-up task is a standby task.
        standby_partitions=_partitions(has.standby | has.warmup, configured or {}, partition_count),
    )


def _partitions(
    tasks: Iterable[Task], subtopologies: Mapping[str, ConfiguredSubtopology], partition_count: PartitionCount
) -> list[TopicPartition]:
    found = []
    for name, numbers in by_subtopology(tasks):
        subtopology = subtopologies.get(name)
        for topic in () if subtopology is None else dict.fromkeys(source_topics(subtopology.subtopology)):
            # There are as many tasks as the largest source has partitions. A smaller one has none for the last tasks.
            size = partition_count(topic) or 0
            there = [number for number in numbers if number < size]
            if there:
                found.append(TopicPartition(topic=topic, partitions=there))
    return found
