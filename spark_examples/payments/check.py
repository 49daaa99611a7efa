"""Compares the ledger and the dead letters with what plain bookkeeping finds, and accounts for each committed record.

python check.py --bootstrap 127.0.0.1:9092 --output /tmp/ledger
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import expected
from kafka import KafkaConsumer, TopicPartition


def committed_files(folder: Path) -> Iterator[Path]:
    """Files that the sink's log names: others are of a batch that was cut off, and Spark passes over them, too."""
    for log in sorted((folder / "_spark_metadata").glob("[!.]*")):
        for line in log.read_text().splitlines():
            if line.startswith("{") and (entry := json.loads(line))["action"] == "add":
                yield Path(unquote(urlparse(entry["path"]).path))


def ledger(folder: Path) -> list[expected.Booking]:
    files = set(committed_files(folder))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return sorted((row["payment"], row["account"], row["amount"]) for row in rows)


def committed_records(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic, in the order of each partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1000).values():
                found += records
        return found
    finally:
        consumer.close()


def dead_letters(bootstrap: str, topic: str) -> list[bytes | None]:
    """Each once, in the order in which they were found: the key names the offset."""
    letters = {record.key: record.value for record in committed_records(bootstrap, topic)}
    return [letters[key] for key in sorted(letters, key=lambda key: int(key.rpartition(b"-")[2]))]


def compare(bootstrap: str, topic: str, output: Path) -> list[str]:
    """What differs; shows the balances side by side."""
    found, wanted = ledger(output / "ledger"), expected.bookings()
    left, right = expected.balances(found), expected.balances(wanted)
    print("account       found  expected")
    for account in right:
        print(f"{account:12} {left[account]:6} {right[account]:9}")
    letters, records = dead_letters(bootstrap, f"{topic}-dead"), committed_records(bootstrap, topic)
    print(f"{len(records)} committed records: {len(found)} bookings, {len(letters)} dead letters")
    problems = []
    if found != wanted:
        problems.append("the bookings differ")
    if letters != expected.dead_letters():
        problems.append("the dead letters differ")
    if len(records) != len(found) + len(letters):
        problems.append("records are lost, or come twice")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the ledger with plain bookkeeping.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if problems := compare(options.bootstrap, options.topic, options.output):
        sys.exit("NOT EQUAL: " + ", ".join(problems))
    print("equal")


if __name__ == "__main__":
    main()
