"""Causes that real clients meet in a lab's Kafka: `kafka.why()` names them as it names those of hand-made requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from ottla.testing import Kafka


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as made:
        made.topic("orders")
        yield made


def test_a_consumer_that_sends_no_heartbeat_and_one_that_leaves(kafka: Kafka) -> None:
    kafka.produce("orders", "first")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "client.id": "billing"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None and message.value() == b"first"
    # The broker's time goes on, and the client's does not.
    kafka.clock.advance(seconds=11)
    removed = kafka.why(group="g", kind="member removed")
    assert "was removed because it sent no heartbeat for 10 s (its session timeout); its client is 'billing'" in removed
    assert "Its last request to the coordinator was a" in removed and "Its client last fetched " in removed
    while consumer.poll(0.1) is not None or len(kafka.why(group="g", kind="rebalance")) < 3:
        pass  # it joins again
    consumer.close()
    assert " left" in kafka.why(group="g", kind="member removed")[-1].sentence


def test_a_transactional_producer_that_another_one_replaces(kafka: Kafka) -> None:
    first, second = (
        Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx", "client.id": name})
        for name in ("first", "second")
    )
    first.init_transactions()
    first.begin_transaction()
    first.produce("orders", b"lost")
    first.flush()
    second.init_transactions()
    with pytest.raises(KafkaException):
        first.commit_transaction()
    told = kafka.why(transactional_id="tx")
    assert "is aborted, because another producer has come for that id" in told
    assert kafka.why("orders", 0, 0).state == "aborted"
