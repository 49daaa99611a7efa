"""The topic of changes as plain Python reads it: how many records of each kind it has, copies, and what is no change.

python topic.py --bootstrap 127.0.0.1:9092
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition

TOPIC = "bank.public.accounts"
COLUMNS = {"id": int, "name": str, "balance": int}
UNAVAILABLE = "__debezium_unavailable_value"
DEAD, TOMBSTONE = "dead", "tombstone"


def records(bootstrap: str, topic: str) -> Iterator[Any]:
    """The committed records up to the end that there is now; none if there is no such topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        if not places:
            return
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(timeout_ms=1000).values():
                yield from some
    finally:
        consumer.close()


def change_of(value: bytes) -> dict[str, Any] | None:
    """The change that a value tells; None if it tells none of this table."""
    try:
        change = json.loads(value.decode())
        row = change["after"]
        if change["op"] == "d":
            is_good = type(change["before"]["id"]) is int
        else:
            is_good = row.keys() == COLUMNS.keys() and all(type(row[name]) is kind for name, kind in COLUMNS.items())
            is_good = is_good and row["name"] != UNAVAILABLE
        is_good = is_good and change["op"] in ("r", "c", "u", "d") and type(change["source"]["lsn"]) is int
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return change if is_good else None


def is_tombstone(key: bytes | None, value: bytes | None) -> bool:
    """True for a null value with the key of a row."""
    try:
        return value is None and type(json.loads(key or b"")["id"]) is int
    except (ValueError, TypeError, KeyError):
        return False


class Told:
    """Count of a topic's records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        """Records by operation, tombstones, and dead ones."""

        self.dead: set[str] = set()
        """Places of records that tell no change: topic-partition-offset."""

        self._different: set[tuple[int, int, str]] = set()
        for record in records(bootstrap, topic):
            self._count(record)

    @property
    def copies(self) -> int:
        """Changes that came again: of the same row, with the same LSN."""
        return sum(count for kind, count in self.counts.items() if len(kind) == 1) - len(self._different)

    def _count(self, record: Any) -> None:
        if is_tombstone(record.key, record.value):
            self.counts[TOMBSTONE] += 1
        elif record.value is None or (change := change_of(record.value)) is None:
            self.counts[DEAD] += 1
            self.dead.add(f"{record.topic}-{record.partition}-{record.offset}")
        else:
            self.counts[change["op"]] += 1
            row = change["after"] or change["before"]
            self._different.add((row["id"], change["source"]["lsn"], change["op"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the records of the topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    options = parser.parse_args()
    told = Told(options.bootstrap, options.topic)
    print(dict(told.counts), f"{told.copies} copies")


if __name__ == "__main__":
    main()
