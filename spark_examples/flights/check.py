"""Compares the topic `delays` with what plain Python finds.

    python check.py --bootstrap 127.0.0.1:9092

The job's Kafka sink is at least once: the last record of a key holds.
"""

import argparse
import json
import sys

import expected
from kafka import KafkaConsumer, TopicPartition
from reachable import require

SHOWN = 5

Key = tuple[str, str]
"""Hour and airport."""


def found(bootstrap: str, topic: str) -> dict[Key, expected.Delays]:
    """The last row of each hour and airport."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        rows = {}
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1000).values():
                rows.update(_row(json.loads(record.value)) for record in records)
        return rows
    finally:
        consumer.close()


def _row(value: dict) -> tuple[Key, expected.Delays]:
    hour = value["hour"].replace(".000Z", "Z")
    return (hour, value["origin"]), expected.Delays(*(value[name] for name in expected.Delays._fields))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the delays with what plain Python finds.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="", help="put before the names of the topics")
    options = parser.parse_args()
    require(options.bootstrap)
    rows, wanted = found(options.bootstrap, options.prefix + "delays"), expected.delays()
    for key in list(wanted)[:SHOWN]:
        print(*key)
        print("  found   ", *rows.get(key, ("nothing",)))
        print("  expected", *wanted[key])
    print(f"{len(rows):,} rows found, {len(wanted):,} expected")
    if rows != wanted:
        sys.exit("NOT EQUAL")
    print("equal")


if __name__ == "__main__":
    main()
