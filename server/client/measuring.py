"""The load of `ottla bench`: the same for every cluster, and small enough for one that has other work.

Records are batched before the clock starts, and read by their batches, so that what is measured is the cluster and the way to it
more than this command; what it costs itself is the same everywhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.server.client.cluster import Cluster
from ottla.server.client.encoding import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, batch_of, values_area
from ottla.server.client.failures import AskingFailed
from ottla.server.client.fetching import AtEnd, Batch, Fetching
from ottla.server.client.offsets import LATEST, Partition, by_topic, offsets_at
from ottla.server.client.producing import Producing
from ottla.server.client.progress import Progress
from ottla.wire.compression import Compression

PREPARED_MAX = 8
"""Batches that differ; the same ones are sent again and again."""

_NULL_KEY, _NO_HEADERS = b"\x01", b"\0"


class Load(NamedTuple):
    """What is written and read."""

    records: int
    size: int
    """Bytes of each value."""

    acks: int
    codec: Compression
    round_trips: int


class Rate(NamedTuple):
    """How quick a load was. `request_ms`: how long each request took, sorted."""

    records: int
    size: int
    seconds: float
    request_ms: tuple[float, ...] = ()

    @property
    def records_s(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_s(self) -> float:
        return self.records * self.size / self.seconds / 1e6


def percentile(sorted_values: Sequence[float], percent: float) -> float | None:
    """The value that so many percent do not exceed; None of nothing."""
    if not sorted_values:
        return None
    return sorted_values[max(0, -(-len(sorted_values) * int(percent * 10) // 1000) - 1)]


def measure_writing(cluster: Cluster, topic: str, load: Load, progress: Progress) -> Rate:
    """Write the load with several requests under way, spread over all partitions."""
    waits: list[float] = []
    producing = Producing(cluster, topic, load.acks, waits.append)
    per_batch = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES_MAX // load.size, load.records))
    prepared = [_batch(load, per_batch) for _ in range(min(PREPARED_MAX, -(-load.records // per_batch)))]
    last = _batch(load, load.records % per_batch) if load.records % per_batch else None
    partitions = producing.partitions
    try:
        began_s = time.perf_counter()
        for index in range(load.records // per_batch):
            producing.write({partitions[index % len(partitions)]: (prepared[index % len(prepared)], per_batch)})
            progress.note(producing.acknowledged, producing.acknowledged * load.size)
        if last is not None:
            producing.write({partitions[0]: (last, load.records % per_batch)})
        producing.settle()
        seconds = time.perf_counter() - began_s
    finally:
        producing.close()
        progress.end()
    return Rate(load.records, load.size, seconds, tuple(sorted(each * 1000 for each in waits)))


def measure_reading(cluster: Cluster, begins: dict[Partition, int], load: Load, progress: Progress) -> Rate:
    """Read all that is there since these offsets, checksums included."""
    ends = offsets_at(cluster, by_topic(list(begins)), LATEST)
    left = sum(ends[place] - begin for place, begin in begins.items())
    fetching = Fetching(cluster, begins, 0)
    count = 0
    try:
        began_s = time.perf_counter()
        for each in fetching:
            if isinstance(each, Batch):
                count += each.header.records_count
                progress.note(count, count * load.size)
            if count >= left:
                break
        seconds = time.perf_counter() - began_s
    finally:
        fetching.close_all()
        progress.end()
    return Rate(count, load.size, seconds)


def measure_round_trips(cluster: Cluster, topic: str, load: Load) -> tuple[float, ...]:
    """How many ms pass until a reader that waits has a record that is written; sorted."""
    producing = Producing(cluster, topic, load.acks)
    place = (topic, producing.partitions[0])
    begin = offsets_at(cluster, {topic: [place[1]]}, LATEST)[place]
    fetching = Fetching(cluster, {place: begin}, 0)
    found: list[float] = []
    try:
        batches = iter(fetching)
        for _ in range(load.round_trips):
            _wait_for_end(batches)
            began_s = time.perf_counter()
            producing.write({place[1]: (_batch(load, 1), 1)})
            if not isinstance(next(batches), Batch):
                raise AskingFailed(f"a record in {topic} was acknowledged and is not there")
            found.append((time.perf_counter() - began_s) * 1000)
            producing.settle()
    finally:
        producing.close()
        fetching.close_all()
    return tuple(sorted(found))


def _wait_for_end(batches: Iterator[Batch | AtEnd]) -> None:
    while isinstance(next(batches), Batch):
        pass


def _batch(load: Load, count: int) -> bytes:
    """Bytes that do not repeat, so that compression has nothing to win from the choice."""
    data = os.urandom(load.size * count)
    values = [data[start : start + load.size] for start in range(0, len(data), load.size)]
    return batch_of(values_area(values, _NULL_KEY, _NO_HEADERS), count, time.time_ns() // 1_000_000, load.codec)
