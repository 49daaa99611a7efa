"""Where partitions begin and end, and which offset belongs to a time (ListOffsets, asked of each leader)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.server.asking.cluster import Cluster, NotNow
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1
_MAX_VERSION = 9  # of ListOffsets: later ones only add times that are not asked for here

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


def offsets_at(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], timestamp: int, *, isolation: int = 0
) -> dict[Partition, int]:
    """The offset of each partition that belongs to a time in ms, or to EARLIEST or LATEST; -1 where no record is that new.

    With READ_COMMITTED the latest one is the last stable offset.
    """
    found: dict[Partition, int] = {}

    def ask() -> None:
        left = {topic: [each for each in numbers if (topic, each) not in found] for topic, numbers in partitions.items()}
        left = {topic: numbers for topic, numbers in left.items() if numbers}
        if left:
            _ask_leaders(cluster, left, timestamp, isolation, found)

    cluster.patiently(ask)
    return found


def by_topic(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    """The same partitions, by their topics."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def leaders_of(cluster: Cluster, partitions: Mapping[str, Sequence[int]]) -> dict[int, dict[str, list[int]]]:
    """The partitions by their leaders. NotNow if one has no leader at the moment."""
    leaders: dict[int, dict[str, list[int]]] = {}
    for topic in cluster.metadata(partitions).topics:
        name = topic.name or ""
        cluster.check(f"topic {name}", topic.error_code)
        found = {each.partition_index: each.leader_id for each in topic.partitions}
        for number in partitions[name]:
            leader = found.get(number, -1)
            if leader < 0:
                raise NotNow(f"partition {name}-{number} has no leader")
            leaders.setdefault(leader, {}).setdefault(name, []).append(number)
    return leaders


def _ask_leaders(
    cluster: Cluster,
    partitions: Mapping[str, Sequence[int]],
    timestamp: int,
    isolation: int,
    found: dict[Partition, int],
) -> None:
    for leader, places in leaders_of(cluster, partitions).items():
        answer = cluster.broker(leader).ask(_request(places, timestamp, isolation), at_most=_MAX_VERSION)
        for topic in answer.topics:
            for each in topic.partitions:
                cluster.check(f"the offsets of {topic.name}-{each.partition_index}", each.error_code)
                found[topic.name, each.partition_index] = each.offset


def _request(places: Mapping[str, Sequence[int]], timestamp: int, isolation: int) -> Any:
    topics = [
        ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in numbers]
        )
        for topic, numbers in places.items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
