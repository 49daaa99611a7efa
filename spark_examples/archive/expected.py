"""Checksums of ranges of a topic, read by a client that has nothing to do with Spark.

python expected.py --bootstrap 127.0.0.1:9092 --topic posts
"""

import argparse
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaConsumer, TopicPartition

Record = Any


def records(bootstrap: str, topic: str) -> list[Record]:
    """All records, in the order of each partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(timeout_ms=1000).values():
                found += some
        return found
    finally:
        consumer.close()


def checksum(some: Iterable[Record]) -> str:
    """SHA-256 of partitions, keys and values, in the order of each partition."""
    digest = hashlib.sha256()
    for record in sorted(some, key=lambda each: (each.partition, each.offset)):
        for part in (record.key, record.value):
            size = -1 if part is None else len(part)
            digest.update(f"{record.partition} {size} ".encode() + (part or b""))
    return digest.hexdigest()


def between_offsets(first: int, behind: int) -> Callable[[Record], bool]:
    return lambda record: first <= record.offset < behind


def between_times(first_ms: int, behind_ms: int) -> Callable[[Record], bool]:
    return lambda record: first_ms <= record.timestamp < behind_ms


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the checksum of a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    options = parser.parse_args()
    print(checksum(records(options.bootstrap, options.topic)))


if __name__ == "__main__":
    main()
