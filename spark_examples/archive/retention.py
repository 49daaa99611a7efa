"""Shortens a topic's retention and waits until the broker has deleted all of it, by its own timer.

    python retention.py --bootstrap 127.0.0.1:9092 --topic posts --keep-ms 1000

The broker looks for segments to delete every `log.retention.check.interval.ms`: five minutes by default, so start it with
`--override log.retention.check.interval.ms=1000` to see it at once. `--keep-ms -1` keeps all records that come from now on.
"""

import argparse
import time

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

PAUSE_S = 0.1


def set_retention(bootstrap: str, topic: str, keep_ms: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": str(keep_ms)})])
    finally:
        admin.close()


def wait_until_deleted(bootstrap: str, topic: str, patience_s: float) -> dict[int, int]:
    """Wait until all partitions begin where they end; returns their offsets."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        end = time.monotonic() + patience_s
        while (begins := consumer.beginning_offsets(places)) != consumer.end_offsets(places):
            if time.monotonic() > end:
                raise SystemExit(f"after {patience_s:g} s there are records yet")
            time.sleep(PAUSE_S)
        return {place.partition: offset for place, offset in begins.items()}
    finally:
        consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Let retention delete a topic's records.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--keep-ms", type=int, required=True)
    parser.add_argument("--patience-s", type=float, default=600)
    options = parser.parse_args()
    set_retention(options.bootstrap, options.topic, options.keep_ms)
    if options.keep_ms >= 0:
        print("  all partitions begin at", wait_until_deleted(options.bootstrap, options.topic, options.patience_s))


if __name__ == "__main__":
    main()
