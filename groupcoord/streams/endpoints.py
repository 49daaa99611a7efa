"""Where the state of an application can be queried: the partitions behind the tasks of each member with an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.groupcoord.streams.internal_topics import ConfiguredSubtopology
from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.partition_counts import PartitionCount
from ottla.groupcoord.streams.state import StreamsState
from ottla.groupcoord.streams.tasks import Task, by_subtopology
from ottla.groupcoord.streams.topology import source_topics
from ottla.wire.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def partitions_by_endpoint(
    state: StreamsState, updated: Member, replaced: str | None, partition_count: PartitionCount
) -> list[EndpointToPartitions]:
    """An entry for each member with an endpoint; `updated` as it will be, and without the one whose place it takes."""
    others = [member for member_id, member in state.members.items() if member_id not in (updated.member_id, replaced)]
    found = []
    for member in (*others, updated):
        if member.user_endpoint is not None:
            known = state.source_partitions.get(member.member_id)
            if known is None:
                known = state.source_partitions[member.member_id] = _made(state, member, partition_count)
            found.append(known)
    return found


def _made(state: StreamsState, member: Member, partition_count: PartitionCount) -> EndpointToPartitions:
    configured = None if state.configured is None else state.configured.subtopologies
    assert member.user_endpoint is not None
    has = member.assigned
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
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
