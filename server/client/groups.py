"""What `ottla groups` asks of a cluster: groups of all kinds, and their offsets; `group_members.py` has their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.server.client.cluster import Cluster, only
from ottla.server.client.failures import AskingFailed
from ottla.server.client.offsets import LATEST, Partition, by_topic, offsets_at
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

CLASSIC, SHARE = "classic", "share"
WITHOUT_MEMBERS = ("", "Empty", "Dead")
_NAMES_MAX_VERSION = 9  # of OffsetFetch and OffsetCommit: later ones name topics by their ids


class Listed(NamedTuple):
    """One group of the list. A broker before 2.6 tells no state, and one before 3.8 no kind."""

    group: str
    kind: str
    state: str
    protocol: str
    coordinator: int


def list_groups(cluster: Cluster) -> list[Listed]:
    """All groups, from all brokers, by name. AskingFailed if a broker cannot be asked."""
    cluster.metadata(())
    found = [each for node_id in cluster.brokers() for each in _listed_by(cluster, node_id)]
    return sorted(found)


def _listed_by(cluster: Cluster, node_id: int) -> list[Listed]:
    def ask() -> list[Listed]:
        answer = cluster.broker(node_id).ask(ListGroupsRequest())
        cluster.check(f"the groups of broker {node_id}", answer.error_code)
        return [
            Listed(each.group_id, each.group_type or CLASSIC, each.group_state, each.protocol_type, node_id)
            for each in answer.groups
        ]

    return cluster.patiently(ask)


def find_group(cluster: Cluster, group: str) -> Listed | None:
    """One group, by its coordinator's list; None if it is not there."""
    coordinator = cluster.coordinator(group)

    def ask() -> Listed | None:
        answer = coordinator.ask(ListGroupsRequest())
        cluster.check(f"group {group}", answer.error_code)
        for each in answer.groups:
            if each.group_id == group:
                return Listed(group, each.group_type or CLASSIC, each.group_state, each.protocol_type, -1)
        return None

    return cluster.patiently(ask)


# --- offsets


def committed_of(cluster: Cluster, group: str) -> dict[Partition, int]:
    """What a group has committed. AskingFailed."""

    def ask() -> dict[Partition, int]:
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(group_id=group, topics=None, groups=[wanted])
        answer = cluster.coordinator(group).ask(request, at_most=_NAMES_MAX_VERSION)
        found = answer.groups[0] if answer.groups else answer
        cluster.check(f"the offsets of group {group}", found.error_code)
        told = {(topic.name, each.partition_index): each for topic in found.topics for each in topic.partitions}
        for (topic_name, number), each in told.items():
            cluster.check(f"the offset of group {group} for {topic_name}-{number}", each.error_code)
        return {place: each.committed_offset for place, each in told.items() if each.committed_offset >= 0}

    return cluster.patiently(ask)


def starts_of(cluster: Cluster, group: str) -> dict[Partition, int]:
    """Where the share partitions of a share group start, of those that have begun. AskingFailed."""

    def ask() -> dict[Partition, int]:
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = cluster.coordinator(group).ask(DescribeShareGroupOffsetsRequest(groups=[wanted]))
        found = only(answer.groups, f"the offsets of group {group}")
        cluster.check(f"the offsets of group {group}", found.error_code, found.error_message)
        told = {(topic.topic_name, each.partition_index): each for topic in found.topics for each in topic.partitions}
        for (topic_name, number), each in told.items():
            cluster.check(f"the offset of group {group} for {topic_name}-{number}", each.error_code, each.error_message)
        return {place: each.start_offset for place, each in told.items() if each.start_offset >= 0}

    return cluster.patiently(ask)


def ends_of(cluster: Cluster, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Where these partitions end; those that are no more, or have no leader, are left out."""
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


def commit(cluster: Cluster, group: str, offsets: Mapping[Partition, int]) -> None:
    """Set what a group has committed, which has to be without members. AskingFailed."""
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
    request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)

    def ask() -> None:
        answer = cluster.coordinator(group).ask(request, at_most=_NAMES_MAX_VERSION)
        told = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        for place in offsets:
            what = f"{place[0]}-{place[1]} of group {group}"
            if place not in told:
                raise AskingFailed(f"{what}: the broker does not say what became of its offset; is it a Kafka broker?")
            if told[place] in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
                raise AskingFailed(f"group {group} has members: stop them first")
            cluster.check(what, told[place])

    cluster.patiently(ask)
