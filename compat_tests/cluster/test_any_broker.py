"""Any broker of a cluster takes what only the controller does: the same answers, by the clients of several languages."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.wire_client import WireClient
from kafka.admin import KafkaAdminClient, NewTopic

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.schema import Message

TIMEOUT_MS = 60_000
Conversation = list[tuple[Message, int]]


@pytest.fixture(scope="module", params=[True, False], ids=["one machine", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), (OttlaProcess,) * 3, is_served=request.param) as cluster:
        yield cluster


def ask(broker: BrokerProcess, request: Message, version: int) -> Any:
    with closing(WireClient((broker.host, broker.port), client_id="any", timeout_s=120)) as client:
        client.send(request, version)
        return client.receive()


def create(name: str, replicas: int = 3, **options: Any) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=replicas, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, **options)


def conversation(topic: str) -> Conversation:
    """One request of each kind, and some that fail, of which each tells what the ones before have done."""
    more = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    moved = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=9, replicas=[0])])
    return [
        (create(topic, validate_only=True), 7),
        (create(topic, replicas=9), 7),
        (create(topic), 5),
        (create(topic), 7),
        (CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS, validate_only=False), 3),
        (CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS, validate_only=False), 3),
        (
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic=topic, partitions=[0, 7])], timeout_ms=TIMEOUT_MS
            ),
            2,
        ),
        (AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=TIMEOUT_MS), 1),
        (ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS), 0),
        (UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="x", max_version_level=1)]), 1),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=bytes(16))], timeout_ms=TIMEOUT_MS), 6),
        (DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS), 5),
    ]


def told(broker: BrokerProcess, topic: str) -> list[str]:
    """What the broker answers, but for ids and names, which are new each time."""
    answers = []
    for request, version in conversation(topic):
        answer = ask(broker, request, version)
        for each in getattr(answer, "topics", None) or getattr(answer, "responses", None) or ():
            if hasattr(each, "topic_id"):
                each.topic_id = bytes(16)
        answers.append(repr(answer).replace(topic, "TOPIC"))
    return answers


def test_every_broker_answers_as_the_controller_does(cluster: Cluster, unique: Callable[[str], str]) -> None:
    controller = cluster.controller()
    expected = told(controller, unique("topic"))
    assert "NOT_CONTROLLER" not in str(expected) and "error_code=41" not in str(expected)
    for broker in cluster.brokers:
        assert told(broker, unique("topic")) == expected


def test_nobody_is_told_of_envelopes(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        keys = ask(broker, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4).api_keys
        assert EnvelopeRequest.api_key not in [each.api_key for each in keys]


def test_kafka_python_makes_and_deletes_topics_at_each(cluster: Cluster, unique: Callable[[str], str]) -> None:
    for broker in cluster.brokers:
        topic = unique("topic")
        with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=3)], timeout_ms=TIMEOUT_MS)
            wait_until(lambda: topic in admin.list_topics(), "the topic is listed")  # noqa: B023 - called here
            admin.delete_topics([topic], timeout_ms=TIMEOUT_MS)


def test_the_java_admin_makes_and_deletes_topics_at_each(
    cluster: Cluster, unique: Callable[[str], str], in_one_jvm: Callable[..., str], java_scenarios: list[str]
) -> None:
    for broker in cluster.brokers:
        printed = in_one_jvm(java_scenarios, "topics", broker.bootstrap, unique("topic"), unique("group"), "")
        found = dict(line.split("=", 1) for line in printed.splitlines())
        assert (found["again"], found["deleted"]) == ("TopicExistsException", "UnknownTopicOrPartitionException")
        assert (found["created"], found["partitions"], found["nodes"]) == ("3 1", "5", "3")


@pytest.mark.parametrize("client", ["kafka-go", "sarama", "terraform"])
def test_clients_in_go_make_and_delete_topics_at_each(
    client: str, cluster: Cluster, go_admin: Callable[..., list[dict[str, str]]]
) -> None:
    told = go_admin(client, *(broker.bootstrap for broker in cluster.brokers))
    assert len(told) == 3
    for steps in told:
        assert {"create", "delete"} <= steps.keys() and set(steps.values()) == {"<nil>"}, steps


def test_a_request_outlives_the_controller(cluster: Cluster, unique: Callable[[str], str]) -> None:
    """Whoever is asked while nobody controls the cluster waits for the next controller."""
    controller = cluster.controller()
    other = next(each for each in cluster.brokers if each is not controller)
    controller.kill()
    made = ask(other, create(unique("topic"), replicas=2), 7)
    assert [each.error_code for each in made.topics] == [0], cluster.logs()
    assert cluster.controller() is not controller
    controller.restart()
    cluster.wait_until_whole()


def test_a_controller_that_hangs_is_given_up(cluster: Cluster, unique: Callable[[str], str]) -> None:
    controller = cluster.controller()
    other = next(each for each in cluster.brokers if each is not controller)
    controller.pause()
    try:
        made = ask(other, create(unique("topic"), replicas=2), 7)
        # The one that hangs may have done it first, before it was replaced.
        assert made.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), cluster.logs()
    finally:
        controller.resume()
    cluster.wait_until_whole()
