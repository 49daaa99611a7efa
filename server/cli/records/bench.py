"""ottla bench: how quick a running cluster is, by a small load that is the same for any make of Kafka

Records are batched before the clock starts, and read by their batches: the cluster and the way to it are measured more than this
command, whose own cost is the same everywhere.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.server.cli.client.batches import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, batch_of, values_area
from ottla.server.cli.client.cluster import LATEST, Cluster, Partition, by_topic, offsets_at, release_of
from ottla.server.cli.client.consumer import AtEnd, Batch, Consumer
from ottla.server.cli.client.output import Progress, RequestFailed, print_json, print_pairs
from ottla.server.cli.client.producer import Producer
from ottla.server.cli.command_line import EXIT_OK, add_address, count
from ottla.server.cli.on_cluster import add_connection, add_json, run_on_cluster, wants_json
from ottla.server.cli.records.produce import ACKS, CODECS
from ottla.wire.compression import Compression

SIZE_MAX = 900_000

DESCRIPTION = """\
Measures a running cluster: writes records to a topic of its own, reads them back, and looks how long one record takes to a
reader that waits. The topic is deleted at the end. Load and client are the same for every cluster, so that two can be
compared: run it on a machine that has nothing else to do, several times and in turns.
"""

EXAMPLES = """\
examples:
  ottla bench                                    500,000 records of 100 bytes, acks=all
  ottla bench --records 50000 --size 10000 --partitions 6 --replicas 3
  for port in 9092 19092; do ottla bench -b localhost:$port --json; done
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla bench`: the load to write and read."""
    add_address(parser, "a broker of the cluster, as -b names it")
    add_connection(parser)
    add_json(parser)
    parser.add_argument("--records", type=count, default=500_000, metavar="N", help="how many (default: 500000)")
    parser.add_argument("--size", type=_size, default=100, metavar="BYTES", help="of each value (default: 100)")
    parser.add_argument("--partitions", type=count, default=1, metavar="N", help="of the topic (default: 1)")
    parser.add_argument("--replicas", type=count, default=1, metavar="N", help="of each partition (default: 1)")
    parser.add_argument("--acks", choices=tuple(ACKS), default="all", help="who has to have a record (default: all)")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="how batches are compressed")
    parser.add_argument("--round-trips", type=count, default=200, metavar="N", help="single records (default: 200)")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def _size(text: str) -> int:
    size = count(text)
    if size > SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {SIZE_MAX}")
    return size


def run(options: argparse.Namespace) -> int:
    """Measure the cluster's speed and print the results; return the exit code."""
    return run_on_cluster(lambda cluster: _bench(cluster, options), options)


def _bench(cluster: Cluster, options: argparse.Namespace) -> int:
    from ottla.server.cli.administration.topics import create_topic, delete_topic

    load = Load(
        options.records, options.size, ACKS[options.acks], Compression[options.compression.upper()], options.round_trips
    )
    topic = f"ottla-bench-{secrets.token_hex(6)}"
    create_topic(cluster, topic, options.partitions, options.replicas, {}, only_checks=False)
    try:
        found = _measured(cluster, topic, load, options)
    finally:
        delete_topic(cluster, topic)
    if wants_json(options):
        print_json(found)
    else:
        _show(found)
    return EXIT_OK


def _measured(cluster: Cluster, topic: str, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    [described] = cluster.topics([topic])
    begins = {(topic, each.partition_index): 0 for each in described.partitions}
    writing = measure_writing(cluster, topic, load, Progress(is_quiet=options.quiet))
    reading = measure_reading(cluster, begins, load, Progress(is_quiet=options.quiet))
    round_trips = measure_round_trips(cluster, topic, load)
    return {
        "version": release_of(cluster.first.versions),
        "records": load.records,
        "size": load.size,
        "partitions": options.partitions,
        "replicas": options.replicas,
        "acks": options.acks,
        "compression": options.compression,
        "write": _rate(writing)
        | {"request_ms": {str(each): _rounded(percentile(writing.request_ms, each)) for each in (50, 99)}},
        "read": _rate(reading),
        "round_trip_ms": {str(each): _rounded(percentile(round_trips, each)) for each in (50, 99)},
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "records": rate.records,
        "seconds": round(rate.seconds, 4),
        "records_per_s": round(rate.records_s),
        "mb_per_s": round(rate.megabytes_s, 1),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _show(found: dict[str, Any]) -> None:
    write, read, trip = found["write"], found["read"], found["round_trip_ms"]
    load = f"{found['records']:,} records of {found['size']:,} bytes, {found['partitions']} partitions"
    print_pairs(
        [
            ("cluster", f"compatible with Apache Kafka {found['version']}"),
            ("load", f"{load}, {found['replicas']} replicas, acks={found['acks']}, compression {found['compression']}"),
            ("write", f"{write['records_per_s']:,} records/s, {write['mb_per_s']:,} MB/s{_waits(write['request_ms'])}"),
            ("read", f"{read['records_per_s']:,} records/s, {read['mb_per_s']:,} MB/s"),
            ("round trip", f"{trip['50']} ms, 99 % within {trip['99']} ms"),
        ]
    )


def _waits(request_ms: dict[str, float | None]) -> str:
    # With acks 0 nobody answers.
    return "" if request_ms["50"] is None else f"; a request {request_ms['50']} ms, 99 % within {request_ms['99']} ms"


PREPARED_MAX = 8
"""Different batches; they are sent again and again."""

_NULL_KEY, _NO_HEADERS = b"\x01", b"\0"


class Load(NamedTuple):
    """Load that the benchmark writes and reads."""

    records: int
    size: int
    """Bytes of each value."""

    acks: int
    codec: Compression
    round_trips: int


class Rate(NamedTuple):
    """Measured speed. `request_ms`: duration of each request in ms, sorted."""

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
    """Return the value that `percent` % of the values do not exceed; None if there are no values."""
    if not sorted_values:
        return None
    return sorted_values[max(0, -(-len(sorted_values) * int(percent * 10) // 1000) - 1)]


def measure_writing(cluster: Cluster, topic: str, load: Load, progress: Progress) -> Rate:
    """Write the load to all partitions, with several requests in flight, and return the speed."""
    waits: list[float] = []
    producer = Producer(cluster, topic, load.acks, waits.append)
    per_batch = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES_MAX // load.size, load.records))
    prepared = [_batch(load, per_batch) for _ in range(min(PREPARED_MAX, -(-load.records // per_batch)))]
    last = _batch(load, load.records % per_batch) if load.records % per_batch else None
    partitions = producer.partitions
    try:
        began_s = time.perf_counter()
        for index in range(load.records // per_batch):
            producer.write({partitions[index % len(partitions)]: (prepared[index % len(prepared)], per_batch)})
            progress.note(producer.acknowledged, producer.acknowledged * load.size)
        if last is not None:
            producer.write({partitions[0]: (last, load.records % per_batch)})
        producer.settle()
        seconds = time.perf_counter() - began_s
    finally:
        producer.close()
        progress.end()
    return Rate(load.records, load.size, seconds, tuple(sorted(each * 1000 for each in waits)))


def measure_reading(cluster: Cluster, begins: dict[Partition, int], load: Load, progress: Progress) -> Rate:
    """Read all records from the offsets `begins` on and verify the checksums; return the speed."""
    ends = offsets_at(cluster, by_topic(list(begins)), LATEST)
    left = sum(ends[place] - begin for place, begin in begins.items())
    consumer = Consumer(cluster, begins, 0)
    count = 0
    try:
        began_s = time.perf_counter()
        for each in consumer:
            if isinstance(each, Batch):
                count += each.header.records_count
                progress.note(count, count * load.size)
            if count >= left:
                break
        seconds = time.perf_counter() - began_s
    finally:
        consumer.close_all()
        progress.end()
    return Rate(count, load.size, seconds)


def measure_round_trips(cluster: Cluster, topic: str, load: Load) -> tuple[float, ...]:
    """Return round-trip times in ms, sorted: from a record's write until a waiting consumer has the record."""
    producer = Producer(cluster, topic, load.acks)
    place = (topic, producer.partitions[0])
    begin = offsets_at(cluster, {topic: [place[1]]}, LATEST)[place]
    consumer = Consumer(cluster, {place: begin}, 0)
    found: list[float] = []
    try:
        batches = iter(consumer)
        for _ in range(load.round_trips):
            _wait_for_end(batches)
            began_s = time.perf_counter()
            producer.write({place[1]: (_batch(load, 1), 1)})
            if not isinstance(next(batches), Batch):
                raise RequestFailed(f"a record in {topic} was acknowledged and is not there")
            found.append((time.perf_counter() - began_s) * 1000)
            producer.settle()
    finally:
        producer.close()
        consumer.close_all()
    return tuple(sorted(found))


def _wait_for_end(batches: Iterator[Batch | AtEnd]) -> None:
    while isinstance(next(batches), Batch):
        pass


def _batch(load: Load, count: int) -> bytes:
    """Encode `count` records with random values, so that no compression codec has an advantage."""
    data = os.urandom(load.size * count)
    values = [data[start : start + load.size] for start in range(0, len(data), load.size)]
    return batch_of(values_area(values, _NULL_KEY, _NO_HEADERS), count, time.time_ns() // 1_000_000, load.codec)
