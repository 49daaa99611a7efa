"""Writes records that are no changes of the table, as other programs and other versions of a table do.

    python poison.py --bootstrap 127.0.0.1:9092

Each has the key of a row and an LSN above all others: a job that took one for a change would have another table.
"""

import argparse
import json
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError
from topic import TOPIC, UNAVAILABLE

KEY = b'{"id":1}'
ROW = {"id": 1, "name": "Ottla", "balance": 7}
LSN = 1 << 60
TOO_LARGE_BYTES = 400_000


def change(row: Any, operation: str = "u", lsn: Any = LSN) -> bytes:
    value = {"before": None, "after": row, "source": {"lsn": lsn}, "op": operation, "ts_ms": 0}
    return json.dumps(value).encode()


POISON = (
    (KEY, change(ROW)[:-20]),
    (KEY, change(ROW).replace(b"Ottla", b"\xff\xfe")),
    (KEY, b'["no object"]'),
    (KEY, json.dumps({"schema": None, "payload": ROW}).encode()),
    (b"someone", None),
    (KEY, change(ROW | {"balance": "much"})),
    (KEY, change(ROW | {"email": "o@example.org"})),
    (KEY, change({"id": 1, "name": "Ottla"})),
    (KEY, change(ROW | {"balance": None})),
    (KEY, change(ROW | {"name": UNAVAILABLE})),
    (KEY, change(ROW, lsn=None)),
    (None, change(None, "t")),
)
"""Keys and values."""


def write(bootstrap: str, topic: str) -> tuple[int, int]:
    """Write all of it, and a record that is too large; returns how many were written and how many refused."""
    written = refused = 0
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        for key, value in (*POISON, (KEY, change(ROW | {"name": "x" * TOO_LARGE_BYTES}))):
            try:
                producer.send(topic, value, key=key).get(timeout=60)
                written += 1
            except KafkaError as error:
                refused += 1
                print(f"  a record of {len(value or b''):,} bytes is refused: {type(error).__name__}", flush=True)
    finally:
        producer.close()
    return written, refused


def main() -> None:
    parser = argparse.ArgumentParser(description="Write records that are no changes.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    options = parser.parse_args()
    written, refused = write(options.bootstrap, options.topic)
    print(f"poison: {written} written, {refused} refused")


if __name__ == "__main__":
    main()
