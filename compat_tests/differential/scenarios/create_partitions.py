"""More partitions for topics: counts, manual assignments, several topics at once, and what is there afterwards."""

from typing import Any

from compat_tests.differential.asking_administration import by_name, create, metadata, new_topic
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.create_topics import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic

INT_MAX = (1 << 31) - 1


def more(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    """Without assignments the broker chooses."""
    chosen = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen or None)


def ask(
    talk: Talk, *topics: CreatePartitionsTopic, label: str, validate_only: bool = False, timeout_ms: int = 30_000
) -> Any:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return talk.ask(request, label=label, arrange=by_name("results"))


def show(talk: Talk, name: str, partitions: int) -> None:
    """Kafka answers before its brokers know of the partitions."""

    def arranged(answer: Any) -> None:
        answer.brokers.clear()
        answer.topics[0].partitions.sort(key=lambda each: each.partition_index)

    request = metadata(name)
    talk.until(request, lambda answer: len(answer.topics[0].partitions) >= partitions)
    talk.ask(request, label="Metadata", arrange=arranged)


@scenario(CreatePartitionsRequest)
def counts(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    for count in (3, 2, 1, 0, -1, -INT_MAX):
        ask(talk, more(topic.name, count), label=f"{count} of 3")
    ask(talk, more(topic.name, 4), label="4 of 3")
    show(talk, topic.name, 4)
    ask(talk, more(topic.name, 4), label="4 of 4")
    ask(talk, more(topic.name, 7), label="7 of 4")
    show(talk, topic.name, 7)


@scenario(CreatePartitionsRequest)
def only_to_validate(talk: Talk) -> None:
    topic = talk.topic()
    for count in (2, 1, 0, 10_000):
        ask(talk, more(topic.name, count), label=f"{count} of 1", validate_only=True)
    ask(talk, more(topic.name, 2, [0]), label="assigned", validate_only=True)
    ask(talk, more(topic.name, 2, [7]), label="assigned to nobody", validate_only=True)
    ask(talk, more(talk.name("unknown"), 2), label="unknown topic", validate_only=True)
    show(talk, topic.name, 1)


@scenario(CreatePartitionsRequest)
def too_many(talk: Talk) -> None:
    """Only validated: ten thousand new partitions are worth a second of Kafka's time."""
    topic, other = talk.topic(), talk.topic("other")
    for count in (10_001, 10_002, INT_MAX):
        ask(talk, more(topic.name, count), label=f"{count} of 1", validate_only=True)
    ask(talk, more(topic.name, 5001), more(other.name, 5001), label="10,000 in two topics", validate_only=True)
    two = more(topic.name, 5001), more(other.name, 5002)
    ask(talk, *two, label="10,001 in two topics", validate_only=True)
    strange = (
        more(talk.name("unknown"), 20_000),
        more("a b", 20_000),
        more(other.name, -20_000),
        more(topic.name, 10_001),
    )
    ask(talk, *strange, label="names and counts that do not count", validate_only=True)
    ask(talk, *strange, more(topic.name, 2), label="one of them twice", validate_only=True)
    ask(talk, more(talk.name("unknown"), 2), *two, label="an unknown one and too many", validate_only=True)
    ask(talk, more("a b", 2), more("a b", 2), *two, label="one twice and too many", validate_only=True)
    ask(talk, *two, label="too many without time", validate_only=True, timeout_ms=0)
    ask(talk, more(topic.name, 20_000, [7]), label="with assignments that cannot be", validate_only=True)
    show(talk, topic.name, 1)


@scenario(CreatePartitionsRequest)
def unknown_topics(talk: Talk) -> None:
    for name in ("", ".", "a b", "x" * 250, "__cluster_metadata"):
        ask(talk, more(name, 2), label=repr(name[:20]))
    ask(talk, more(talk.name("unknown"), 2), label="unknown")
    ask(talk, more(talk.name("unknown"), -1, [7]), label="all wrong")


@scenario(CreatePartitionsRequest)
def topics_given_twice(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    ask(talk, more(topic.name, 2), more(other.name, 2), more(topic.name, 3), label="twice and once")
    ask(talk, *[more(topic.name, 2)] * 3, label="three times")
    ask(talk, *[more(talk.name("unknown"), 2)] * 2, label="unknown, twice")
    show(talk, topic.name, 1)
    show(talk, other.name, 2)


@scenario(CreatePartitionsRequest)
def manual_assignments(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, more(topic.name, 3, [0], [0]), label="two")
    show(talk, topic.name, 3)
    for label, count, assignments in (
        ("too few", 6, ([0],)),
        ("too many", 4, ([0], [0])),
        ("too many for nothing", 3, ([0],)),
        ("too many for less", 2, ([0],)),
        ("no replicas", 4, ([],)),
        ("one without replicas", 5, ([0], [])),
        ("a broker twice", 4, ([0, 0],)),
        ("an unknown broker", 4, ([7],)),
        ("two brokers, one unknown", 4, ([0, 7],)),
        ("a negative broker", 4, ([-1],)),
        ("the second unknown", 5, ([0], [7])),
    ):
        ask(talk, more(topic.name, count, *assignments), label=label)
    none = CreatePartitionsTopic(name=topic.name, count=4, assignments=[])
    ask(talk, none, label="an empty list")
    show(talk, topic.name, 3)


@scenario(CreatePartitionsRequest)
def of_an_internal_topic(talk: Talk) -> None:
    talk.group()
    for count in (1, 4, 50):
        ask(talk, more("__consumer_offsets", count), label=f"{count} of 4", validate_only=True)


@scenario(CreatePartitionsRequest)
def several_topics(talk: Talk) -> None:
    first, second, third = talk.topic("first"), talk.topic("second", 2), talk.topic("third")
    asked = (more(first.name, 2), more(second.name, 1), more(third.name, 2, [7]), more(talk.name("unknown"), 5))
    ask(talk, *asked, label="validate only", validate_only=True)
    ask(talk, *asked, label="one of four")
    show(talk, first.name, 2)
    ask(talk, label="none")


@scenario(CreatePartitionsRequest)
def of_a_new_topic(talk: Talk) -> None:
    talk.do(create(new_topic(talk.name("new"))))
    ask(talk, more(talk.name("new"), 2), label="right after its creation")
    show(talk, talk.name("new"), 2)


@scenario(CreatePartitionsRequest)
def without_time(talk: Talk) -> None:
    topic = talk.topic()
    for timeout_ms in (0, -1):
        ask(talk, more(topic.name, 2), label=f"timeout {timeout_ms}", timeout_ms=timeout_ms)
        ask(talk, more(topic.name, 1), more("a b", 2), label=f"wrong, timeout {timeout_ms}", timeout_ms=timeout_ms)
    ask(talk, more(topic.name, 2), label="validate only", timeout_ms=0, validate_only=True)
    ask(talk, *[more(topic.name, 2)] * 2, label="twice", timeout_ms=0)
    ask(talk, *[more(topic.name, 2)] * 2, more("a b", 2), label="twice and once", timeout_ms=0)
    ask(talk, label="none", timeout_ms=0)
    show(talk, topic.name, 1)
