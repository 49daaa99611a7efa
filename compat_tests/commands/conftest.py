"""Every command speaks to Ottla and to Apache Kafka 4, and has to say the same of both."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from ottla.server.cli.cli import main

PATIENT = ("--timeout", "60")  # a machine that has much else to do


class Told(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture(params=["ottla", "kafka_4"])
def servers(request: pytest.FixtureRequest) -> str:
    """The address of each make in turn."""
    if request.param == "ottla":
        return request.getfixturevalue("bootstrap")
    return request.getfixturevalue("apache_kafka_4").bootstrap


@pytest.fixture
def ottla(servers: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Told]:
    """Runs a command, which has to end with `status`."""

    def run(command: str, *arguments: str, status: int = 0) -> Told:
        capsysbinary.readouterr()
        code = main([command, "-b", servers, *PATIENT, *arguments])
        out, err = capsysbinary.readouterr()
        told = Told(code, out.decode(), err.decode())
        assert code == status, told
        return told

    return run


@pytest.fixture
def created(ottla: Callable[..., Told], unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic and returns its name, by the command itself."""

    def create(partitions: int = 1, *configs: str) -> str:
        name = unique("topic")
        settings = [part for config in ("retention.ms=-1", *configs) for part in ("-c", config)]
        ottla("topics", "create", name, "-p", str(partitions), *settings)
        return name

    return create


def write(servers: str, topic: str, count: int, size: int = 0) -> None:
    """Write `value 0`, `value 1` and so on to two partitions in turn, each with `size` bytes more."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for index in range(count):
        producer.produce(topic, f"value {index} {'x' * size}".encode(), partition=index % 2)
    assert producer.flush(60) == 0
