"""Writes the clicks of the shop's pages as Avro, with Confluent's serializer and a schema registry.

    python collect.py --bootstrap 127.0.0.1:9092 --registry http://127.0.0.1:8081

Takes the JSON of `ottla generate clicks` from the topic `pages`. The first half is written by the first version of the schema, the rest
by the second one, which adds a field: as when a new release of the shop is rolled out. What is no click is written as some program
would that knows nothing of the schema: as it came, or cut, or with an id that no registry has given out.
"""

import argparse
import json
import struct
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafka import KafkaConsumer, TopicPartition

FIELDS: list[dict[str, Any]] = [
    *({"name": name, "type": "string"} for name in ("id", "user", "page", "device")),
    {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
SOURCES = ("search", "mail", "direct")
SOURCE = {"name": "source", "type": "string", "default": "unknown"}
FIRST, SECOND = (
    json.dumps({"type": "record", "name": "Click", "namespace": "shop", "fields": fields})
    for fields in (FIELDS, [*FIELDS, SOURCE])
)
POISON = ("as it came", "of no schema", "cut")
UNKNOWN_ID = 0x7FFFFFFF


def click_of(value: bytes | None) -> dict[str, Any] | None:
    """A click; None for what is none."""
    try:
        click = json.loads(value or b"null")
        source = SOURCES[sum(click["id"].encode()) % len(SOURCES)]
        return {**click, "time": datetime.fromisoformat(click["time"]), "source": source}
    except (ValueError, TypeError, KeyError):
        return None


def poison(number: int, value: bytes | None, good: bytes) -> bytes | None:
    """Bytes that cannot be read, in turns in three ways."""
    kind = POISON[number % len(POISON)]
    if kind == "cut":
        return good[:12]
    return value if kind == "as it came" else struct.pack(">bI", 0, UNKNOWN_ID) + good[5:]


def collect(bootstrap: str, registry: str, pages: str, topic: str) -> dict[str, int]:
    """Write all records to the partitions that they are in, with their times. Returns how many of each kind there were."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    counts = {"first": 0, "second": 0, "poison": 0}
    releases: dict[str, str] = {}
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        """Remember that a click was not written: without a look at each of them nobody would know."""
        if error is not None:
            refused.append(error)

    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry}) as client:
        # Registered in this order, whichever partition is read first.
        writers = {name: AvroSerializer(client, schema) for name, schema in (("first", FIRST), ("second", SECOND))}
        some = {"id": "0", "user": "u", "page": "/", "device": "none", "time": datetime.now(UTC), "source": "direct"}
        good, _ = (writer(some, context) for writer in writers.values())
        places = [TopicPartition(pages, index) for index in sorted(consumer.partitions_for_topic(pages) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(timeout_ms=1000).items():
                for record in records:
                    click = click_of(record.value)
                    if click is None:
                        kind, value = "poison", poison(counts["poison"], record.value, good)
                    else:
                        # A click that comes twice is the same both times: whoever sends again sends the same bytes.
                        kind = releases.setdefault(
                            click["id"], "first" if record.offset < ends[place] // 2 else "second"
                        )
                        value = writers[kind](click, context)
                    counts[kind] += 1
                    producer.produce(
                        topic, value, record.key, place.partition, timestamp=record.timestamp, on_delivery=note
                    )
                producer.poll(0)
    consumer.close()
    left = producer.flush(60)
    if left or refused:
        raise SystemExit(f"{left + len(refused)} clicks were not written: {[str(each) for each in refused[:1]]}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Write clicks as Avro.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--pages", default="pages", help="topic with JSON")
    parser.add_argument("--topic", default="clicks", help="topic for Avro, with as many partitions")
    options = parser.parse_args()
    counts = collect(options.bootstrap, options.registry, options.pages, options.topic)
    print("  collected:", ", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
