"""The topic as plain Python reads it: its records, the state that they say, and whether they are compacted.

python log.py --bootstrap 127.0.0.1:9092          waits until the topic is compacted
"""

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TICK = b"tick"
PATIENCE_S, AGAIN_S = 300, 1
State = dict[str, int]
"""What places hold, by item@place."""


def records(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records, in the order of each partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
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


def state(bootstrap: str, topic: str) -> State:
    """What the last committed record of each key says; a tombstone says nothing."""
    last = {record.key.decode(): record.value for record in records(bootstrap, topic)}
    return {key: json.loads(value)["count"] for key, value in last.items() if value is not None}


def wait_until_compacted(bootstrap: str, topic: str) -> tuple[int, int]:
    """Returns the records in the log before and afterwards.

    The segment that is written to is not compacted. A tombstone of a key that nobody uses closes it, half a second after the last
    record.
    """
    before = len(records(bootstrap, topic, "read_uncommitted"))
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    end = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < end:
            time.sleep(AGAIN_S)
            for partition in (0, 1):
                producer.send(topic, None, key=TICK, partition=partition)
            producer.flush()
            found = [record for record in records(bootstrap, topic, "read_uncommitted") if record.key != TICK]
            if max(Counter(record.key for record in found).values()) == 1:
                return before, len(found)
    finally:
        producer.close()
    sys.exit(f"{topic} is not compacted after {PATIENCE_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Wait until the topic is compacted.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="stock")
    options = parser.parse_args()
    before, after = wait_until_compacted(options.bootstrap, options.topic)
    print(f"compacted: {before} records before, {after} now", flush=True)


if __name__ == "__main__":
    main()
