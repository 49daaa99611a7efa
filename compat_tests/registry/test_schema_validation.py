"""Topics with server-side validation of schema ids: what Confluent's serializer writes is taken, and other bytes are refused."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.support.brokers import free_port, wait_until
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A broker with a registry beside it: the addresses of both."""
    port = free_port()
    command = [sys.executable, "-m", "ottla", "start", "--registry", str(port)]
    for setting in ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}"):
        command += ["--override", setting]
    with open(tmp_path / "log", "wb") as log:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        lines = iter(broker.stdout.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"listening on \S*?(127\.0\.0\.1:\d+)", line)))
        yield address, f"http://127.0.0.1:{port}"
    finally:
        broker.terminate()
        broker.wait(60)
        broker.stdout.close()


def sent(producer: Producer, topic: str, value: bytes | None) -> KafkaError | None:
    """Send one record; returns its error."""
    told: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(60) == 0
    return told[0]


def test_only_records_with_a_schema_of_their_topic_are_taken(started: tuple[str, str]) -> None:
    bootstrap, url = started
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"confluent.value.schema.validation": "true"}
    topics = [NewTopic("orders", 1, config=config), NewTopic("others", 1, config=config), NewTopic("plain", 1)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    # The fast path takes one batch with acks=all; an idempotent producer sends again what it may.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    with SchemaRegistryClient({"url": url}) as registry:
        wait_until(lambda: _answers(registry), "the registry answers")
        serialize = AvroSerializer(registry, SCHEMA)
        value = serialize({"id": 7}, SerializationContext("orders", MessageField.VALUE))
        assert sent(producer, "orders", value) is None
        assert sent(producer, "orders", None) is None
        assert sent(producer, "orders", b'{"id": 7}').code() == KafkaError.INVALID_RECORD
        assert sent(producer, "orders", b"\0\0\0\x27\x0f" + value[5:]).code() == KafkaError.INVALID_RECORD
        assert sent(producer, "others", value).code() == KafkaError.INVALID_RECORD
        serialize({"id": 7}, SerializationContext("others", MessageField.VALUE))
        # That it is none of the other topic's is remembered for a second.
        wait_until(lambda: sent(producer, "others", value) is None, "the schema is known for the other topic, too")
        assert sent(producer, "plain", b'{"id": 7}') is None


def _answers(registry: SchemaRegistryClient) -> bool:
    try:
        return registry.get_subjects() == []
    except Exception:  # noqa: BLE001 - of the client's HTTP library, or the registry has not read its topic yet
        return False


def test_a_broker_without_a_registry_refuses_the_setting(bootstrap: str, unique) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(unique("orders"), 1, config={"confluent.value.schema.validation": "true"})
    [future] = admin.create_topics([topic]).values()
    with pytest.raises(KafkaException, match=r"confluent\.schema\.registry\.url"):
        future.result(60)
