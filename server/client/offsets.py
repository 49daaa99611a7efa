"""Where partitions begin and end, and which offset belongs to a time (ListOffsets, asked of each leader)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.server.client.cluster import Cluster, NotNow
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
        left = {
            topic: [each for each in numbers if (topic, each) not in found] for topic, numbers in partitions.items()
        }
        left = {topic: numbers for topic, numbers in left.items() if numbers}
        for leader, places in leaders_of(cluster, left).items() if left else ():
            found.update(_told_by(cluster, leader, places, timestamp, isolation))

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
    found = {}
    for topic in cluster.metadata(partitions).topics:
        if topic.name in partitions:
            cluster.check(f"topic {topic.name}", topic.error_code)
            found.update({(topic.name, each.partition_index): each.leader_id for each in topic.partitions})
    for name, number in ((topic, number) for topic, numbers in partitions.items() for number in numbers):
        leader = found.get((name, number), -1)
        if leader < 0:
            raise NotNow(f"partition {name}-{number} has no leader")
        leaders.setdefault(leader, {}).setdefault(name, []).append(number)
    return leaders


def _told_by(
    cluster: Cluster, leader: int, places: Mapping[str, Sequence[int]], timestamp: int, isolation: int
) -> dict[Partition, int]:
    """The offsets of a leader's partitions."""
    answer = cluster.broker(leader).ask(_request(places, timestamp, isolation), at_most=_MAX_VERSION)
    told = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
    found = {}
    for place in ((topic, number) for topic, numbers in places.items() for number in numbers):
        if place not in told:
            raise NotNow(f"broker {leader} does not tell the offsets of {place[0]}-{place[1]}")
        cluster.check(f"the offsets of {place[0]}-{place[1]}", told[place].error_code)
        found[place] = told[place].offset
    return found


def _request(places: Mapping[str, Sequence[int]], timestamp: int, isolation: int) -> Any:
    topics = [
        ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in numbers]
        )
        for topic, numbers in places.items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
