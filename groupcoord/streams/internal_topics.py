"""Internal topics of a topology: their partition counts, the number of tasks, and the topics to create. Pure functions.

A *repartition* topic connects two subtopologies: one writes it (it is a sink there), another one reads it (it is a source
there). A topic's count is the one that the topology requests; without one, the largest count among the sources of the
subtopology that writes the topic. Those sources may be repartition topics themselves, whose counts have to be found first.

Sources that are joined are *copartitioned*: they must have equal counts. A repartition topic whose count is free takes
that of the others.

A *changelog* topic keeps the state of the tasks of its subtopology, so it has a partition for each of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.groupcoord.streams.records import CopartitionGroup, Subtopology, TopicInfo
from ottla.groupcoord.streams.topology import Status, TopicsNotReady, Topology, source_topics
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

PartitionCount = Callable[[str], int | None]
"""Partition count of a topic, None if it does not exist."""

NAMES_SHOWN_MAX = 3
TASKS_MAX = 10_000
"""Tasks of one group. Each subtopology may read a topic of thousands of partitions, and a request may name thousands of
subtopologies. No application that is in use has a tenth of it."""
BROKER_DEFAULT = -1


def internal_partition_counts(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """Return the partition counts of all repartition and changelog topics, by topic.

    All source topics except repartition topics must exist. Raises KafkaError or TopicsNotReady.
    """
    subtopologies = topology.subtopologies.values()
    counts = _repartition_counts(subtopologies, partition_count)
    _copartition(subtopologies, counts, partition_count)
    _add_changelog_counts(subtopologies, counts, partition_count)
    return counts


def known_count(topic: str, counts: Mapping[str, int], partition_count: PartitionCount) -> int:
    """Return a topic's partition count: the existing topic's, else that in `counts`. Raises KafkaError if unknown."""
    existing = partition_count(topic)
    count = counts.get(topic) if existing is None else existing
    if count is None:
        # An inconsistent topology, such as one whose copartition group names an unknown topic.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return count


# ---------------------------------------------------------------------- repartition topics


def _repartition_counts(subtopologies: Collection[Subtopology], partition_count: PartitionCount) -> dict[str, int]:
    counts = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    _count_sinks(subtopologies, counts, partition_count)
    if any(topic.name not in counts for each in subtopologies for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because "
            "a repartition source topic is never used as a sink topic."
        )
    return counts


def _count_sinks(
    subtopologies: Collection[Subtopology], counts: dict[str, int], partition_count: PartitionCount
) -> None:
    """Set the partition count of each repartition sink topic to the largest count among its writer's sources.

    Raises KafkaError if that fails because of a loop in the topology.
    """
    waiting: dict[str, list[Subtopology]] = {}
    decided: set[str] = set()
    queue = deque(subtopologies)
    while queue:
        writer = queue.popleft()
        if writer.subtopology_id in decided:
            continue
        count = _largest_source_count(writer, counts, partition_count)
        if count is None:
            # One count is enough, so the first of its sources that gets one puts it in the queue again.
            for topic in writer.repartition_source_topics:
                waiting.setdefault(topic.name, []).append(writer)
            continue
        decided.add(writer.subtopology_id)
        for sink in writer.repartition_sink_topics:
            if sink not in counts:
                counts[sink] = count
                queue.extend(waiting.pop(sink, ()))
    if any(sink not in counts for each in subtopologies for sink in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved."
        )


def _largest_source_count(
    subtopology: Subtopology, counts: Mapping[str, int], partition_count: PartitionCount
) -> int | None:
    """Return the largest partition count of the subtopology's sources; None if none of them is known yet."""
    found = [counts[topic.name] for topic in subtopology.repartition_source_topics if topic.name in counts]
    existing = (partition_count(name) for name in subtopology.source_topics)
    return max([*found, *(count for count in existing if count is not None)], default=None)


# ---------------------------------------------------------------------- copartitioned topics


def _copartition(
    subtopologies: Collection[Subtopology], counts: dict[str, int], partition_count: PartitionCount
) -> None:
    repartition = [topic for each in subtopologies for topic in each.repartition_source_topics]
    is_fixed = {topic.name: False for topic in repartition}
    is_fixed |= {topic.name: True for topic in repartition if topic.partitions}
    # As in Kafka the fixed topics of the whole topology must be alike if a group has repartition topics only.
    fixed_counts = {known_count(name, counts, partition_count) for name, fixed in is_fixed.items() if fixed}
    for subtopology in subtopologies:
        names = [topic.name for topic in subtopology.repartition_source_topics]
        for group in subtopology.copartition_groups:
            sizes = {
                name: known_count(name, counts, partition_count)
                for name in _copartitioned(subtopology.source_topics, names, group)
            }
            if sizes:
                counts |= _coerced(sizes, is_fixed, fixed_counts)


def _copartitioned(source_names: list[str], repartition_names: list[str], group: CopartitionGroup) -> set[str]:
    return {
        *(_named(source_names, index) for index in group.source_topics),
        *(_named(repartition_names, index) for index in group.repartition_source_topics),
    }


def _named(names: list[str], index: int) -> str:
    if not 0 <= index < len(names):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return names[index]


def _coerced(sizes: Mapping[str, int], is_fixed: Mapping[str, bool], fixed_counts: set[int]) -> dict[str, int]:
    """Return the partition count of each repartition topic in a copartition group; it is the same for all."""
    repartition = {name: size for name, size in sizes.items() if name in is_fixed}
    others = {name: size for name, size in sizes.items() if name not in is_fixed}
    if others:
        wanted = _common_count(set(others.values()), others)
    elif fixed_counts:
        wanted = _common_count(fixed_counts, repartition)
    else:
        wanted = max(repartition.values())
        if wanted <= 0:
            names = ", ".join(sorted(repartition))
            raise _invalid(f"All topics in the copartition group had undefined partition number: [{names}]")
    for name in sorted(repartition):
        if is_fixed[name] and repartition[name] != wanted:
            raise TopicsNotReady(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{repartition[name]}] of repartition topic [{name}] "
                f"doesn't match number of partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(repartition, wanted)


def _common_count(counts: set[int], shown: Mapping[str, int]) -> int:
    if len(counts) > 1:
        sizes = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise TopicsNotReady(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{sizes}}}]",
        )
    return next(iter(counts))


# ---------------------------------------------------------------------- changelog topics


def _add_changelog_counts(
    subtopologies: Collection[Subtopology], counts: dict[str, int], partition_count: PartitionCount
) -> None:
    changelogs: dict[str, int] = {}
    for subtopology in subtopologies:
        sources = [known_count(name, counts, partition_count) for name in source_topics(subtopology)]
        if not sources:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        for topic in subtopology.state_changelog_topics:
            changelogs[topic.name] = max(sources)
    counts |= changelogs


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


# ---------------------------------------------------------------------- internal topics


class InternalTopic(NamedTuple):
    """Repartition or changelog topic of the application."""

    name: str
    partitions: int
    info: TopicInfo

    def creation(self) -> CreatableTopic:
        """Return the topic as CreateTopics takes it. Without a replication factor, the broker's default applies."""
        return CreatableTopic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=self.info.replication_factor or BROKER_DEFAULT,
            assignments=[],
            configs=[CreatableTopicConfig(name=each.key, value=each.value) for each in self.info.topic_configs],
        )


class ConfiguredSubtopology(NamedTuple):
    """Subtopology with its number of tasks and the partition counts of its internal topics."""

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
    """Topology that was checked against the existing topics. While it has a problem there are no tasks.

    `subtopologies` are in the order of their ids; None if needed partition counts are unknown.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: list[InternalTopic]
    problem: TopicsNotReady | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Check a topology against the existing topics. Raises KafkaError if the topology is invalid."""
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
    """Return the missing internal topics. Raises TopicsNotReady if an existing topic has a wrong partition count."""
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
