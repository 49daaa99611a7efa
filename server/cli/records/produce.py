"""ottla produce TOPIC [FILE ...]: lines of stdin, or files, as records of a topic, with kcat's options"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.command_line import EXIT_OK, count, is_number
from ottla.server.cli.on_cluster import add_connection, client_settings, run_on_cluster

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster
    from ottla.server.cli.client.producer import Producer
    from ottla.wire.compression import Compression

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

DESCRIPTION = """\
Writes each line of stdin as a record, as soon as it is there. Options are kcat's. Records with a key go to the partition that
Kafka's own clients choose for it, others to any. Empty lines are left out. What is sent again after a lost connection is written
once (enable.idempotence), unless -X enable.idempotence=false or --acks says otherwise.
"""

EXAMPLES = """\
examples:
  echo hello | ottla produce greetings           one record
  ottla produce orders -l orders.txt -K :        each line of a file: key, colon, value
  ottla produce orders -H source=shop -z zstd    with a header, compressed
  ottla produce people -l people.jsonl -r http://localhost:8081 --value-schema person.avsc
                                                 JSON, written in Avro
  ottla produce pictures cat.png dog.png         each file as one record
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla produce`: the source of records and their form."""
    add = parser.add_argument
    add_connection(parser)
    add("names", nargs="*", metavar="TOPIC [FILE ...]", help="the topic, and files that are a record each")
    add("-t", "--topic", metavar="TOPIC", help="the topic; all names are files then")
    add("-l", "--lines", metavar="FILE", help="read records from a file, cut as those of stdin")
    add("-p", "--partition", type=_partition, default=-1, metavar="N", help="write to this one (-1: any)")
    add("-k", "--key", metavar="TEXT", help="the key of all records")
    add("-K", "--key-delimiter", metavar="TEXT", help="what is between key and value in each record")
    add("-D", "--delimiter", default="\\n", metavar="TEXT", help="what is between records (default: \\n)")
    add("-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of all records; repeatable")
    add("-Z", "--null", action="store_true", help="empty keys and values are null")
    add("-z", "--compression", choices=CODECS, default="none", help="how batches are compressed")
    registry = (
        "values are JSON, and are written by the latest schema of TOPIC-value in this registry; keys by TOPIC-key"
    )
    add("-r", "--schema-registry", metavar="URL", help=registry)
    add(
        "--value-schema", metavar="FILE", help="register this schema for the values, and use it: .avsc, .json or .proto"
    )
    add("--key-schema", metavar="FILE", help="the same for the keys; without a schema they are texts")
    add("-n", "-c", "--count", type=count, metavar="N", help="end after N records")
    add("-T", "--tee", action="store_true", help="print the records, too")
    add("--acks", choices=tuple(ACKS), default="all", help="who has to have a record (default: all)")
    add("-q", "--quiet", action="store_true", help="show no progress")


def _partition(text: str) -> int:
    if text == "-1":
        return -1
    if not is_number(text):
        raise argparse.ArgumentTypeError(f"{text} is not the number of a partition")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Write records until the input ends; return the exit code."""
    return run_on_cluster(lambda cluster: _produce(cluster, options), options)


def _produce(cluster: Cluster, options: argparse.Namespace) -> int:
    from ottla.server.cli.client.output import Progress
    from ottla.server.cli.client.producer import Producer, producer_sequences

    topic, files = _topic_and_files(options)
    if options.schema_registry is None and (options.value_schema or options.key_schema):
        raise UsageError("--value-schema and --key-schema need --schema-registry URL")
    maker = _BatchMaker(options)
    if not options.quiet:
        cluster.note_new_topic(topic)
    acks = ACKS[options.acks]
    producer = Producer(cluster, topic, acks, sequences=producer_sequences(cluster, client_settings(options), acks))
    try:
        if options.schema_registry is not None:
            maker.encode_by(_Encoder(topic, options))
        maker.choose(producer)
        is_typed = not files and options.lines is None and sys.stdin is not None and sys.stdin.isatty()
        progress = Progress(is_quiet=options.quiet or is_typed)
        size = 0
        for records in _limited(_source(files, options, producer), options.count):
            if options.tee:
                _print(records, maker.delimiter)
            producer.write(maker.batches(records))
            if maker.failure is not None:
                producer.settle()
                raise RequestFailed(f"{maker.failure}; {producer.acknowledged:,} records are written")
            size += sum(map(len, records))
            progress.note(producer.acknowledged, size)
        producer.settle()
        progress.end()
    finally:
        producer.close()
    return EXIT_OK


def _topic_and_files(options: argparse.Namespace) -> tuple[str, list[str]]:
    topic, names = options.topic, list(options.names)
    if topic is None:
        if not names:
            raise UsageError("which topic? ottla produce TOPIC")
        topic = names.pop(0)
    if names and options.lines is not None:
        raise UsageError("-l FILE and files that are a record each cannot be given together")
    return topic, names


def _source(files: list[str], options: argparse.Namespace, producer: Producer) -> Iterator[list[bytes]]:
    """Yield records from `files` or stdin, as lists that each fit one batch."""
    from ottla.server.cli.client.batches import RECORD_BYTES_MAX, records_in
    from ottla.server.cli.records.formats import unescaped

    if files:
        for path in files:
            with BufferedReader(_opened(path)) as file:  # a pipe gives it piece by piece
                data = file.read(RECORD_BYTES_MAX + 1)
            if len(data) > RECORD_BYTES_MAX:
                raise RequestFailed(f"{path} has more than {RECORD_BYTES_MAX:,} bytes, too many for a record")
            yield [data]
        return
    delimiter = unescaped(options.delimiter, "-D")
    if options.lines is None:
        if sys.stdin is None:
            raise UsageError("stdin is closed, and no -l FILE is given")
        yield from records_in(sys.stdin.fileno(), delimiter, producer.settle)
        return
    with _opened(options.lines) as file:
        yield from records_in(file.fileno(), delimiter, producer.settle)


def _opened(path: str) -> FileIO:
    try:
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _limited(source: Iterator[list[bytes]], count_max: int | None) -> Iterator[list[bytes]]:
    left = count_max
    for records in source:
        if left is None:
            yield records
            continue
        yield records[:left]
        left -= len(records)
        if left <= 0:
            return


def _print(records: list[bytes], delimiter: bytes) -> None:
    from ottla.server.cli.client.output import shown_bytes

    if sys.stdout.isatty():
        records = [shown_bytes(each).encode() for each in records]
    sys.stdout.buffer.write(delimiter.join(records) + delimiter)
    sys.stdout.buffer.flush()


class _BatchMaker:
    """Maker of batches from records, set up by the command line's options."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ottla.server.cli.client.batches import header_block, nullable
        from ottla.server.cli.records.formats import unescaped
        from ottla.wire.compression import Compression

        self.delimiter = _not_empty(unescaped(options.delimiter, "-D"), "-D")
        self._key_delimiter = None
        if options.key_delimiter is not None:
            self._key_delimiter = _not_empty(unescaped(options.key_delimiter, "-K"), "-K")
        self._codec: Compression = Compression[options.compression.upper()]
        self._headers_part = header_block([_header(each) for each in options.header])
        self._key = None if options.key is None else os.fsencode(options.key)
        self._key_part = nullable(self._key)
        self._null = options.null
        self._encoder: _Encoder | None = None
        self.failure: str | None = None
        """Reason why a record cannot be encoded; batches end before it."""
        self._encoded = 0
        self._partition: int = options.partition

    def choose(self, producer: Producer) -> None:
        """Choose the partitions to write to. Raises RequestFailed if the partition asked for does not exist."""
        from ottla.server.cli.client.producer import Spread, partition_of

        self._partitions = producer.partitions
        if self._partition >= 0:
            if self._partition not in self._partitions:
                raise RequestFailed(f"topic {producer.topic} has no partition {self._partition}")
            self._partitions = [self._partition]
        elif self._key is not None and self._key_delimiter is None and self._encoder is None:
            self._partitions = [partition_of(self._key, self._partitions)]
        self._sequences = producer.sequences
        self._spread = Spread(self._partitions, random.randrange(len(self._partitions)))

    def encode_by(self, encoder: _Encoder) -> None:
        """Encode keys and values by their schemas from now on."""
        self._encoder = encoder

    def batches(self, records: list[bytes]) -> dict[int, tuple[bytes, int]]:
        """Make a batch for each partition that gets records; return (batch, number of records) by partition."""
        from ottla.server.cli.client.batches import pairs_area, values_area

        if self._encoder is None and self._key_delimiter is None and not (self._null and b"" in records):
            partition = self._spread.next()
            area = values_area(records, self._key_part, self._headers_part)
            return {partition: self._batch(partition, area, len(records))}
        return {
            partition: self._batch(partition, pairs_area(pairs, self._headers_part), len(pairs))
            for partition, pairs in self._by_partition(records).items()
        }

    def _batch(self, partition: int, area: bytes, count: int) -> tuple[bytes, int]:
        from ottla.server.cli.client.batches import NOBODY, batch_of

        producer = NOBODY if self._sequences is None else self._sequences.take(partition, count)
        return batch_of(area, count, time.time_ns() // 1_000_000, self._codec, producer), count

    def _by_partition(self, records: list[bytes]) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        from ottla.server.cli.client.producer import partition_of

        found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        any_partition = self._spread.next()
        for record in records:
            key, separator, value = record.partition(self._key_delimiter) if self._key_delimiter else (record, b"", b"")
            given = key if separator else self._key
            value = value if separator else record
            shown = value or None if self._null else value
            given = given or None if self._null else given
            if self._encoder is not None:
                self._encoded += 1
                try:
                    given, shown = self._encoder.encoded(given, shown)
                except ValueError as error:
                    self.failure = f"record {self._encoded}: {error}"
                    break
            partition = any_partition if given is None else partition_of(given, self._partitions)
            found.setdefault(partition, []).append((given, shown))
        return found


class _Encoder:
    """Encoder of keys and values by the schemas of a registry."""

    def __init__(self, topic: str, options: argparse.Namespace) -> None:
        """Look the schemas up. Raises RequestFailed, UsageError."""
        from ottla.server.cli.records.formats import SCHEMAS

        self._values = import_module(SCHEMAS).RecordValues(options.schema_registry, client_settings(options))
        self._key_subject, self._value_subject = f"{topic}-key", f"{topic}-value"
        if not self._values.learn(self._value_subject, options.value_schema):
            raise RequestFailed(
                f"the registry has no subject {self._value_subject}: --value-schema FILE registers a schema"
            )
        self._has_key_schema = self._values.learn(self._key_subject, options.key_schema)

    def encoded(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Encode a record. Raises ValueError with the reason."""
        if key is not None and self._has_key_schema:
            key = self._values.encode(self._key_subject, key)
        return key, None if value is None else self._values.encode(self._value_subject, value)


def _not_empty(delimiter: bytes, option: str) -> bytes:
    if not delimiter:
        raise UsageError(f"{option}: a delimiter has at least one character")
    return delimiter


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Parse a header NAME=VALUE. As in kcat, the value is null without an equals sign."""
    name, separator, value = os.fsencode(text).partition(b"=")
    return name, value if separator else None
