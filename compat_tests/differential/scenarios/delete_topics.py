"""Deleting topics by name and by id, what cannot be deleted, and what is left."""

from typing import Any

from compat_tests.differential.asking_administration import (
    WITHOUT_INTERNAL_TOPICS,
    by_name,
    create,
    metadata,
    new_topic,
)
from compat_tests.differential.conversation import OLDER, Talk, scenario

from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.schema import ZERO_UUID

UNKNOWN_ID = b"\x07" * 16
OTHER_ID = b"\x09" * 16
RESERVED_ID = bytes(15) + b"\x01"
BY_ID = "6"  # the first version with ids


def delete(*names: str, timeout_ms: int = 30_000) -> DeleteTopicsRequest:
    """By name, in any version."""
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topic_names=list(names), topics=states, timeout_ms=timeout_ms)


def states(*asked: tuple[str | None, bytes], timeout_ms: int = 30_000) -> DeleteTopicsRequest:
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def ask(talk: Talk, request: DeleteTopicsRequest, label: str) -> Any:
    return talk.ask(request, label=label, arrange=by_name("responses"))


def awaits_its_end(talk: Talk, name: str) -> None:
    """Kafka answers before its brokers have heard of it."""
    request = metadata(name)
    talk.until(request, lambda answer: answer.topics[0].error_code != 0)
    talk.ask(request, label="Metadata", arrange=lambda answer: answer.brokers.clear())


def is_there(talk: Talk, name: str) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    talk.note("the topic is there", not talk.do(request).topics[0].error_code)


@scenario(DeleteTopicsRequest)
def by_their_names(talk: Talk) -> None:
    first, second = talk.topic("first", 3), talk.topic("second")
    ask(talk, delete(first.name), "one")
    awaits_its_end(talk, first.name)
    ask(talk, delete(first.name), "again")
    ask(talk, delete(first.name, second.name, talk.name("third")), "one of three")
    ask(talk, delete(), "none")


@scenario(DeleteTopicsRequest, settings=WITHOUT_INTERNAL_TOPICS)
def names_that_are_no_topics(talk: Talk) -> None:
    for name in ("", ".", "a b", "x" * 250, "__cluster_metadata", "__transaction_state"):
        ask(talk, delete(name), repr(name[:20]))
    ask(talk, delete(talk.name("TOPIC")), "no such topic")


@scenario(DeleteTopicsRequest)
def names_given_twice(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    ask(talk, delete(topic.name, other.name, topic.name), "twice and once")
    is_there(talk, topic.name)
    ask(talk, delete(*[topic.name] * 3), "three times")
    ask(talk, delete(talk.name("unknown"), talk.name("unknown")), "unknown, twice")
    ask(talk, delete("a b", "a b"), "no topic's name, twice")


@scenario(DeleteTopicsRequest)
def and_create_again(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, delete(topic.name), "delete")
    again = talk.do(create(new_topic(topic.name, 2))).topics[0]
    talk.note("a new topic", {"error_code": again.error_code, "has another id": again.topic_id != topic.id})
    talk.known_topic("topic", 2)
    ask(talk, delete(topic.name), "delete the second")


@scenario(DeleteTopicsRequest, BY_ID)
def by_their_ids(talk: Talk) -> None:
    first, second, third = talk.topic("first"), talk.topic("second"), talk.topic("third")
    ask(talk, states((None, first.id)), "one")
    ask(talk, states((None, first.id)), "again")
    ask(talk, states((None, second.id), (third.name, ZERO_UUID), (None, UNKNOWN_ID)), "by id and by name")
    for topic_id in (UNKNOWN_ID, RESERVED_ID):
        ask(talk, states((None, topic_id)), f"unknown {topic_id[-1]}")


@scenario(DeleteTopicsRequest, BY_ID)
def both_or_neither(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, states((topic.name, topic.id)), "name and id")
    ask(talk, states((None, ZERO_UUID)), "neither")
    ask(talk, states((None, ZERO_UUID), (None, ZERO_UUID)), "neither, twice")
    ask(talk, states((topic.name, topic.id), (topic.name, topic.id)), "both, twice")
    ask(talk, states((topic.name, UNKNOWN_ID)), "another's id")
    ask(talk, states((talk.name("unknown"), UNKNOWN_ID), ("", UNKNOWN_ID), ("", ZERO_UUID)), "unknown name and id")
    is_there(talk, topic.name)


@scenario(DeleteTopicsRequest, BY_ID)
def ids_given_twice(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    ask(talk, states((None, topic.id), (None, topic.id), (None, other.id)), "twice and once")
    ask(talk, states(*[(None, topic.id)] * 3), "three times")
    ask(talk, states((None, UNKNOWN_ID), (None, UNKNOWN_ID), (None, OTHER_ID)), "unknown, twice")
    ask(talk, states((None, topic.id), (topic.name, ZERO_UUID)), "once by id and once by name")
    ask(talk, states((topic.name, ZERO_UUID), (None, topic.id)), "once by name and once by id")
    ask(talk, states((None, topic.id), (None, topic.id), (topic.name, ZERO_UUID)), "twice by id and once by name")
    is_there(talk, topic.name)
    twice_named = [(topic.name, ZERO_UUID)] * 2
    ask(talk, states(*twice_named, (None, topic.id)), "twice by name and once by id")
    talk.until(metadata(topic.name), lambda answer: answer.topics[0].error_code != 0)


@scenario(DeleteTopicsRequest)
def without_time(talk: Talk) -> None:
    topic = talk.topic()
    for timeout_ms in (0, -1):
        ask(talk, delete(topic.name, timeout_ms=timeout_ms), f"timeout {timeout_ms}")
        ask(talk, delete("a b", talk.name("unknown"), timeout_ms=timeout_ms), f"unknown, timeout {timeout_ms}")
    ask(talk, delete(topic.name, topic.name, timeout_ms=0), "twice")
    ask(talk, delete("a b", "a b", topic.name, timeout_ms=0), "twice and once")
    ask(talk, delete(timeout_ms=0), "none")
    is_there(talk, topic.name)


@scenario(DeleteTopicsRequest, BY_ID)
def ids_without_time(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, states((None, topic.id), timeout_ms=0), "by id")
    ask(talk, states((None, UNKNOWN_ID), timeout_ms=0), "unknown")
    ask(talk, states((None, ZERO_UUID), timeout_ms=0), "neither")
    is_there(talk, topic.name)


@scenario(DeleteTopicsRequest, settings={"delete.topic.enable": "false"})
def where_it_is_disabled(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, delete(topic.name), "a topic")
    ask(talk, delete(talk.name("unknown"), "a b"), "unknown")
    ask(talk, delete(topic.name, topic.name), "twice")
    ask(talk, delete(topic.name, timeout_ms=0), "without time")
    ask(talk, delete(), "none")
    is_there(talk, topic.name)


@scenario(DeleteTopicsRequest, BY_ID, settings={"delete.topic.enable": "false"})
def ids_where_it_is_disabled(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, states((None, topic.id), (topic.name, ZERO_UUID), (None, UNKNOWN_ID), (None, ZERO_UUID)), "by id")
    ask(talk, states((topic.name, topic.id)), "both")


@scenario(DeleteTopicsRequest, versions="0", settings=OLDER)
def older_requests(talk: Talk) -> None:
    """Send v0, as Kafka 3.9 serves it: old tools send it without asking for the broker's versions."""
    topic = talk.topic()
    ask(talk, delete(topic.name), label="a topic")
    awaits_its_end(talk, topic.name)
    ask(talk, delete(talk.name("nowhere"), "a b"), label="names that are no topics")
    ask(talk, delete(), label="nothing")
