"""The same registry over brokers of Apache Kafka: its topic, and the group that elects its primary."""

from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


def test_two_instances_share_a_topic_and_have_one_primary(
    apache_kafka_4: Any, start_registry: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    names = ["--topic", unique("schemas"), "--group", unique("registries")]
    instances = [start_registry(apache_kafka_4.bootstrap, *names, alone=False) for _ in range(2)]
    number, text = Schema('"int"', "AVRO"), Schema('{"type":"object"}', "JSON")
    for index, instance in enumerate(instances):
        with SchemaRegistryClient({"url": instance.url}) as client:
            assert client.register_schema(f"number-{index}", number) == 1
            assert client.register_schema(f"text-{index}", text) == 2
    instances[0].stop()
    with SchemaRegistryClient({"url": instances[1].url}) as client:
        assert client.register_schema("long", Schema('"long"', "AVRO")) == 3
        assert client.get_subjects() == ["long", "number-0", "number-1", "text-0", "text-1"]
