"""Brokers that start with the variables of compose files for other images: a client on the host produces and consumes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.containers.environments import ENVIRONMENTS, Environment, on_this_host
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until
from compat_tests.support.zookeepers import Ensemble
from confluent_kafka import Consumer, Producer, TopicPartition


class Contained(OttlaProcess):
    """A broker that has its settings only from environment variables, as in a container."""

    def __init__(self, directory: Path, variables: dict[str, str]) -> None:
        super().__init__(directory, {})
        self.settings = variables

    def command(self) -> list[str]:
        inherited = [f"{name}={text}" for name, text in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))]
        given = [f"{name}={text}" for name, text in self.settings.items()]
        return ["env", "-i", *inherited, *given, sys.executable, "-m", "ottla", "start", "--settings-from-environment"]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"), 1)
    ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda each: each.name)
def test_an_environment_of_another_image_starts(
    environment: Environment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    zookeeper = ""
    if environment.has_zookeeper:
        number = ENVIRONMENTS.index(environment)
        zookeeper = f"{request.getfixturevalue('zookeeper').address}/compose-{number}"
    variables, port = on_this_host(environment, tmp_path, zookeeper, free_port)
    broker = Contained(tmp_path, variables)
    broker.start()
    try:
        client = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "topic.metadata.refresh.interval.ms": "1000",
            **environment.login,
        }
        producer = Producer(client)
        producer.produce("records", b"one", partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer(client | {"group.id": "readers"})
        consumer.assign([TopicPartition("records", 0, 0)])
        message = consumer.poll(60)
        assert message is not None and message.error() is None and message.value() == b"one"
        wait_until(lambda: environment.topics.items() <= partitions(producer).items(), "the topics of the environment")
        if environment.cluster_id is not None:
            assert producer.list_topics(timeout=60).cluster_id == environment.cluster_id
        consumer.close()
    finally:
        broker.stop()
    assert "-secret" not in broker.log, "the log has a password of the variables or of the JAAS file"
    for words in environment.warned:
        assert words in broker.log
    warnings = [line for line in broker.log.splitlines() if "WARN" in line and "Environment: " in line]
    assert len(warnings) == len(environment.warned)


def partitions(producer: Producer) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in producer.list_topics(timeout=60).topics.items()}


def test_there_are_twelve_environments() -> None:
    assert len({each.name for each in ENVIRONMENTS}) >= 12
