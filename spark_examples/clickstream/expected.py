"""The visits of each user, found by plain Python in the bytes of the topic.

    python expected.py --bootstrap 127.0.0.1:9092 --registry http://127.0.0.1:8081

Nothing here knows of Spark, windows, state or watermarks. Avro is read by Confluent's deserializer.
"""

import argparse
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from kafka import KafkaConsumer, TopicPartition

GAP = timedelta(seconds=30)
Visit = tuple[str, str, str, int, str, str]
"""User, first click, last click, number of clicks, the source of the first one, and the pages in their order."""


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """All values of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[bytes | None] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1000).values():
                found += (record.value for record in records)
        return found
    finally:
        consumer.close()


def clicks(some: Iterable[bytes | None], registry: str, topic: str) -> tuple[list[dict[str, Any]], int]:
    """Each click once, by its id, as the latest version of the schema has it; and the number of values that are none."""
    found: dict[str, dict[str, Any]] = {}
    poison = 0
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry}) as client:
        latest = client.get_latest_version(f"{topic}-value").schema.schema_str
        read = AvroDeserializer(client, latest)
        for value in some:
            try:
                click = read(value, context)
                found.setdefault(click["id"], click)
            # Its Avro library has no error of its own for bytes that end early.
            except (SerializationError, SchemaRegistryError, ValueError, TypeError, EOFError, IndexError):
                poison += 1
    return list(found.values()), poison


def visits(some: Iterable[dict[str, Any]]) -> list[Visit]:
    """All visits but those of nobody, whose only click ends the data."""
    by_user: dict[str, list[dict[str, Any]]] = {}
    # The id decides which of two clicks of one moment is the first.
    for click in sorted(some, key=lambda each: (each["time"], each["id"])):
        by_user.setdefault(click["user"], []).append(click)
    found: list[Visit] = []
    for user, clicked in by_user.items():
        begin = 0
        for index in range(1, len(clicked) + 1):
            if index == len(clicked) or clicked[index]["time"] - clicked[index - 1]["time"] > GAP:
                found.append(visit(user, clicked[begin:index]))
                begin = index
    return sorted(each for each in found if each[0] != "nobody")


def visit(user: str, clicked: list[dict[str, Any]]) -> Visit:
    pages = " ".join(click["page"] for click in clicked)
    return user, shown(clicked[0]["time"]), shown(clicked[-1]["time"]), len(clicked), clicked[0]["source"], pages


def shown(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first visits.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--topic", default="clicks")
    options = parser.parse_args()
    found, _ = clicks(values(options.bootstrap, options.topic), options.registry, options.topic)
    for each in visits(found)[:10]:
        print(*each)


if __name__ == "__main__":
    main()
