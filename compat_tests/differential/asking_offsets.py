"""Requests about committed offsets, for any version: topics have both their names and their ids."""

from collections.abc import Iterable
from typing import Any

from compat_tests.differential.conversation import Talk, Topic

from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

Asked = tuple[Topic, Iterable[int]]


def commit_partition(index: int, offset: int, **details: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        **{"partition_index": index, "committed_offset": offset, "committed_metadata": "metadata"} | details
    )


def commit_topic(topic: Topic, offsets: dict[int, int]) -> OffsetCommitRequestTopic:
    partitions = [commit_partition(index, offset) for index, offset in offsets.items()]
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)


def commit(group: str, topic: Topic, offsets: dict[int, int], **details: Any) -> OffsetCommitRequest:
    """What nobody in particular commits, unless `details` say who it is."""
    said = {"group_id": group, "member_id": "", "topics": [commit_topic(topic, offsets)]} | details
    return OffsetCommitRequest(**said)


def fetch_group(group: str, *asked: Asked, everything: bool = False, **details: Any) -> OffsetFetchRequestGroup:
    topics = [
        OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=list(partitions))
        for topic, partitions in asked
    ]
    return OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics, **details)


def fetch(*groups: OffsetFetchRequestGroup, require_stable: bool = False) -> OffsetFetchRequest:
    """Before version 8 only of the first group."""
    first = groups[0] if groups else OffsetFetchRequestGroup(group_id="", topics=[])
    topics = first.topics
    old = [OffsetFetchRequestTopic(name=each.name, partition_indexes=each.partition_indexes) for each in topics or ()]
    return OffsetFetchRequest(
        group_id=first.group_id,
        topics=None if topics is None else old,
        groups=list(groups),
        require_stable=require_stable,
    )


def offsets_of(talk: Talk, group: str, *topics: Topic, partitions: Iterable[int] = (0,), label: str = "offsets") -> Any:
    """Writes down what is committed for these topics."""
    return talk.ask(fetch(fetch_group(group, *((topic, partitions) for topic in topics))), label=label)


def in_order_of_topics(answer: Any) -> None:
    """Kafka gives all of a group's offsets as its hash maps hold them. Ids are random: then the offsets decide."""
    for group in (answer, *answer.groups):
        for topic in group.topics:
            topic.partitions.sort(key=lambda each: each.partition_index)
        group.topics.sort(key=lambda each: (each.name, [found.committed_offset for found in each.partitions]))
