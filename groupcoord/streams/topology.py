"""The topology of a streams application: its subtopologies with the topics that they read and write.

A member sends it when it joins, and the group's record keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cached_property

from ottla.groupcoord.streams.records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import streams_group as heartbeat


class Status(IntEnum):
    """Code of a status in a heartbeat's response, which tells a member about the state of the group."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class TopicsNotReady(Exception):
    """Error: the topics do not fit the topology yet, so there are no tasks. Members stay and get the status."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Topology:
    """Immutable topology of an application: its subtopologies by id."""

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.subtopologies = {each.subtopology_id: each for each in value.subtopologies}
        if len(self.subtopologies) < len(value.subtopologies) or value.epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """All topics that tasks read, including internal topics."""
        return frozenset(name for each in self.subtopologies.values() for name in topics_read(each))

    @cached_property
    def subtopology_of_source(self) -> dict[str, str]:
        """Subtopology ids by source topic."""
        return {name: each.subtopology_id for each in self.subtopologies.values() for name in source_topics(each)}

    def is_same(self, other: Topology) -> bool:
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies


def source_topics(subtopology: Subtopology) -> Iterator[str]:
    """Yield the source topics of a subtopology, including repartition topics."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def topics_read(subtopology: Subtopology) -> Iterator[str]:
    """Yield the source and changelog topics of a subtopology."""
    yield from source_topics(subtopology)
    for topic in subtopology.state_changelog_topics:
        yield topic.name


def topology_of(request: heartbeat.Topology) -> Topology:
    """Return the topology that a joining member sent in its request."""
    subtopologies = [
        Subtopology(
            subtopology_id=each.subtopology_id,
            source_topics=each.source_topics,
            source_topic_regex=each.source_topic_regex,
            state_changelog_topics=_topic_infos(each.state_changelog_topics),
            repartition_sink_topics=each.repartition_sink_topics,
            repartition_source_topics=_topic_infos(each.repartition_source_topics),
            copartition_groups=[
                CopartitionGroup(
                    source_topics=group.source_topics,
                    source_topic_regex=group.source_topic_regex,
                    repartition_source_topics=group.repartition_source_topics,
                )
                for group in each.copartition_groups
            ],
        )
        for each in request.subtopologies
    ]
    return Topology(StreamsGroupTopologyValue(epoch=request.epoch, subtopologies=subtopologies))


def _topic_infos(topics: Iterable[heartbeat.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[TopicConfig(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in topics
    ]
