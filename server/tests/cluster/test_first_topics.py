"""Topics that a start creates."""

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from trio.testing import MockClock

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.cluster.first_topics import create_first_topics
from ottla.server.config.environment import FirstTopic
from ottla.wire.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.trio
EARLY = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "1 broker")


class Creator:
    """An administration that answers each request with the next errors by name."""

    def __init__(self, existing: Sequence[str], *answers: dict[str, KafkaError]) -> None:
        self.planner = SimpleNamespace(cluster=SimpleNamespace(topics=dict.fromkeys(existing)))
        self.answers = list(answers)
        self.requests: list[list[NewTopic]] = []

    def request_topics(self, topics: Sequence[NewTopic], on_outcome: Callable[[str, KafkaError | None], None]) -> None:
        self.requests.append(list(topics))
        errors = self.answers.pop(0)
        for topic in topics:
            if topic.name not in errors:
                self.planner.cluster.topics[topic.name] = None
            on_outcome(topic.name, errors.get(topic.name))


async def test_missing_topics_are_created_once() -> None:
    creator = Creator(["there"], {})
    topics = [FirstTopic("there"), FirstTopic("a", 3, 1, "compact"), FirstTopic("b"), FirstTopic("a", 9)]
    await create_first_topics(creator, topics)
    [request] = creator.requests
    made = {each.name: (each.partition_count, each.replication_factor, each.configs) for each in request}
    assert made == {"a": (3, 1, {"cleanup.policy": "compact"}), "b": (-1, -1, {})}


async def test_a_refusal_is_logged_and_the_others_are_created(caplog: pytest.LogCaptureFixture) -> None:
    errors = {"a b": KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a b is no name"), "b": EARLY}
    faster = {"c": KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)}
    creator = Creator([], errors | faster)
    with caplog.at_level(logging.WARNING):
        await create_first_topics(creator, [FirstTopic(each) for each in ("a b", "b", "c", "d")])
    assert sorted(caplog.messages) == [
        "Topic a b of KAFKA_CREATE_TOPICS cannot be created: a b is no name",
        "Topic b of KAFKA_CREATE_TOPICS cannot be created: 1 broker",
    ]
    assert "d" in creator.planner.cluster.topics


async def test_a_cluster_waits_for_its_brokers(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    creator = Creator([], {"a": EARLY}, {"a": KafkaError(ErrorCode.NOT_CONTROLLER)}, {})
    await create_first_topics(creator, [FirstTopic("a", 1, 3), FirstTopic("b")], patience_s=60)
    assert [[each.name for each in request] for request in creator.requests] == [["b", "a"], ["a"], ["a"]]
    assert caplog.messages == []
    late = Creator([], *[{"a": EARLY}] * 100)
    with caplog.at_level(logging.WARNING):
        await create_first_topics(late, [FirstTopic("a", 1, 3)], patience_s=3)
    assert caplog.messages == ["Topic a of KAFKA_CREATE_TOPICS cannot be created: 1 broker"]
