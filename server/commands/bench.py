"""ottla bench: how quick a running cluster is, by a small load that is the same for any make of Kafka"""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING, Any

from ottla.server.client.options import add_connection, add_json, count, wants_json
from ottla.server.client.tables import print_json, print_pairs
from ottla.server.commands.asked import run_asking
from ottla.server.commands.outcome import EXIT_OK
from ottla.server.commands.produce import ACKS, CODECS

if TYPE_CHECKING:
    from ottla.server.client.cluster import Cluster
    from ottla.server.client.measuring import Load, Rate

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
    """The load."""
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
    """Measure, and tell."""
    return run_asking(lambda cluster: _bench(cluster, options), options)


def _bench(cluster: Cluster, options: argparse.Namespace) -> int:
    from ottla.server.client.measuring import Load
    from ottla.server.client.topics import create_topic, delete_topic
    from ottla.wire.compression import Compression

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
    from ottla.server.client.measuring import measure_reading, measure_round_trips, measure_writing, percentile
    from ottla.server.client.progress import Progress
    from ottla.server.client.releases import release_of

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
            ("cluster", f"serves what Apache Kafka {found['version']} serves"),
            ("load", f"{load}, {found['replicas']} replicas, acks={found['acks']}, compression {found['compression']}"),
            ("write", f"{write['records_per_s']:,} records/s, {write['mb_per_s']:,} MB/s{_waits(write['request_ms'])}"),
            ("read", f"{read['records_per_s']:,} records/s, {read['mb_per_s']:,} MB/s"),
            ("round trip", f"{trip['50']} ms, 99 % within {trip['99']} ms"),
        ]
    )


def _waits(request_ms: dict[str, float | None]) -> str:
    # With acks 0 nobody answers.
    return "" if request_ms["50"] is None else f"; a request {request_ms['50']} ms, 99 % within {request_ms['99']} ms"
