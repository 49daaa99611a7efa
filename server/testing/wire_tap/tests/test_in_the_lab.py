"""The tap of a Kafka inside a test: clients over real sockets, rules, the clock, the report of a failing test."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.wire_tap.tests.wire_talk import fetch, produce, request
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import Message

ORDERS = ("orders", 0)
FAR_S = 60
LARGE = encode_batch([Record(0, 5, b"key", bytes(200_000))])


class Client:
    """A client that sends a request and reads its answer."""

    def __init__(self, kafka: Kafka) -> None:
        host, _, port = kafka.bootstrap.partition(":")
        self.socket = socket.create_connection((host, int(port)), FAR_S)

    def send(self, message: Message, version: int) -> None:
        self.socket.sendall(request(message, version))

    def read(self) -> bytes:
        size = int.from_bytes(self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders")
    return kafka


@pytest.fixture
def client(kafka: Kafka) -> Iterator[Client]:
    made = Client(kafka)
    with made.socket:
        yield made


def test_large_records_pass_and_are_seen(kafka: Kafka, client: Client) -> None:
    client.send(produce(ORDERS, records=LARGE), 9)
    assert ProduceResponse.decode(client.read(), 9, 5).responses[0].partition_responses[0].error_code == 0
    client.send(fetch(ORDERS), 12)
    answer = FetchResponse.decode(client.read(), 12, 5)
    assert bytes(answer.responses[0].partitions[0].records)[61:] == LARGE[61:]  # type: ignore[arg-type]
    produced, fetched = kafka.wire.requests()
    assert kafka.wire.saw("Produce", acks=-1, topic="orders") and produced.left_out == fetched.left_out == len(LARGE)
    assert produced.duration is not None and fetched.places == (ORDERS,)
    kafka.reset()
    assert not kafka.wire.requests()


def test_a_rule_fails_requests_and_the_report_tells(kafka: Kafka, client: Client) -> None:
    rule = kafka.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER")
    for error in (6, 0):
        client.send(produce(ORDERS, records=LARGE), 9)
        assert ProduceResponse.decode(client.read(), 9, 5).responses[0].partition_responses[0].error_code == error
    assert rule.hits == 1 and len(kafka.records("orders")) == 1
    assert "Produce v9 orders-0" in kafka.report() and "[fail NOT_LEADER_OR_FOLLOWER]" in kafka.report()


def test_a_late_answer_comes_by_the_clock_of_the_lab(kafka: Kafka, client: Client) -> None:
    kafka.clock.freeze()
    try:
        kafka.on("Metadata").delay(3600)
        client.send(MetadataRequest(topics=None), 12)
        seen = kafka.wire.wait_for("Metadata", timeout=FAR_S)
        kafka.clock.advance(minutes=59)
        assert not seen.is_answered
        kafka.clock.advance(minutes=1)
        assert MetadataResponse.decode(client.read(), 12, 5).topics[0].name == "orders"
        assert seen.duration == 3600
    finally:
        kafka.clock.speed(1)


def test_a_connection_that_a_rule_ends(kafka: Kafka, client: Client) -> None:
    kafka.on("Produce").disconnect(before=False)
    client.send(produce(ORDERS, records=LARGE), 9)
    with pytest.raises(ConnectionResetError):
        client.read()
    assert len(kafka.records("orders")) == 1


def test_wrong_names_are_told(kafka: Kafka) -> None:
    with pytest.raises(LabError, match="did you mean 'Produce'"):
        kafka.on("Produec")
