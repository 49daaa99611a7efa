"""Brokers of the lab that behave as older releases of Kafka, as clients find them."""

import pytest
from compat_tests.conftest import KEEP_EVERYTHING
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from ottla.server.testing.profiles.profiles import PROFILES
from ottla.testing import Kafka

RELEASES = {"kafka-0.10": (0, 10, 2), "kafka-1.1": (1, 1), "kafka-2.8": (2, 8), "kafka-3.9": (3, 9)}


@pytest.mark.parametrize("name", RELEASES)
def test_versions_are_those_that_brokers_of_the_release_told(name):
    """kafka-python keeps what brokers of each release have answered."""
    told = {key: (each.first, each.last) for key, each in PROFILES[name].restrictions.versions.items()}
    assert told == BROKER_API_VERSIONS[RELEASES[name]]


@pytest.mark.parametrize("name", RELEASES)
def test_kafka_python_finds_the_release_and_uses_its_record_format(name):
    with Kafka(profile=name) as kafka:
        kafka.topic("t", settings=KEEP_EVERYTHING)
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, enable_idempotence=False)
        consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
        try:
            assert producer.config["api_version"] == RELEASES[name]
            sent = producer.send("t", b"value", key=b"key", timestamp_ms=1_000).get(60)
            assert (sent.offset, sent.timestamp) == (0, 1_000)
            consumer.assign([TopicPartition("t", 0)])
            ((record,),) = consumer.poll(60_000, max_records=1).values()
            assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_000)
        finally:
            consumer.close()
            producer.close()


def test_librdkafka_that_takes_the_broker_for_0_10_writes_and_reads():
    old = {"api.version.request": False, "broker.version.fallback": "0.10.2"}
    with Kafka(profile="kafka-0.10") as kafka:
        kafka.topic("t")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, **old})
        producer.produce("t", b"value")
        assert producer.flush(20) == 0
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **old}
        )
        consumer.subscribe(["t"])
        assert consumer.poll(20).value() == b"value"
        consumer.close()


def test_kafka_python_that_is_told_0_10_works_with_a_cluster():
    with Kafka(3, profile="kafka-0.10") as kafka:
        kafka.topic("t", partitions=2)
        old = {"bootstrap_servers": kafka.bootstrap.split(","), "api_version": (0, 10)}
        producer = KafkaProducer(**old, enable_idempotence=False)
        consumer = KafkaConsumer("t", **old, group_id="g", auto_offset_reset="earliest")
        try:
            producer.send("t", b"value").get(60)
            assert next(consumer).value == b"value"
            consumer.commit()
        finally:
            consumer.close()
            producer.close()
        assert sum(kafka.group("g").offsets.values()) == 1


def test_sarama_in_its_oldest_versions_works_with_0_10(go_admin):
    with Kafka(profile="kafka-0.10") as kafka:
        [steps] = go_admin("older", kafka.bootstrap)
        assert steps == {"create": "<nil>", "offsets": "<nil> [0]", "delete": "<nil>"}
        assert kafka.wire.saw("CreateTopics", version=0) and kafka.wire.saw("ListOffsets", version=0)
