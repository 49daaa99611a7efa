"""Hold a topology against the topics that exist: how many tasks there are, and which topics have to be created."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.groupcoord.streams.partition_counts import PartitionCount, internal_partition_counts, known_count
from ottla.groupcoord.streams.status import Status, TopicsNotReady
from ottla.groupcoord.streams.topology import Topology, source_topics
from ottla.groupcoord.streams.values import Subtopology, TopicInfo
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

NAMES_SHOWN_MAX = 3
TASKS_MAX = 10_000
"""Tasks of one group. Each subtopology may read a topic of thousands of partitions, and a request may name thousands of
subtopologies. No application that is in use has a tenth of it."""
BROKER_DEFAULT = -1


class InternalTopic(NamedTuple):
    """A topic that the application needs for itself."""

    name: str
    partitions: int
    info: TopicInfo

    def creation(self) -> CreatableTopic:
        """The request for it; a replication factor that is left open is the broker's default."""
        return CreatableTopic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=self.info.replication_factor or BROKER_DEFAULT,
            assignments=[],
            configs=[CreatableTopicConfig(name=each.key, value=each.value) for each in self.info.topic_configs],
        )


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose internal topics have their partitions."""

    subtopology: Subtopology
    task_count: int
    repartition_source_topics: list[InternalTopic]
    state_changelog_topics: list[InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def internal_topics(self) -> list[InternalTopic]:
        return [*self.repartition_source_topics, *self.state_changelog_topics]


class ConfiguredTopology(NamedTuple):
    """A topology and what the topics say about it: with a problem there are no tasks yet.

    `subtopologies` are in the order of their ids. They are None if it is unknown how many partitions topics need.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: list[InternalTopic]
    problem: TopicsNotReady | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Find out what the topology needs. A topology that can never work is refused with a KafkaError."""
    try:
        _check_source_topics(topology, partition_count)
        counts = internal_partition_counts(topology, partition_count)
        subtopologies = {
            each.subtopology_id: _configured(each, counts, partition_count)
            for _, each in sorted(topology.subtopologies.items())
        }
        _check_task_count(sum(each.task_count for each in subtopologies.values()))
        missing = _missing(subtopologies.values(), partition_count)
    except TopicsNotReady as found:
        return ConfiguredTopology(topology.epoch, None, [], bare(found))
    problem = None
    if missing:
        names = _summary([topic.name for topic in missing])
        problem = TopicsNotReady(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_task_count(count: int) -> None:
    if count > TASKS_MAX:
        message = f"The topology has {count} tasks, and a streams group may have {TASKS_MAX}."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_source_topics(topology: Topology, partition_count: PartitionCount) -> None:
    named = {name for each in topology.subtopologies.values() for name in each.source_topics}
    missing = sorted(name for name in named if partition_count(name) is None)
    if missing:
        raise TopicsNotReady(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _configured(
    subtopology: Subtopology, counts: Mapping[str, int], partition_count: PartitionCount
) -> ConfiguredSubtopology:
    sizes = [known_count(name, counts, partition_count) for name in source_topics(subtopology)]
    return ConfiguredSubtopology(
        subtopology,
        max(sizes),
        [_internal(topic, counts) for topic in subtopology.repartition_source_topics],
        [_internal(topic, counts) for topic in subtopology.state_changelog_topics],
    )


def _internal(topic: TopicInfo, counts: Mapping[str, int]) -> InternalTopic:
    partitions = topic.partitions or counts[topic.name]
    if partitions < 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return InternalTopic(topic.name, partitions, topic)


def _missing(subtopologies: Iterable[ConfiguredSubtopology], partition_count: PartitionCount) -> list[InternalTopic]:
    """The internal topics that do not exist; one that exists must have the right number of partitions."""
    needed = {topic.name: topic for each in subtopologies for topic in each.internal_topics}
    missing = []
    for topic in needed.values():
        count = partition_count(topic.name)
        if count is None:
            missing.append(topic)
        elif count != topic.partitions:
            raise TopicsNotReady(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {topic.name} has different number of partitions: "
                f"expected {topic.partitions}, found {count}",
            )
    return missing


def _summary(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    hidden = len(names) - NAMES_SHOWN_MAX
    return shown if hidden <= 0 else f"{shown} and {hidden} additional topics"
