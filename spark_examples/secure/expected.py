"""The counts of each page in each ten seconds, found by plain Python in the bytes of the topic.

    python expected.py FOLDER          prints the first ones

Nothing here knows of Spark, windows or watermarks.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import roles
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

WIDTH_S = 10
ENDS_THE_DATA = "nobody"
"""User of the click, a day later, by which the watermark passes all others."""


def records(folder: Path, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, as the auditor reads them, in no group."""
    consumer = KafkaConsumer(enable_auto_commit=False, **roles.for_kafka_python(folder, roles.AUDITOR))
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[ConsumerRecord] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(timeout_ms=1000).values():
                found += some
        return found
    finally:
        consumer.close()


def results(some: Iterable[ConsumerRecord]) -> tuple[dict[str, int], dict[str, bytes | None]]:
    """Clicks by "page time", each click once by its id; and the values that are none, by "topic-partition-offset"."""
    clicks: dict[str, str] = {}
    dead: dict[str, bytes | None] = {}
    for record in some:
        try:
            click = json.loads(record.value or b"null")
            key = f"{click['page']} {_shown(datetime.fromisoformat(click['time']))}"
            if click["user"] != ENDS_THE_DATA:
                clicks[click["id"]] = key
        except (ValueError, TypeError, KeyError):
            dead[f"{record.topic}-{record.partition}-{record.offset}"] = record.value
    return dict(Counter(clicks.values())), dead


def _shown(time: datetime) -> str:
    begin = datetime.fromtimestamp(time.timestamp() // WIDTH_S * WIDTH_S, UTC)
    return begin.isoformat().replace("+00:00", "Z")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the first counts.")
    parser.add_argument("folder", type=Path)
    for key, count in sorted(results(records(parser.parse_args().folder, roles.CLICKS))[0].items())[:10]:
        print(key, count)


if __name__ == "__main__":
    main()
