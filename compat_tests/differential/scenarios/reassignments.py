"""Reassignments where there is one broker: to itself, to nobody, to others, and none that is under way."""

from typing import Any

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

Wanted = dict[int, list[int] | None]


def ask(talk: Talk, *topics: tuple[str, Wanted], label: str, timeout_ms: int = 30_000, **allowed: bool) -> Any:
    named = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=index, replicas=ids) for index, ids in wanted.items()],
        )
        for name, wanted in topics
    ]
    request = AlterPartitionReassignmentsRequest(topics=named, timeout_ms=timeout_ms, **allowed)
    return talk.ask(request, label=label)


@scenario(AlterPartitionReassignmentsRequest)
def to_this_broker(talk: Talk) -> None:
    topic, other = talk.topic(partitions=3), talk.topic("other")
    ask(talk, (topic.name, {0: [0]}), label="one")
    ask(talk, (topic.name, {2: [0], 0: [0]}), (other.name, {0: [0]}), label="two topics")
    ask(talk, (topic.name, {0: [0]}), label="no time", timeout_ms=0)
    ask(talk, label="no topics")
    ask(talk, label="no topics and no time", timeout_ms=0)
    ask(talk, (topic.name, {}), label="no partitions")


@scenario(AlterPartitionReassignmentsRequest)
def to_others(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    for label, replicas in (
        ("nobody", []),
        ("a broker twice", [0, 0]),
        ("an unknown broker", [7]),
        ("two brokers, one unknown", [0, 7]),
        ("two unknown", [9, 7]),
        ("a negative broker", [-1]),
        ("an unknown one twice", [7, 7]),
    ):
        ask(talk, (topic.name, {0: replicas, 1: [0]}), label=label)


@scenario(AlterPartitionReassignmentsRequest)
def none_to_cancel(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    ask(talk, (topic.name, {0: None, 1: [0], 5: None}), (talk.name("unknown"), {0: None}), label="cancel")


@scenario(AlterPartitionReassignmentsRequest)
def what_does_not_exist(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, (topic.name, {0: [0], 1: [0], -1: [7]}), (talk.name("unknown"), {0: [0], 3: []}), label="unknown")
    for name in ("", ".", "a b", "__cluster_metadata"):
        ask(talk, (name, {0: [0]}), label=repr(name))


@scenario(AlterPartitionReassignmentsRequest)
def the_same_topic_twice(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, (topic.name, {0: [0]}), (topic.name, {0: [7]}), label="twice")


@scenario(AlterPartitionReassignmentsRequest, versions="1")
def with_as_many_replicas_as_before(talk: Talk) -> None:
    topic = talk.topic()
    for replicas in ([0], [], [7], [0, 7], None):
        ask(talk, (topic.name, {0: replicas}), label=f"to {replicas}", allow_replication_factor_change=False)


@scenario(ListPartitionReassignmentsRequest)
def none_is_under_way(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    ask(talk, (topic.name, {0: [0]}), label="begin")
    for label, topics in (
        ("all", None),
        ("none", []),
        ("ours", [(topic.name, [0, 1])]),
        ("unknown", [(topic.name, [7, -1]), (talk.name("unknown"), [0])]),
        ("names that cannot be", [("", [0]), ("a b", [0])]),
    ):
        named = (
            None
            if topics is None
            else [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
        )
        talk.ask(ListPartitionReassignmentsRequest(topics=named, timeout_ms=30_000), label=label)
        talk.ask(ListPartitionReassignmentsRequest(topics=named, timeout_ms=0), label=f"{label}, no time")
