"""Writes the moves to the compacted topic `stock`: what each place holds of an item, as the last record of its key.

    python move.py --bootstrap 127.0.0.1:9092

A move is one transaction, because it changes two keys. A place that has nothing left of an item gets a tombstone. Every fifth move is
given up after its records were written: they are in the log, and no reader with read_committed may see them.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import TopicAlreadyExistsError
from kafka.producer.future import FutureRecordMetadata
from warehouse import OUTSIDE, Move, moves

# A segment is closed after half a second, and cleaned however little of it is obsolete.
SOON_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def create_topic(bootstrap: str, topic: str, configs: Mapping[str, str] = SOON_COMPACTED) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1, "configs": configs}})
    finally:
        admin.close()


class Clerk:
    """Writes down what places hold."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.stock: dict[str, int] = {}
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"clerk-of-{topic}")
        self.producer.init_transactions()

    def move(self, move: Move) -> None:
        """Write both ends of a move, or begin to and give it up."""
        changed = {f"{move.item}@{move.target}": move.count}
        if move.source != OUTSIDE:
            changed[f"{move.item}@{move.source}"] = -move.count
        after = {key: self.stock.get(key, 0) + change for key, change in changed.items()}
        self.producer.begin_transaction()
        sent = [self._write(key, -1 if move.is_aborted else count, move.number) for key, count in after.items()]
        for each in sent:
            each.get(timeout=60)
        if move.is_aborted:
            self.producer.abort_transaction()
        else:
            self.producer.commit_transaction()
            self.stock.update(after)

    def write(self, key: bytes | None, value: bytes | None) -> None:
        """Write and commit whatever it is. Raises KafkaError if the broker refuses it."""
        self.producer.begin_transaction()
        try:
            self.producer.send(self.topic, value, key=key).get(timeout=60)
        except BaseException:
            self.producer.abort_transaction()
            raise
        self.producer.commit_transaction()

    def _write(self, key: str, count: int, number: int) -> FutureRecordMetadata:
        item, _, place = key.partition("@")
        state = {"item": item, "place": place, "count": count, "move": number}
        return self.producer.send(self.topic, json.dumps(state).encode() if count else None, key=key.encode())

    def close(self) -> None:
        self.producer.close()


def write_moves(clerk: Clerk, some: Iterable[Move]) -> None:
    for move in some:
        clerk.move(move)
        if move.number % 100 == 99:
            print(f"  {move.number + 1} moves are written", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the moves of a warehouse to a compacted topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="stock")
    options = parser.parse_args()
    try:
        create_topic(options.bootstrap, options.topic)
    except TopicAlreadyExistsError:
        sys.exit(f"The topic {options.topic} exists. Delete it, or choose a --topic.")
    clerk = Clerk(options.bootstrap, options.topic)
    write_moves(clerk, moves())
    clerk.close()


if __name__ == "__main__":
    main()
