"""Requests of `ottla groups`: groups of all types, their members, and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.client.assignment import PROTOCOL_TYPE, assigned
from ottla.server.cli.client.cluster import (
    LATEST,
    Cluster,
    Partition,
    by_topic,
    check_answered,
    nearest,
    offsets_at,
    only,
)
from ottla.server.cli.client.output import RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from ottla.server.cli.client.connection import BrokerConnection

CLASSIC, SHARE = "classic", "share"
WITHOUT_MEMBERS = ("", "Empty", "Dead")
NAMES_MAX_VERSION = 9  # of OffsetFetch and OffsetCommit: later ones name topics by their ids


class Listed(NamedTuple):
    """Entry in the list of groups. The state is missing from brokers before 2.6, the type from brokers before 3.8."""

    group: str
    kind: str
    state: str
    protocol: str
    coordinator: int


def list_groups(cluster: Cluster) -> list[Listed]:
    """List the groups of all brokers, sorted by name. Raises RequestFailed if a broker does not answer."""
    cluster.metadata(())
    asked = [(node_id, partial(cluster.broker, node_id)) for node_id in cluster.brokers()]
    return sorted(
        each for node_id, to in asked for each in _listed(cluster, f"the groups of broker {node_id}", to, node_id)
    )


def find_group(cluster: Cluster, group: str) -> Listed | None:
    """Find a group in its coordinator's list of groups; None if the group does not exist."""
    coordinator = cluster.coordinator(group)
    found = _listed(cluster, f"group {group}", lambda: coordinator, -1)
    return next((each for each in found if each.group == group), None)


def existing_group(cluster: Cluster, group: str) -> Listed:
    """Find a group. Raises RequestFailed if it does not exist, and suggests the group with the nearest name."""
    if (found := find_group(cluster, group)) is not None:
        return found
    raise RequestFailed(
        f"group {group} does not exist: {nearest_group(cluster, group)}`ottla groups` lists those that do"
    )


def nearest_group(cluster: Cluster, group: str) -> str:
    """Return "did you mean NAME? " for the group with the nearest name; empty if no name is near."""
    try:
        return nearest(group, [each.group for each in list_groups(cluster)])
    except RequestFailed:
        return ""


def _listed(cluster: Cluster, what: str, broker: Callable[[], BrokerConnection], node_id: int) -> list[Listed]:
    def ask() -> list[Listed]:
        answer = broker().ask(ListGroupsRequest())
        cluster.check(what, answer.error_code)
        return [
            Listed(each.group_id, each.group_type or CLASSIC, each.group_state, each.protocol_type, node_id)
            for each in answer.groups
        ]

    return cluster.patiently(ask)


# --- offsets


class OffsetsUnstable(RequestFailed):
    """Error: an open transaction is about to commit offsets of these partitions."""


def committed_of(
    cluster: Cluster, group: str, wanted: Sequence[Partition] | None = None, *, is_stable: bool = False
) -> dict[Partition, int]:
    """Return the committed offsets of a group, by partition; `wanted` None: of all partitions. Raises RequestFailed.

    `is_stable`: as Kafka's consumers ask (KIP-447): raise OffsetsUnstable if an open transaction is about to commit others.
    """
    topics = None if wanted is None else by_topic(wanted)

    def ask() -> dict[Partition, int]:
        answer = cluster.coordinator(group).ask(_offset_fetch(group, topics, is_stable), at_most=NAMES_MAX_VERSION)
        found = answer.groups[0] if answer.groups else answer
        cluster.check(f"the offsets of group {group}", found.error_code)
        answered = {(topic.name, each.partition_index): each for topic in found.topics for each in topic.partitions}
        for (topic_name, number), each in answered.items():
            what = f"the offset of group {group} for {topic_name}-{number}"
            if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise OffsetsUnstable(f"{what} is about to be committed by an open transaction")
            cluster.check(what, each.error_code)
        return {place: each.committed_offset for place, each in answered.items() if each.committed_offset >= 0}

    return cluster.patiently(ask)


def _offset_fetch(group: str, topics: Mapping[str, list[int]] | None, is_stable: bool) -> OffsetFetchRequest:
    parts = None if topics is None else list(topics.items())
    wanted = (
        None if parts is None else [OffsetFetchRequestTopics(name=each, partition_indexes=of) for each, of in parts]
    )
    return OffsetFetchRequest(
        group_id=group,
        topics=None
        if parts is None
        else [OffsetFetchRequestTopic(name=each, partition_indexes=of) for each, of in parts],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)],
        require_stable=is_stable,
    )


def starts_of(cluster: Cluster, group: str) -> dict[Partition, int]:
    """Return the start offsets of a share group's initialized partitions. Raises RequestFailed."""

    def ask() -> dict[Partition, int]:
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = cluster.coordinator(group).ask(DescribeShareGroupOffsetsRequest(groups=[wanted]))
        found = only(answer.groups, f"the offsets of group {group}")
        cluster.check(f"the offsets of group {group}", found.error_code, found.error_message)
        answered = {
            (topic.topic_name, each.partition_index): each for topic in found.topics for each in topic.partitions
        }
        for (topic_name, number), each in answered.items():
            cluster.check(f"the offset of group {group} for {topic_name}-{number}", each.error_code, each.error_message)
        return {place: each.start_offset for place, each in answered.items() if each.start_offset >= 0}

    return cluster.patiently(ask)


def offsets_of(cluster: Cluster, listed: Listed) -> dict[Partition, int]:
    """Fetch the committed offsets of a group, or the start offsets of a share group. Raises RequestFailed."""
    # A share group has no committed offsets, and its coordinator says so by an error.
    is_share = listed.kind.lower() == SHARE
    return starts_of(cluster, listed.group) if is_share else committed_of(cluster, listed.group)


def ends_of(cluster: Cluster, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Return the partitions' end offsets. Deleted partitions and partitions without a leader are omitted."""
    topics = {topic for topic, _ in partitions}
    if not topics:
        return {}
    there = {
        (topic.name or "", each.partition_index)
        for topic in cluster.metadata(topics).topics
        if not topic.error_code
        for each in topic.partitions
        if each.leader_id >= 0
    }
    return offsets_at(cluster, by_topic([each for each in partitions if each in there]), LATEST)


def commit_request(
    group: str, offsets: Mapping[Partition, int], member_id: str = "", epoch: int = -1
) -> OffsetCommitRequest:
    """Make a request that commits offsets. `epoch`: generation or member epoch; -1 for a group without members."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offsets[topic, number], committed_metadata=""
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(list(offsets)).items()
    ]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics)


def commit(cluster: Cluster, group: str, offsets: Mapping[Partition, int]) -> None:
    """Commit offsets for a group without members. Raises RequestFailed."""
    request = commit_request(group, offsets)

    def ask() -> None:
        answer = cluster.coordinator(group).ask(request, at_most=NAMES_MAX_VERSION)
        answered = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        for place in offsets:
            what = f"{place[0]}-{place[1]} of group {group}"
            if place not in answered:
                raise RequestFailed(f"{what}: the broker does not say what became of its offset; is it a Kafka broker?")
            if answered[place] in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
                raise RequestFailed(f"group {group} has members: stop them first")
            cluster.check(what, answered[place])

    cluster.patiently(ask)


def set_starts(cluster: Cluster, group: str, offsets: Mapping[Partition, int]) -> None:
    """Set the start offsets of a share group without members. Raises RequestFailed."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offsets[topic, number])
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(list(offsets)).items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)

    def ask() -> None:
        answer = cluster.coordinator(group).ask(request)
        cluster.check(f"group {group}", answer.error_code, answer.error_message)
        answered = {
            (topic.topic_name, each.partition_index): each for topic in answer.responses for each in topic.partitions
        }
        for (topic_name, number), each in answered.items():
            cluster.check(f"{topic_name}-{number} of group {group}", each.error_code, each.error_message)
        check_answered(f"group {group}", offsets, answered)

    cluster.patiently(ask)


def delete_offsets(cluster: Cluster, group: str, places: Sequence[Partition]) -> None:
    """Delete committed offsets of a group. Raises RequestFailed, which names those that were deleted all the same."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for topic, numbers in by_topic(places).items()
    ]
    request = OffsetDeleteRequest(group_id=group, topics=topics)

    def ask() -> None:
        answer = cluster.coordinator(group).ask(request)
        cluster.check(f"group {group}", answer.error_code)
        results = [
            (topic.name, each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions
        ]
        done = ", ".join(f"{topic}-{number}" for topic, number, code in results if not code)
        for topic, number, code in results:
            if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise RequestFailed(
                    f"group {group} has members that read {topic}: stop them first; deleted: {done or 'nothing'}"
                )
            cluster.check(f"{topic}-{number} of group {group}", code)
        check_answered(f"group {group}", places, ((topic, number) for topic, number, _ in results))

    cluster.patiently(ask)


def delete_starts(cluster: Cluster, group: str, topics: Sequence[str]) -> None:
    """Delete the start offsets of a share group without members for whole topics. Raises RequestFailed."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics]
    )

    def ask() -> None:
        answer = cluster.coordinator(group).ask(request)
        cluster.check(f"group {group}", answer.error_code, answer.error_message)
        for each in answer.responses:
            cluster.check(f"{each.topic_name} of group {group}", each.error_code, each.error_message)
        check_answered(f"group {group}", topics, (each.topic_name for each in answer.responses))

    cluster.patiently(ask)


_DESCRIBE_MAX_VERSION = 5  # of DescribeGroups: later ones differ in what they say of groups that are not there


class Task(NamedTuple):
    """Task of a Kafka Streams application. It reads partition `number` of its subtopology's topics."""

    subtopology: str
    number: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.number}"


class Member(NamedTuple):
    """Member of a group with its assignment: partitions, or tasks in a streams group."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...] = ()
    tasks: tuple[Task, ...] = ()


class Members(NamedTuple):
    """All members of one group."""

    all: list[Member]
    subtopologies: dict[str, str]
    """Subtopologies of a streams group, by the topic that they read."""

    def readers(self, committed: Collection[Partition]) -> dict[Partition, list[str]]:
        """Return, for each partition, the members that read it (in a share group several).

        `committed`: partitions with committed offsets. In a streams group, these are matched to the members' tasks.
        """
        found: dict[Partition, list[str]] = {}
        owners: dict[Task, str] = {}
        for each in self.all:
            for place in each.partitions:
                found.setdefault(place, []).append(each.member_id)
            owners.update(dict.fromkeys(each.tasks, each.member_id))
        for topic, number in committed if owners else ():
            owner = owners.get(Task(self.subtopologies.get(topic, ""), number))
            if owner is not None:
                found[topic, number] = [owner]
        return found


def members_of(cluster: Cluster, listed: Listed) -> Members:
    """Return the members of a group; none if the group's type is unknown. Raises RequestFailed."""
    ask = _KINDS.get(listed.kind.lower())
    return Members([], {}) if ask is None else cluster.patiently(lambda: ask(cluster, listed.group))


def _classic_members(cluster: Cluster, group: str) -> Members:
    request = DescribeGroupsRequest(groups=[group])
    answer = cluster.coordinator(group).ask(request, at_most=_DESCRIBE_MAX_VERSION)
    found = only(answer.groups, f"group {group}")
    cluster.check(f"group {group}", found.error_code, found.error_message)
    is_consumer = found.protocol_type == PROTOCOL_TYPE
    assignments = [assigned(bytes(each.member_assignment)) if is_consumer else () for each in found.members]
    return Members([_member(each, of) for each, of in zip(found.members, assignments, strict=True)], {})


def _member(found: Any, partitions: Iterable[Partition] = (), tasks: Iterable[Task] = ()) -> Member:
    return Member(found.member_id, found.client_id, found.client_host, tuple(partitions), tuple(tasks))


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members, with its offsets. Raises RequestFailed."""
    request = DeleteGroupsRequest(groups_names=[group])

    def ask() -> None:
        found = only(cluster.coordinator(group).ask(request).results, f"group {group}")
        if found.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise RequestFailed(f"group {group} has members: stop them first")
        cluster.check(f"group {group}", found.error_code, found.error_message)

    cluster.patiently(ask)


def described(cluster: Cluster, group: str, request: Any) -> Any:
    """Return the description of one group, from its coordinator. Raises RequestFailed or TemporaryFailure."""
    found = only(cluster.coordinator(group).ask(request).groups, f"group {group}")
    cluster.check(f"group {group}", found.error_code, found.error_message)
    return found


def _members(request_class: Any, cluster: Cluster, group: str) -> Members:
    found = described(cluster, group, request_class(group_ids=[group], include_authorized_operations=False))
    parts = [(each, each.assignment.topic_partitions) for each in found.members]
    return Members(
        [_member(each, ((part.topic_name, number) for part in of for number in part.partitions)) for each, of in parts],
        {},
    )


def _streams_members(cluster: Cluster, group: str) -> Members:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    found = described(cluster, group, request)
    tasks = [
        [Task(part.subtopology_id, number) for part in each.assignment.active_tasks for number in part.partitions]
        for each in found.members
    ]
    members = [_member(each, tasks=of) for each, of in zip(found.members, tasks, strict=True)]
    known = (found.topology.subtopologies or ()) if found.topology is not None else ()
    topics = {name: each.subtopology_id for each in known for name in each.source_topics}
    topics |= {topic.name: each.subtopology_id for each in known for topic in each.repartition_source_topics}
    return Members(members, topics)


_KINDS: dict[str, Callable[[Cluster, str], Members]] = {
    "classic": _classic_members,
    "consumer": partial(_members, ConsumerGroupDescribeRequest),
    "share": partial(_members, ShareGroupDescribeRequest),
    "streams": _streams_members,
}
