"""A test that reads after a commit sees what was committed, although the markers of a transaction are written later."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.server.testing import transactions
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.world import world
from ottla.server.testing.world.world import TRANSACTION, World

PATIENCE_S = 30
LATE_S = 0.2


@pytest.fixture
def kafka(kafka_cluster: Kafka) -> Kafka:
    """Three brokers that are late with markers for each other. Each leads a partition of `orders`."""
    kafka_cluster.topic("orders", partitions=3)
    kafka_cluster.wire.on("WriteTxnMarkers", of_brokers=True).delay(LATE_S, times=None, before=True)
    return kafka_cluster


def begin(kafka: Kafka) -> Producer:
    """Begin a transaction that has a record in each partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("orders", b"%d" % partition, partition=partition)
    return producer


def test_records_are_there_after_their_commit(kafka: Kafka):
    begin(kafka).commit_transaction(PATIENCE_S)
    assert sorted(each.value for each in kafka.records("orders", read_committed=True)) == [b"0", b"1", b"2"]


def test_offsets_of_records_are_told_after_their_commit(kafka: Kafka):
    begin(kafka).commit_transaction(PATIENCE_S)
    assert {kafka.why("orders", each, 0).state for each in range(3)} == {"there"}


def test_records_of_a_fork_are_there_after_their_commit(kafka: Kafka):
    begin(kafka).commit_transaction(PATIENCE_S)
    with kafka.fork() as fork:
        assert len(fork.records("orders", read_committed=True)) == 3


def test_offsets_are_there_after_the_commit_of_their_transaction(kafka: Kafka):
    producer, groups = begin(kafka), [f"g-{number}" for number in range(6)]  # some are coordinated by another broker
    for group in groups:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
        position = TopicPartition("orders", 0, 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), PATIENCE_S)
        consumer.close()
    assert {each: kafka.group(each).offsets for each in groups} == {each: {} for each in groups}
    producer.commit_transaction(PATIENCE_S)
    assert {each: kafka.group(each).offsets for each in groups} == {each: {("orders", 0): 1} for each in groups}


def test_an_open_transaction_is_not_waited_for(kafka: Kafka):
    producer = begin(kafka)
    producer.flush(PATIENCE_S)
    assert kafka.records("orders", read_committed=True) == []
    assert kafka.why("orders", 0, 0).state == "open"
    assert len(kafka.records("orders")) == 3
    producer.abort_transaction(PATIENCE_S)
    kafka.produce("orders", "4", partition=0)
    assert [each.value for each in kafka.records("orders", read_committed=True)] == [b"4"]


def test_where_nothing_settles_it_is_waited_for_once(kafka: Kafka, monkeypatch: pytest.MonkeyPatch):
    for each in (transactions, world):
        monkeypatch.setattr(each, "SETTLED_LOOKS", 200)
    settle, calls = World.until_settled, []

    async def until_settled(*words: Any, **names: Any) -> None:
        calls.append(words)
        await settle(*words, **names)

    kafka.wire.rules.clear()
    kafka.wire.on("WriteTxnMarkers", of_brokers=True).fail("NOT_LEADER_OR_FOLLOWER", times=None)
    begin(kafka).commit_transaction(PATIENCE_S)
    kafka.wire.on("UpdateMetadata", of_brokers=True).fail("STALE_CONTROLLER_EPOCH", times=None)
    kafka.broker(kafka.partition("orders", 0).leader).kill()
    monkeypatch.setattr(World, "until_settled", until_settled)
    kafka.records("orders", read_committed=True)
    assert len(calls) == 1


@pytest.mark.parametrize("how", ["pause", "isolate"])
def test_markers_of_a_coordinator_that_reaches_nobody_are_not_waited_for(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, how: str
):
    kafka.wire.rules.clear()
    kafka.wire.on("WriteTxnMarkers", of_brokers=True).fail("NOT_LEADER_OR_FOLLOWER", times=None)
    begin(kafka).commit_transaction(PATIENCE_S)
    assert kafka.transactions()["t"].state == "PrepareCommit"  # and all coordinators have loaded what is theirs
    getattr(kafka.broker(kafka.call(kafka.world.coordinator, "t", TRANSACTION).node_id), how)()
    monkeypatch.setattr(transactions, "pause", None)  # a wait would fail
    assert len(kafka.records("orders", read_committed=True)) < 3
