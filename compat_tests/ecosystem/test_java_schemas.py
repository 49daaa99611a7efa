"""Confluent's Java client of schema registries and Flink's Avro serializers, against `ottla registry`, beside Confluent's Python serializers."""

import json
import subprocess

import pytest
from compat_tests.applications.streams import make_topics, take
from compat_tests.ecosystem.programs import java_command
from compat_tests.registry.conftest import RegistryProcess
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.ecosystem
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "number", "type": "long"}]}


def test_java_and_python_read_one_anothers_values(start_broker, tmp_path):
    broker = start_broker()
    make_topics(broker.bootstrap, 1, "orders")
    registry = RegistryProcess(broker.bootstrap, "--alone").wait()
    try:
        client = SchemaRegistryClient({"url": registry.url})
        context = SerializationContext("orders", MessageField.VALUE)
        serialize = AvroSerializer(client, json.dumps(ORDER))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(1, 101):
            producer.produce("orders", serialize({"number": number}, context))
        assert producer.flush(60) == 0
        java = java_command("flink", "Schemas", tmp_path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        arguments = [broker.bootstrap, registry.url, "java/orders value", "orders"]
        done = subprocess.run([*java, *arguments], check=False, capture_output=True, text=True, timeout=240)
        assert done.stdout.strip() == "done", done.stdout + done.stderr
        deserialize = AvroDeserializer(client)
        values = [value for _, value in take(broker.bootstrap, "orders", lambda found: len(found) >= 200)]
        numbers = [deserialize(each, context)["number"] for each in values]
        assert numbers == [*range(1, 101), *range(2, 201, 2)]
        # Java found the schema that Python had registered.
        assert {each[:5] for each in values} == {values[0][:5]}
    finally:
        registry.stop()
