"""Milliseconds of the lab's snapshots: python -m benchmarks.lab_snapshots [ROUNDS] [RECORDS] [GROUPS]

One broker of `ottla.testing` has 100,000 records of 100 bytes in six partitions, and 50 groups with an offset in each. A round
takes a snapshot, restores it, makes a fork of it, and opens and closes a fresh world; so often that the least of each tells
what it takes when nobody else has the processor. `restore` ends with a broker that serves clients.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ottla.testing import Kafka, Snapshot

ROUNDS, RECORDS, GROUPS = 100, 100_000, 50
PARTITIONS, BATCH, RECORD_BYTES = 6, 200, 100

T = TypeVar("T")


class Times:
    """Durations in ms, by the name of what was done."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}

    def of(self, name: str, do: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = do()
        self.by_name.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        return result

    def print(self) -> None:
        for name, each in self.by_name.items():
            print(f"{name:20} least {min(each):7.2f} ms   median {statistics.median(each):7.2f} ms")


def filled(records: int, groups: int) -> Kafka:
    kafka = Kafka()
    kafka.topic("orders", partitions=PARTITIONS)
    values = ["x" * RECORD_BYTES] * BATCH
    for number in range(records // BATCH):
        kafka.produce("orders", *values, partition=number % PARTITIONS)
    for number in range(groups):
        kafka.group(f"group-{number}").commit({("orders", partition): number for partition in range(PARTITIONS)})
    return kafka


def main(rounds: int = ROUNDS, records: int = RECORDS, groups: int = GROUPS) -> None:
    times = Times()
    with filled(records, groups) as kafka:
        for _ in range(rounds):
            snapshot = times.of("snapshot", kafka.snapshot)
            times.of("restore", partial(kafka.restore, snapshot))
            fork = times.of("fork", partial(Kafka.of, snapshot))
            times.of("close", fork.close)
            fresh = times.of("fresh world", Kafka)
            fresh.close()
        both = map(sum, zip(times.by_name["snapshot"], times.by_name["restore"], strict=True))
        times.by_name["snapshot + restore"] = list(both)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "orders.ottla"
            times.of("save", partial(snapshot.save, path))
            times.of("load", partial(Snapshot.load, path))
            times.print()
            print(f"{'size of the file':20} {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
