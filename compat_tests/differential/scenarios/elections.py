"""Elections of leaders where there is one broker: what is not needed, what does not exist, and what nobody knows."""

from typing import Any

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


def ask(
    talk: Talk, *topics: tuple[str, list[int]], label: str, election_type: int = PREFERRED, timeout_ms: int = 30_000
) -> Any:
    named = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=timeout_ms)
    return talk.ask(request, label=label, arrange=arranged)


def arranged(answer: Any) -> None:
    """Kafka answers in no order."""
    answer.replica_election_results.sort(key=lambda each: each.topic)
    for topic in answer.replica_election_results:
        topic.partition_result.sort(key=lambda each: each.partition_id)


@scenario(ElectLeadersRequest)
def leaders_that_lead(talk: Talk) -> None:
    topic, other = talk.topic(partitions=3), talk.topic("other")
    for election_type in (PREFERRED, UNCLEAN):
        ask(talk, (topic.name, [0]), label=f"one, type {election_type}", election_type=election_type)
        ask(
            talk,
            (topic.name, [0, 1, 2]),
            (other.name, [0]),
            label=f"all, type {election_type}",
            election_type=election_type,
        )
    ask(talk, (topic.name, [0]), label="no time", timeout_ms=0)
    ask(talk, (topic.name, [0]), label="negative time", timeout_ms=-1)
    ask(talk, label="no topics")
    ask(talk, label="no topics and no time", timeout_ms=0)
    ask(talk, (topic.name, [0]), label="no time and no such type", timeout_ms=0, election_type=5)
    ask(talk, (topic.name, []), label="no partitions")


@scenario(ElectLeadersRequest)
def what_does_not_exist(talk: Talk) -> None:
    topic = talk.topic()
    for election_type in (PREFERRED, UNCLEAN):
        ask(
            talk, (topic.name, [0, 1, -1]), (talk.name("unknown"), [0, 5]),
            label=f"type {election_type}", election_type=election_type,
        )  # fmt: skip
    for name in ("", ".", "a b", "__cluster_metadata"):
        ask(talk, (name, [0]), label=repr(name))


@scenario(ElectLeadersRequest)
def elections_nobody_knows(talk: Talk) -> None:
    topic = talk.topic()
    for election_type in (2, -1, 127):
        ask(
            talk,
            (topic.name, [0, 9]),
            (talk.name("unknown"), [0]),
            label=f"type {election_type}",
            election_type=election_type,
        )


@scenario(ElectLeadersRequest)
def partitions_given_twice(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, (topic.name, [0, 0]), label="in one topic")
    ask(talk, (topic.name, [0]), (topic.name, [0]), label="in two topics")
    ask(talk, (talk.name("unknown"), [0, 0]), label="unknown")


@scenario(ElectLeadersRequest)
def everything(talk: Talk) -> None:
    """All topics of the broker are named in the answer, whoever made them: only what is said of ours counts."""
    topic = talk.topic(partitions=2)

    def ours(answer: Any) -> None:
        answer.replica_election_results = [each for each in answer.replica_election_results if each.topic == topic.name]

    for election_type in (PREFERRED, UNCLEAN):
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=None, timeout_ms=30_000)
        talk.ask(request, label=f"type {election_type}", arrange=ours)
    request = ElectLeadersRequest(election_type=9, topic_partitions=None, timeout_ms=30_000)
    talk.ask(request, label="type 9", arrange=ours)
