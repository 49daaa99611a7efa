"""The members of groups of all kinds, for `ottla groups describe`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ottla.server.client.cluster import Cluster, only
from ottla.server.client.groups import Listed
from ottla.server.client.offsets import Partition
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

_DESCRIBE_MAX_VERSION = 5  # of DescribeGroups: later ones differ in what they say of groups that are not there


class Task(NamedTuple):
    """A part of a Streams application; it reads the partitions of this number of the topics of its subtopology."""

    subtopology: str
    number: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.number}"


class Member(NamedTuple):
    """Who is in a group, and what it reads: partitions, or in a streams group tasks."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...] = ()
    tasks: tuple[Task, ...] = ()


class Members(NamedTuple):
    """Those of one group."""

    all: list[Member]
    subtopologies: dict[str, str]
    """In a streams group: topic -> the subtopology that reads it."""

    def readers(self, committed: Collection[Partition]) -> dict[Partition, list[str]]:
        """Who reads these partitions, and whatever others are assigned; share groups have several members for one."""
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
    """The members of a group; nobody in one of a kind that is not known here. AskingFailed."""
    ask = _KINDS.get(listed.kind.lower())
    return Members([], {}) if ask is None else cluster.patiently(lambda: ask(cluster, listed.group))


def _classic_members(cluster: Cluster, group: str) -> Members:
    request = DescribeGroupsRequest(groups=[group])
    answer = cluster.coordinator(group).ask(request, at_most=_DESCRIBE_MAX_VERSION)
    found = only(answer.groups, f"group {group}")
    cluster.check(f"group {group}", found.error_code, found.error_message)
    is_consumer = found.protocol_type == "consumer"
    members = [
        Member(
            each.member_id,
            each.client_id,
            each.client_host,
            assigned(bytes(each.member_assignment)) if is_consumer else (),
        )
        for each in found.members
    ]
    return Members(members, {})


def assigned(blob: bytes) -> tuple[Partition, ...]:
    """The partitions in a classic consumer's assignment; none where it is no such thing, for members may write what they like."""
    version = int.from_bytes(blob[:2], "big", signed=True)
    if len(blob) < 2 or version < 0:
        return ()
    try:
        newest = min(version, ConsumerProtocolAssignment.versions.last)
        decoded = ConsumerProtocolAssignment.decode(blob, newest, start=2)
    except (KafkaError, ProtocolViolation, ValueError, IndexError):
        return ()
    return tuple((topic.topic, number) for topic in decoded.assigned_partitions for number in topic.partitions)


def _consumer_members(cluster: Cluster, group: str) -> Members:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return _with_partitions(described(cluster, group, request))


def _share_members(cluster: Cluster, group: str) -> Members:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return _with_partitions(described(cluster, group, request))


def described(cluster: Cluster, group: str, request: Any) -> Any:
    """What the coordinator answers about one group of a newer kind. AskingFailed, NotNow."""
    found = only(cluster.coordinator(group).ask(request).groups, f"group {group}")
    cluster.check(f"group {group}", found.error_code, found.error_message)
    return found


def _with_partitions(found: Any) -> Members:
    members = [
        Member(
            each.member_id,
            each.client_id,
            each.client_host,
            tuple((part.topic_name, number) for part in each.assignment.topic_partitions for number in part.partitions),
        )
        for each in found.members
    ]
    return Members(members, {})


def _streams_members(cluster: Cluster, group: str) -> Members:
    found = described(
        cluster, group, StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    )
    members = [
        Member(
            each.member_id,
            each.client_id,
            each.client_host,
            tasks=tuple(
                Task(part.subtopology_id, number) for part in each.assignment.active_tasks for number in part.partitions
            ),
        )
        for each in found.members
    ]
    known = (found.topology.subtopologies or ()) if found.topology is not None else ()
    topics = {name: each.subtopology_id for each in known for name in each.source_topics}
    topics |= {topic.name: each.subtopology_id for each in known for topic in each.repartition_source_topics}
    return Members(members, topics)


_KINDS: dict[str, Callable[[Cluster, str], Members]] = {
    "classic": _classic_members,
    "consumer": _consumer_members,
    "share": _share_members,
    "streams": _streams_members,
}
