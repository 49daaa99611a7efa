"""The yardstick itself: both releases come up on loopback, say who they are, and take a record."""

import pytest
from compat_tests.apache import brokers

pytest.importorskip("confluent_kafka")


@pytest.mark.parametrize("release", ["kafka_4", "kafka_3"])
def test_a_release_serves_records(request, release, unique):
    from confluent_kafka import Consumer, Producer

    kafka = request.getfixturevalue(f"apache_{release}")
    topic = unique("topic")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.poll(20).value() == b"value"
    consumer.close()
    assert brokers.version(release).startswith({"kafka_4": "4.3.", "kafka_3": "3.9."}[release])
