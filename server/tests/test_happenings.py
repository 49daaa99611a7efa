"""Happenings of a whole broker: refused writes, connections that are closed, throttles, removed records, elections."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import (
    DISCONNECT,
    ISR_CHANGE,
    LEADER_CHANGE,
    PRODUCER_FENCED,
    REMOVAL,
    THROTTLE,
    TOPIC_DELETED,
    WRITE_REFUSED,
    Happening,
)
from ottla.wire.messages.client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as made:
        yield made


def happenings(kafka: Kafka, kind: str) -> list[Happening]:
    nodes = kafka.world.nodes.values()
    return [each for node in nodes if node.broker for each in node.broker.happenings if each.kind == kind]


def causes(kafka: Kafka, kind: str) -> list[str]:
    return [each.cause for each in happenings(kafka, kind)]


def produce(kafka: Kafka, producer: tuple[int, int, int] = (-1, -1, -1), size: int = 1) -> ErrorCode:
    """Append one record. `producer`: its id, epoch and sequence."""
    producer_id, epoch, sequence = producer
    batch = encode_batch(
        [Record(0, kafka.clock.now_ms, None, bytes(size))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    topics = [TopicProduceData(name="orders", partition_data=[data])]
    answer = kafka.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), version=12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


WHO = "a batch of 'ottla.testing' at this broker for orders-0 was refused with "


def test_batches_that_are_refused(kafka: Kafka) -> None:
    kafka.topic("orders", settings={"max.message.bytes": 1000})
    assert produce(kafka, size=2000) is ErrorCode.MESSAGE_TOO_LARGE
    assert produce(kafka, (7, 1, 0)) is ErrorCode.NONE
    assert produce(kafka, (7, 1, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(kafka, (7, 0, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    refused = happenings(kafka, WRITE_REFUSED)
    assert [each.cause for each in refused] == [
        f"{WHO}MESSAGE_TOO_LARGE: A batch of 2070 bytes exceeds the maximum configured value of 1000",
        (
            f"{WHO}OUT_OF_ORDER_SEQUENCE_NUMBER: Out of order sequence number for producer 7 at offset 1: 5 (incoming),"
            " 0 (last), epoch 1 (incoming), 1 (last)"
        ),
    ]
    assert refused[1].facts == {
        "topic": "orders",
        "partition": 0,
        "error": "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "client_id": "ottla.testing",
        "host": "this broker",
        "producer_id": 7,
        "producer_epoch": 1,
    }
    assert causes(kafka, PRODUCER_FENCED) == [
        f"{WHO}INVALID_PRODUCER_EPOCH: Epoch of producer 7 is 0, which is smaller than the last seen epoch 1"
    ]


def test_a_batch_for_a_topic_that_does_not_exist(kafka: Kafka) -> None:
    assert produce(kafka) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert causes(kafka, WRITE_REFUSED) == [
        f"{WHO}UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition"
    ]


def connected(kafka: Kafka) -> socket.socket:
    host, _, port = kafka.bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_connections_that_speak_something_else_or_ask_for_what_is_not_served(kafka: Kafka) -> None:
    for sent in (b"\0\0\0\x02\0\0", b"\0\0\0\x0d\0\x01\0\x63\0\0\0\x01\0\x03abc"):
        with connected(kafka) as client:
            client.sendall(sent)
            assert client.recv(100) == b""
    closed = "the connection of 127.0.0.1 to listener PLAINTEXT was closed: "
    assert causes(kafka, DISCONNECT) == [
        f"{closed}a frame of 2 bytes is too short for a request header",
        f"{closed}Fetch version 99 is not served",
    ]


def test_a_connection_that_is_idle() -> None:
    with Kafka(settings={"connections.max.idle.ms": 100}) as kafka, connected(kafka) as client:
        assert client.recv(1) == b""
        assert causes(kafka, DISCONNECT) == [
            "the connection of 127.0.0.1 to listener PLAINTEXT was closed: nothing came for 0.1 s (connections.max.idle.ms)"
        ]


def test_an_address_with_too_many_connections() -> None:
    with Kafka(settings={"max.connections.per.ip": 1}) as kafka, connected(kafka), connected(kafka) as second:
        assert second.recv(1) == b""
        assert causes(kafka, DISCONNECT) == [
            (
                "the connection of 127.0.0.1 to listener PLAINTEXT was closed: its address has as many connections as"
                " max.connections.per.ip allows"
            )
        ]


def test_a_client_that_is_throttled(kafka: Kafka) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="busy")]
    quota = [OpData(key="request_percentage", value=0.000001, remove=False)]
    entry = EntryData(entity=entity, ops=quota)
    kafka.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    body = MetadataRequest(topics=[]).encode(1)
    with connected(kafka) as client:
        for correlation_id in range(2):
            frame = b"\0\x03\0\x01" + correlation_id.to_bytes(4, "big") + b"\0\x04busy" + body
            client.sendall(len(frame).to_bytes(4, "big") + frame)
            if not causes(kafka, THROTTLE):
                assert client.recv(1000)
        (throttled,) = happenings(kafka, THROTTLE)
    assert throttled.cause.startswith("'busy' at 127.0.0.1 was throttled for ")
    assert throttled.cause.endswith(" s after Metadata: it used more than its request_percentage")


def test_records_that_retention_removes_and_a_topic_that_is_deleted(kafka: Kafka) -> None:
    kafka.topic("orders", settings={"retention.ms": 60_000, "segment.ms": 1000})
    kafka.produce("orders", "a", "b")
    kafka.clock.advance(seconds=2)
    kafka.produce("orders", "c")
    kafka.clock.advance(minutes=10)
    removed = happenings(kafka, REMOVAL)[0]
    assert removed.cause.startswith("retention.ms=60000 removed 3 records of orders-0, offsets 0 to 2, of ")
    assert (removed.facts["first_offset"], removed.facts["end_offset"]) == (0, 3)
    kafka.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=bytes(16))], timeout_ms=1000))
    assert causes(kafka, TOPIC_DELETED) == ["topic 'orders' was deleted"]


def test_a_broker_that_dies_takes_leaders_and_replicas_with_it() -> None:
    with Kafka(brokers=2, settings={"min.insync.replicas": 2, "default.replication.factor": 2}) as kafka:
        kafka.topic("orders", partitions=2)
        kafka.loop.call(kafka.world.node(2).kill)
        kafka.clock.advance(seconds=60)
        (led,) = set(causes(kafka, LEADER_CHANGE))
        assert led.endswith("changed from broker 2 to 1 (leader epoch 1), because broker 2 is gone")
        (shrunk,) = set(causes(kafka, ISR_CHANGE))
        assert shrunk.endswith("in sync changed from 1, 2 to 1, because broker 2 is gone")
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            kafka.produce("orders", "a", partition=0)
        assert causes(kafka, WRITE_REFUSED) == [
            (
                f"{WHO}NOT_ENOUGH_REPLICAS: The size of the current ISR : 1 is insufficient to satisfy the min.isr"
                " requirement of 2 for partition orders-0, live replica(s) broker.id are : 1"
            )
        ]
