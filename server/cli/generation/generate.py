"""ottla generate KIND: seeded test data with late, doubled and poisonous records, and the result that a job has to find"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ottla.server.cli.client.output import Progress, RequestFailed, UsageError, print_json, print_pairs, say
from ottla.server.cli.command_line import EXIT_OK, count
from ottla.server.cli.generation.arrival import (
    DATA_RATE,
    DELAY_RECORDS,
    Arrival,
    Encoding,
    Json,
    Kind,
    Row,
    Shares,
    Written,
)
from ottla.server.cli.generation.kinds import KINDS, TABLE_ROWS_MAX, Changes, Stated, names
from ottla.server.cli.on_cluster import (
    add_connection,
    add_json,
    client_settings,
    run_on_cluster,
    run_reporting,
    wants_json,
)
from ottla.server.cli.places import parse_time
from ottla.server.cli.records.produce import ACKS, CODECS

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster
    from ottla.server.cli.client.producer import Producer

RATE_MAX = 100_000
SHARES_MAX = 0.5
BEGIN = "2026-01-01T00:00:00Z"
BEGIN_MS_MIN = 31_536_000_000
"""The year 1971: late records have earlier times, and no record one before 1970."""

CHUNK_RECORDS = 1000
CHUNKS_A_SECOND = 10
ALL = ACKS["all"]
REGISTRY = "http://localhost:8081"

DESCRIPTION = """\
Writes data to try a job with, and the result that the job has to find. The same seed gives the same records on every machine.

  clicks   visitors of a shop               result: their sessions, which end after 30 s without a click
  posts    a feed of short posts            result: posts of each tag in each minute
  metrics  readings of hosts                result: count, min, max and sum by minute, host and metric
  changes  a table's changes (Debezium)     result: the rows of the table at the end

Values are JSON, or Avro with a schema registry, keyed by user, author, host or primary key. Late events are part of the result. Copies of
doubled ones are not, and poison is not: values that are cut, null, not UTF-8, no object, without a readable time, or of no known schema.
"""

EXAMPLES = f"""\
examples:
  ottla generate clicks --records 10000 --expected sessions.jsonl
  ottla generate metrics -t readings --late 0.05 --doubled 0.01 --poison 0.001 --closing
  ottla generate posts --rate 100 --begin now          100 a second, with the times of today
  ottla generate clicks --format avro --registry http://localhost:8081
  ottla generate changes --expected table.jsonl -c cleanup.policy=compact
  ottla generate changes --no-topic --statements changes.sql    for a database whose changes are captured

A late record and the copy of a doubled one come at most some {DELAY_RECORDS} records after their time. A topic that is not there is
created and keeps its records for ever, because the data is of {BEGIN[:10]} unless --begin says otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla generate`: the options of the data and of the topic."""
    add = parser.add_argument
    add_connection(parser)
    add_json(parser)
    add("kind", choices=tuple(names()), help="kind of data")
    add("-t", "--topic", metavar="TOPIC", help="where it is written to (default: named as the kind)")
    add("--records", type=count, default=10_000, metavar="N", help="records in all (default: 10000)")
    add("--seed", type=count, default=1, metavar="N", help="another seed, other data (default: 1)")
    for name, what in (("late", "come late"), ("doubled", "come twice"), ("poison", "are poison")):
        add(f"--{name}", type=_share, default=0.0, metavar="SHARE", help=f"share of records that {what}, such as 0.01")
    rate = f"records a second (default: as quickly as can be, with times as of {DATA_RATE} a second)"
    add("--rate", type=_rate, metavar="N", help=rate)
    begin = f"time of the first event, -1h or now (default: {BEGIN})"
    add("--begin", type=_begin, default=BEGIN, metavar="TIME", help=begin)
    add("--closing", action="store_true", help="add one record of a day later, so that watermarks pass all windows")
    add("--expected", type=Path, metavar="FILE", help="write the result to it, a JSON object a line")
    add("--statements", type=Path, metavar="FILE", help="write the changes of the table to it, too, as SQL statements")
    rows = "rows that the table of changes has before, which come first, as reads of a snapshot"
    add("--snapshot", type=count, default=0, metavar="N", help=rows)
    add("--no-topic", action="store_true", help="write only the files, and ask no broker")
    add("--format", choices=("json", "avro"), default="json", help="format of values (default: json)")
    add("--registry", metavar="URL", help=f"schema registry that gets Avro's schema (default: {REGISTRY})")
    add("-p", "--partitions", type=count, metavar="N", help="of a topic that is created (default: 4)")
    add("--replicas", type=count, default=1, metavar="N", help="of each partition of a topic that is created")
    setting = "setting of a topic that is created; repeatable"
    add("-c", "--config", action="append", default=[], metavar="SETTING=VALUE", help=setting)
    add("-z", "--compression", choices=CODECS, default="none", help="how batches are compressed")
    add("-q", "--quiet", action="store_true", help="show no progress")


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (share := float(text)) <= SHARES_MAX:
            return share
    raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to {SHARES_MAX}")


def _rate(text: str) -> int:
    rate = count(text)
    if rate > RATE_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {RATE_MAX} records a second")
    return rate


def _begin(text: str) -> int:
    """Parse a time to ms since 1970, as argparse's `type` of an option."""
    with contextlib.suppress(ValueError):
        if (found := parse_time(text, UTC)) >= BEGIN_MS_MIN:
            return found
    raise argparse.ArgumentTypeError(f"{text} is not a time such as {BEGIN}, -1h or now")


def run(options: argparse.Namespace) -> int:
    """Generate the records and the expected result; return the exit code."""
    if options.no_topic:
        return run_reporting(lambda: _generate(None, options))
    return run_on_cluster(lambda cluster: _generate(cluster, options), options)


def _generate(cluster: Cluster | None, options: argparse.Namespace) -> int:
    """Write generated records to a topic, and the files; without `cluster` (None) only the files."""
    _check(options)
    shares = Shares(options.late, options.doubled, options.poison)
    rate = options.rate or DATA_RATE
    topic = options.topic or options.kind
    encoding = _avro(options.kind, topic, options.registry or REGISTRY) if options.format == "avro" else Json()
    if cluster is not None:
        _prepare_topic(cluster, topic, options, options.begin)
    with _whole_file(options.expected) as file, _whole_file(options.statements) as statements:
        result = _Result(file)
        kind = _kind(options, result, rate)
        if statements is not None:
            kind = Stated(kind, statements.write)
        arrival = Arrival(kind, options.records, options.seed, options.begin, rate, shares, encoding)
        if cluster is not None:
            _write(cluster, topic, arrival, options)
        else:
            deque(arrival, maxlen=0)
    _show(topic, arrival, result, options)
    return EXIT_OK


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError if options are given that exclude each other."""
    if options.late + options.doubled + options.poison > SHARES_MAX:
        raise UsageError(f"--late, --doubled and --poison are more than {SHARES_MAX} together")
    if options.closing and options.kind == "changes":
        raise UsageError("--closing: changes of a table have no windows that could be closed")
    for name in ("statements", "snapshot"):
        if getattr(options, name) and options.kind != "changes":
            raise UsageError(f"--{name} is for changes: {options.kind} have no table")
    if options.snapshot > TABLE_ROWS_MAX:
        raise UsageError(f"--snapshot {options.snapshot}: the table has at most {TABLE_ROWS_MAX} rows")
    if options.registry is not None and options.format != "avro":
        raise UsageError("--registry is for --format avro")
    if options.no_topic and options.format == "avro":
        raise UsageError("--no-topic: without records there is nothing to be written as Avro")


def _kind(options: argparse.Namespace, result: _Result, rate: int) -> Kind:
    if options.snapshot:
        return Changes(result.add, rate, options.seed, options.snapshot)
    return KINDS[options.kind](result.add, rate, options.seed)


def _avro(kind: str, topic: str, registry: str) -> Encoding:
    from ottla.server.cli.generation.avro import SCHEMAS, Avro, registered

    return Avro(SCHEMAS[kind], registered(registry, f"{topic}-value", SCHEMAS[kind]))


class _Result:
    """Writer of the expected result: counts its rows, and writes them to `file` unless that is None."""

    def __init__(self, file: IO[str] | None) -> None:
        self._file = file
        self.rows = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")


@contextlib.contextmanager
def _whole_file(path: Path | None) -> Iterator[IO[str] | None]:
    """Yield a file under a temporary name and rename it at the end; yield None if `path` is None. Raises UsageError."""
    if path is None:
        yield None
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "w", encoding="ascii", newline="\n") as file:
            yield file
        os.replace(partial, path)
    except OSError as error:
        if error.filename in (str(partial), str(path)):
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        raise


def _prepare_topic(cluster: Cluster, topic: str, options: argparse.Namespace, begin_ms: int) -> None:
    """Create the topic, or check that the existing topic can hold the data. Raises RequestFailed."""
    from ottla.server.cli.administration.topics import create_topic, describe_topics

    configs = {"retention.ms": "-1"}
    for each in options.config:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise UsageError(f"-c {each}: must be SETTING=VALUE")
        configs[name] = value
    is_new = create_topic(cluster, topic, options.partitions or 4, options.replicas, configs, only_checks=False)
    if is_new:
        return
    if options.partitions is not None or options.config:
        raise RequestFailed(f"topic {topic} exists already: -p and -c are for one that is created")
    [described] = describe_topics(cluster, [topic], with_defaults=True)
    _refuse_short_retention(topic, described["configs"], begin_ms)
    held = sum((each["end_offset"] or 0) - (each["start_offset"] or 0) for each in described["partitions"])
    if held:
        say(f"topic {topic} has records already, and the expected result is of those alone that are written now")


def _refuse_short_retention(topic: str, configs: dict[str, Any], begin_ms: int) -> None:
    retention_ms = int(configs.get("retention.ms") or -1)
    age_ms = time.time_ns() // 1_000_000 - begin_ms
    if "delete" in str(configs.get("cleanup.policy")) and 0 <= retention_ms < age_ms:
        raise RequestFailed(
            f"topic {topic} keeps records for {retention_ms / 86_400_000:g} days (retention.ms), and the data begins "
            f"{age_ms / 86_400_000:.0f} days ago: give --begin now, or another topic"
        )


def _write(cluster: Cluster, topic: str, arrival: Arrival, options: argparse.Namespace) -> None:
    from ottla.server.cli.client.producer import Producer, producer_sequences

    sequences = producer_sequences(cluster, client_settings(options), ALL)
    producer = Producer(cluster, topic, ALL, sequences=sequences)
    progress = Progress(is_quiet=options.quiet)
    chunk_records = CHUNK_RECORDS
    if options.rate is not None:
        chunk_records = max(1, min(CHUNK_RECORDS, options.rate // CHUNKS_A_SECOND))
    began_s, written, size = time.monotonic(), 0, 0
    try:
        for chunk in _chunks(arrival, chunk_records, has_closing=options.closing):
            if options.rate is not None:
                time.sleep(max(0.0, began_s + written / options.rate - time.monotonic()))
            _send(producer, chunk, options.compression)
            written += len(chunk)
            size += sum(len(each.key) + len(each.value or b"") for each in chunk)
            if options.rate is not None:
                producer.settle()
            progress.note(producer.acknowledged, size)
        producer.settle()
        progress.end()
    finally:
        producer.close()


def _chunks(arrival: Arrival, size: int, *, has_closing: bool) -> Iterator[list[Written]]:
    records = iter(arrival)
    while chunk := list(islice(records, size)):
        yield chunk
    if has_closing and (last := arrival.closing()) is not None:
        yield [last]


def _send(producer: Producer, chunk: list[Written], compression: str) -> None:
    """Send records to the partitions that their keys determine, one batch for each partition."""
    from ottla.server.cli.client.batches import NOBODY
    from ottla.server.cli.client.producer import partition_of
    from ottla.wire.compression import Compression
    from ottla.wire.record_encoding import encode_batch
    from ottla.wire.records import Record

    parts: dict[int, list[Record]] = {}
    for each in chunk:
        place = partition_of(each.key, producer.partitions)
        parts.setdefault(place, []).append(Record(0, each.timestamp_ms, each.key, each.value))
    batches = {}
    for place, records in parts.items():
        sequences = producer.sequences
        known = NOBODY if sequences is None else sequences.take(place, len(records))
        batch = encode_batch(
            records,
            compression=Compression[compression.upper()],
            producer_id=known[0],
            producer_epoch=known[1],
            base_sequence=known[2],
        )
        batches[place] = batch, len(records)
    producer.write(batches)


def _show(topic: str, arrival: Arrival, result: _Result, options: argparse.Namespace) -> None:
    records = options.records + bool(options.closing and not options.no_topic)
    if wants_json(options):
        found = {
            "topic": None if options.no_topic else topic,
            "kind": options.kind,
            "seed": options.seed,
            "records": records,
            "events": arrival.events,
            "late": arrival.late,
            "lateness_ms": arrival.lateness_ms,
            "doubled": arrival.doubled,
            "tombstones": arrival.tombstones,
            "poison": dict(arrival.poison),
            "rows": result.rows,
        }
        print_json(found)
        return
    poison = ", ".join(f"{number} {name}" for name, number in sorted(arrival.poison.items()))
    print_pairs(
        [
            ("topic", "none" if options.no_topic else topic),
            ("records", f"{records:,}"),
            ("events", f"{arrival.events:,}"),
            ("late", f"{arrival.late:,}, by {arrival.lateness_ms / 1000:g} s at most"),
            ("doubled", f"{arrival.doubled:,}"),
            ("tombstones", f"{arrival.tombstones:,}"),
            ("poison", f"{arrival.poison.total():,}" + (f": {poison}" if poison else "")),
            ("result", f"{result.rows:,} rows" + (f" in {options.expected}" if options.expected else "")),
        ]
    )
