"""The visits of each user, found by plain Python in the bytes of the topic.

    python expected.py --bootstrap 127.0.0.1:9092

Nothing here knows of Spark, windows or watermarks.
"""

import argparse
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from kafka import KafkaConsumer, TopicPartition

GAP = timedelta(seconds=30)
Visit = tuple[str, str, str, int]
"""User, first click, last click, and the number of clicks."""


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


def clicks(some: Iterable[bytes | None]) -> tuple[dict[str, Any], int]:
    """Each click once, by its id, and the number of values that are none."""
    found, poison = {}, 0
    for value in some:
        try:
            click = json.loads(value or b"null")
            found[click["id"]] = (click["user"], datetime.fromisoformat(click["time"]))
        except (ValueError, TypeError, KeyError):
            poison += 1
    return found, poison


def visits(some: Iterable[tuple[str, datetime]]) -> list[Visit]:
    """All visits but those of nobody, whose only click ends the data."""
    times: dict[str, list[datetime]] = {}
    for user, time in sorted(some, key=lambda click: click[1]):
        times.setdefault(user, []).append(time)
    found: list[Visit] = []
    for user, clicked in times.items():
        begin = 0
        for index in range(1, len(clicked) + 1):
            if index == len(clicked) or clicked[index] - clicked[index - 1] > GAP:
                found.append((user, shown(clicked[begin]), shown(clicked[index - 1]), index - begin))
                begin = index
    return sorted(visit for visit in found if visit[0] != "nobody")


def shown(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first visits.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="clicks")
    options = parser.parse_args()
    for visit in visits(clicks(values(options.bootstrap, options.topic))[0].values())[:10]:
        print(*visit)


if __name__ == "__main__":
    main()
