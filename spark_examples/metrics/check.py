"""Compares minutes, alerts and dead letters with what was written, and draws the dashboard.

python check.py --bootstrap 127.0.0.1:9092 --output /tmp/metrics
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import dashboard
import expected
from kafka import KafkaConsumer, TopicPartition

SHOWN = 5


def records(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic; none if it does not exist."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places) if places else {}
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(timeout_ms=1000).values():
                found += some
        return found
    finally:
        consumer.close()


def minutes(bootstrap: str, topic: str) -> dict[expected.Key, expected.Totals]:
    return dict(expected.row_of(json.loads(record.value)) for record in records(bootstrap, topic))


def problems(bootstrap: str, topic: str, output: Path) -> list[str]:
    """What differs; shows the first minutes side by side, and draws all."""
    found, wanted = minutes(bootstrap, f"{topic}-minutes"), expected.minutes(output)
    for key in sorted(wanted)[:SHOWN]:
        print(*key)
        print("  found   ", *found.get(key, ("nothing",)))
        print("  expected", *wanted[key])
    raised = records(bootstrap, f"{topic}-alerts")
    alerts, busy = (
        {record.key.decode() for record in raised},
        expected.busy(each.value for each in records(bootstrap, topic)),
    )
    letters = {record.key for record in records(bootstrap, f"{topic}-dead")}
    print(
        f"minutes: {len(found)} found, {len(wanted)} expected; readings: {sum(each.count for each in found.values())}"
    )
    print(f"alerts: {len(alerts)} found, {len(busy)} expected")
    print(f"dead letters: {len(letters)} found, {expected.poison(output)} expected")
    (output / "dashboard.svg").write_text(dashboard.drawn(found))
    print(f"dashboard: {output / 'dashboard.svg'}")
    differ = {
        "minutes": found != wanted,
        "alerts": alerts != busy,
        "dead letters": len(letters) != expected.poison(output),
        "headers or partitions": any(not _is_addressed(record) for record in raised),
    }
    return [name for name, is_so in differ.items() if is_so]


def _is_addressed(record: Any) -> bool:
    """An alert has its host as a header, and lies in the partition of that host."""
    host = json.loads(record.value)["host"]
    return list(record.headers) == [("host", host.encode())] and record.partition == int(host[5:]) % 2


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what the jobs found with what was written.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="metrics")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if differ := problems(options.bootstrap, options.topic, options.output):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
