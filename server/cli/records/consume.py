"""ottla consume TOPIC ...: records of a topic to stdout, with kcat's options"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import RequestFailed, UsageError, note_end
from ottla.server.cli.command_line import EXIT_OK, count, is_number, seconds
from ottla.server.cli.on_cluster import add_connection, client_settings, run_on_cluster
from ottla.server.standard_streams import check_reader

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.server.cli.client.consumer import AtEnd, Batch, Consumer
    from ottla.server.cli.records.bounds import Bounds
    from ottla.server.cli.records.formats import Decode
    from ottla.server.cli.records.paced_output import IdleClock
    from ottla.server.cli.records.printing import RecordPrinter

COMMITS = ("regularly", "each", "end", "never")
PROTOCOLS = ("classic", "consumer")
RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
}
"""Values of auto.offset.reset, of Kafka's clients and of librdkafka, as values of -o."""
ACKNOWLEDGEMENTS = ("accept", "release", "reject")

DESCRIPTION = """\
Prints the records of topics, and goes on with new ones until Ctrl-C. Options are kcat's. Records cannot control a terminal:
control characters are shown as escapes, and huge values are cut. A pipe or a file gets the bytes as they are.

With -g it is a member of that group: it reads the partitions that the group assigns to it from the committed offsets on, commits
how far its output is written, and leaves at the end. -o then says where partitions begin that have no committed offset.
"""

EXAMPLES = """\
examples:
  ottla consume orders                           all records, and then those that come
  ottla consume orders -e -f '%p %o %T %k=%s\\n'  to the end, with partition, offset, time and key
  ottla consume orders -o latest                 only those that come
  ottla consume orders -o -10 -n 10              the last ten of a topic with one partition
  ottla consume orders -o @-1h                   those of the last hour, and then those that come
  ottla consume orders -o @2026-11-28T09:00 -o e@2026-11-28T10:00
                                                 of one hour, local time; 09:00Z or 09:00+01:00 for another
  ottla consume orders -J -e | jq .payload       one JSON object a line
  ottla consume orders -r http://localhost:8081  Avro, JSON Schema and Protobuf as JSON
  ottla consume orders -g billing                as a member of the group billing
  ottla consume orders -g billing -e --commit never
                                                 what the group has not read yet, and it stays so
  ottla consume orders -g packing --share        as a consumer of the share group packing

format fields:
  %s %S  value and its length    %k %K  key and its length    %h  headers
  %t topic    %p partition    %o offset    %T timestamp in ms
  %R length of the value as 32 bits    %% a percent sign
  \\n \\r \\t \\xNN characters
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla consume`: the choice of records and the output format."""
    add_connection(parser)
    topics = "whose records are read; ^PATTERN: all topics whose names begin so, by a regular expression"
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=topics)
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="the same; repeatable")
    parser.add_argument("-p", "--partitions", metavar="N,N", help="only these partitions")
    bounds = (
        "where to begin: earliest (the default), latest, an offset, -N from the end, @TIME such as @2026-11-28T10:30,"
        " @-1h or s@MS; stored: what the group has committed; e@TIME: where to end"
    )
    parser.add_argument("-o", "--offset", action="append", default=[], metavar="OFFSET", help=bounds)
    parser.add_argument("--from-beginning", action="store_true", help="begin with the first record: -o earliest")
    parser.add_argument("-n", "-c", "--count", "--max-messages", type=count, metavar="N", help="end after N records")
    parser.add_argument("-e", "--exit", action="store_true", help="end at the end of the topics")
    idle = "end when no record has come for so many seconds"
    parser.add_argument("--idle", type=seconds, metavar="S", help=idle)
    parser.add_argument("--follow", action="store_true", help="go on with new records, as without -e; wins over it")
    _add_group(parser)
    _add_form(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="do not report the ends of partitions")
    levels = "read_committed", "read_uncommitted"
    about = "whether records of transactions that are aborted or open are left out (default: they are)"
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help=about)


def _add_group(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("group").add_argument
    add("-g", "-G", "--group", metavar="GROUP", help="read as a member of this group, and commit offsets")
    commits = "regularly: every 5 s and at the end (the default); each: after each record; end: at the end alone; never"
    add("--commit", choices=COMMITS, help=commits)
    protocols = "classic (the default), or consumer: that of KIP-848, where the broker assigns"
    add("--share", action="store_true", help="GROUP is a share group: records are acknowledged one by one when written")
    types = "with --share, what becomes of written records: accept (the default), release, or reject"
    add("--acknowledge", choices=ACKNOWLEDGEMENTS, help=types)
    add("--group-protocol", choices=PROTOCOLS, help=protocols)


def _add_form(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", metavar="FORMAT", help="how a record is printed; see below")
    form.add_argument("-J", "--json", action="store_true", help="as a JSON object, one a line, with kcat's names")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print keys, with this between key and value")
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="after each record (default: \\n)")
    registry = "show keys and values that have a schema in this registry as JSON: Avro, JSON Schema and Protobuf"
    parser.add_argument("-r", "--schema-registry", metavar="URL", help=registry)
    parser.add_argument("-Z", "--null", action="store_true", help="print null keys and values as NULL, not empty")


def run(options: argparse.Namespace) -> int:
    """Print records until the requested end, or until Ctrl-C; return the exit code."""
    options.exit = options.exit and not options.follow

    def consume(cluster: Cluster) -> int:
        if options.share or options.acknowledge is not None:
            _consume_shared(cluster, options)
            return EXIT_OK
        if options.group is not None:
            _consume_in_group(cluster, options)
            return EXIT_OK
        if options.commit is not None or options.group_protocol is not None:
            raise UsageError("--commit and --group-protocol need a group: -g GROUP")
        with suppress(KeyboardInterrupt):  # how this command usually ends
            _consume(cluster, options)
        return EXIT_OK

    return run_on_cluster(consume, options)


def _bounds(options: argparse.Namespace) -> Bounds:
    from ottla.server.cli.records.bounds import parse_bounds

    texts = [*options.offset, *(["earliest"] if options.from_beginning else [])]
    reset = client_settings(options).get("auto.offset.reset") if options.group is not None and not texts else None
    bounds = parse_bounds([RESETS[reset]] if reset in RESETS else texts)
    if bounds.is_stored and options.group is None:
        raise UsageError("-o stored needs a group: -g GROUP")
    return bounds


def _isolation(options: argparse.Namespace) -> int:
    from ottla.server.cli.client.cluster import READ_COMMITTED

    return READ_COMMITTED if options.isolation_level == "read_committed" else 0


def _consume(cluster: Cluster, options: argparse.Namespace) -> None:
    from ottla.server.cli.client.consumer import Batch, Consumer
    from ottla.server.cli.client.output import Progress
    from ottla.server.cli.records.bounds import begin_and_end
    from ottla.server.cli.records.paced_output import IdleClock

    isolation = _isolation(options)
    printer, bounds = _printer(options), _bounds(options)
    places = begin_and_end(cluster, _partitions(cluster, options), bounds, isolation)
    ends = {place: end for place, (_, end) in places.items() if end is not None}
    begins = {place: begin for place, (begin, _) in places.items() if begin < ends.get(place, begin + 1)}
    consumer = Consumer(cluster, begins, isolation)
    progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
    idle = IdleClock(options.idle)
    size = 0
    try:
        for each in _events(consumer, idle):
            if isinstance(each, Batch):
                idle.restart()
                end = ends.get(each.place)
                size += _write(printer.printed(each, end))
                if printer.failure is not None:
                    raise printer.failure
                progress.note(printer.count, size)
                if end is not None and each.header.next_offset >= end:
                    consumer.close(each.place)
            else:
                progress.end()
                _at_end(consumer, each, ends, options)
            if printer.is_done:
                break
    finally:
        progress.end()
        consumer.close_all()


def _events(consumer: Consumer, idle: IdleClock) -> Iterator[Batch | AtEnd]:
    while consumer.positions and not idle.is_over():
        check_reader()
        yield from consumer.round()


def _write(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)


def _at_end(consumer: Consumer, at_end: AtEnd, ends: dict[Partition, int], options: argparse.Namespace) -> None:
    is_over = options.exit or at_end.offset >= ends.get(at_end.place, at_end.offset + 1)
    if not options.quiet:
        note_end(*at_end, is_last=is_over and len(consumer.positions) == 1)
    if is_over:
        consumer.close(at_end.place)


# --- in a group


def _consume_shared(cluster: Cluster, options: argparse.Namespace) -> None:
    from ottla.server.cli.records.consume_shared import consume_shared

    if options.group is None or not options.share:
        raise UsageError("--share needs -g GROUP, and --acknowledge needs --share")
    others = {
        "-o": options.offset or options.from_beginning,
        "-p": options.partitions,
        "--commit": options.commit,
        "--group-protocol": options.group_protocol,
    }
    for option in (name for name, value in others.items() if value):
        raise UsageError(f"{option} and --share cannot be given together: a share group has share.* settings instead")
    printer = _printer(options)
    consume_shared(cluster, list(_partitions(cluster, options)), printer, options)


def _consume_in_group(cluster: Cluster, options: argparse.Namespace) -> None:
    from ottla.server.cli.records.consume_in_group import consume_in_group

    if options.partitions is not None:
        raise UsageError("-p and -g cannot be given together: the group assigns partitions")
    protocol = (options.group_protocol or client_settings(options).get("group.protocol", PROTOCOLS[0])).lower()
    if protocol not in PROTOCOLS:
        raise UsageError(f"group.protocol={protocol}: must be classic or consumer")
    printer, bounds = _printer(options), _bounds(options)
    topics = list(_partitions(cluster, options))
    consume_in_group(cluster, topics, protocol, printer, (bounds, _isolation(options)), options)


def _printer(options: argparse.Namespace) -> RecordPrinter:
    from ottla.server.cli.records.formats import (
        decoding,
        json_printer,
        parse_format,
        raw_printer,
        shown_printer,
        unescaped,
        usual_format,
    )
    from ottla.server.cli.records.printing import RecordPrinter, batch_printer

    delimiter = unescaped(options.delimiter, "-D")
    decode = None if options.schema_registry is None else _decoder(options)
    if options.json:
        return RecordPrinter(json_printer(delimiter, decode), None, options.count)
    if options.format is not None:
        chosen = parse_format(options.format, is_null_shown=options.null)
    else:
        key_delimiter = None if options.key_delimiter is None else unescaped(options.key_delimiter, "-K")
        chosen = usual_format(delimiter, key_delimiter, is_null_shown=options.null)
    is_raw = not sys.stdout.isatty()
    print_record = raw_printer(chosen) if is_raw else shown_printer(chosen)
    if decode is not None:
        return RecordPrinter(decoding(print_record, decode), None, options.count)
    return RecordPrinter(print_record, batch_printer(chosen) if is_raw else None, options.count)


def _decoder(options: argparse.Namespace) -> Decode:
    from ottla.server.cli.records.formats import SCHEMAS

    found: Decode = import_module(SCHEMAS).RecordValues(options.schema_registry, client_settings(options)).decode
    return found


def _partitions(cluster: Cluster, options: argparse.Namespace) -> dict[str, list[int]]:
    names = _topics(cluster, list(dict.fromkeys([*options.topics, *options.topic])))
    topics = {each.name or "": [part.partition_index for part in each.partitions] for each in cluster.topics(names)}
    if options.partitions is None:
        return topics
    wanted = options.partitions.split(",")
    if not all(is_number(each) for each in wanted):
        raise UsageError(f"-p {options.partitions}: must be numbers of partitions with commas between")
    numbers = sorted(set(map(int, wanted)))
    for name, known in topics.items():
        for number in numbers:
            if number not in known:
                raise RequestFailed(f"topic {name} has no partition {number}; it has {len(known)}, from 0 on")
    return dict.fromkeys(topics, numbers)


def _topics(cluster: Cluster, given: list[str]) -> list[str]:
    """Replace patterns, which begin with ^ as no topic does, by the topics that match. Raises UsageError, RequestFailed."""
    if not given:
        raise UsageError("which topic? ottla consume TOPIC")
    patterns = [each for each in given if each.startswith("^")]
    if not patterns:
        return given
    known = [each.name or "" for each in cluster.metadata(None).topics if not each.is_internal]
    found = [each for each in given if each not in patterns]
    for pattern in patterns:
        try:
            matching = [each for each in known if re.match(pattern, each)]
        except re.error as error:
            raise UsageError(f"{pattern}: {error}") from None
        if not matching:
            raise RequestFailed(f"no topic matches {pattern}")
        found += sorted(matching)
    return list(dict.fromkeys(found))
