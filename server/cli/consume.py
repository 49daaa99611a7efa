"""ottla consume TOPIC ...: records of a topic to stdout, with kcat's options"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import RequestFailed, UsageError, note
from ottla.server.cli.command_line import EXIT_OK, count, is_number
from ottla.server.cli.on_cluster import add_connection, client_settings, run_on_cluster
from ottla.server.standard_streams import check_reader

if TYPE_CHECKING:
    from ottla.server.cli.client.bounds import Bounds
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.server.cli.client.consumer import AtEnd, Batch, Consumer
    from ottla.server.cli.client.formats import Decode
    from ottla.server.cli.client.group_consumer import GroupConsumer
    from ottla.server.cli.client.paced_output import Interruption
    from ottla.server.cli.client.printing import RecordPrinter

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
NAMED_MAX = 5
"""Partitions that are named in the line about what is committed."""

DESCRIPTION = """\
Prints the records of topics, and goes on with new ones until Ctrl-C. Options are kcat's. On a terminal control characters in
records are shown and never obeyed, and huge values are cut; a pipe or a file gets the bytes as they are.

With -g it is a member of that group: it reads the partitions that the group assigns to it from the committed offsets on, commits
how far its output is written, and leaves at the end. -o then says where to begin what the group has committed nothing of.
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
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="whose records are read")
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
    parser.add_argument("--follow", action="store_true", help="go on with new records, as without -e; wins over it")
    _add_group(parser)
    _add_form(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of ends that are reached")
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
    from ottla.server.cli.client.bounds import parse_bounds

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
    from ottla.server.cli.client.bounds import begin_and_end
    from ottla.server.cli.client.consumer import Batch, Consumer
    from ottla.server.cli.client.output import Progress

    isolation = _isolation(options)
    printer, bounds = _printer(options), _bounds(options)
    places = begin_and_end(cluster, _partitions(cluster, options), bounds, isolation)
    ends = {place: end for place, (_, end) in places.items() if end is not None}
    begins = {place: begin for place, (begin, _) in places.items() if begin < ends.get(place, begin + 1)}
    consumer = Consumer(cluster, begins, isolation)
    progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
    size = 0
    try:
        for each in _events(consumer):
            if isinstance(each, Batch):
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


def _events(consumer: Consumer) -> Iterator[Batch | AtEnd]:
    while consumer.positions:
        check_reader()
        yield from consumer.round()


def _write(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)


def _at_end(consumer: Consumer, at_end: AtEnd, ends: dict[Partition, int], options: argparse.Namespace) -> None:
    is_over = (options.exit and not options.follow) or at_end.offset >= ends.get(at_end.place, at_end.offset + 1)
    if not options.quiet:
        _say_end(at_end, is_last=is_over and len(consumer.positions) == 1)
    if is_over:
        consumer.close(at_end.place)


def _say_end(at_end: AtEnd, *, is_last: bool) -> None:
    topic, number = at_end.place
    what = ": exiting" if is_last else ""
    print(f"% Reached end of topic {topic} [{number}] at offset {at_end.offset}{what}", file=sys.stderr, flush=True)


# --- in a group


def _consume_shared(cluster: Cluster, options: argparse.Namespace) -> None:
    from ottla.server.cli.consume_shared import consume_shared

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
    from ottla.server.cli.client.group_consumer import COMMIT_S, GroupConsumer
    from ottla.server.cli.client.membership import member_of
    from ottla.server.cli.client.paced_output import Interruption

    if options.partitions is not None:
        raise UsageError("-p and -g cannot be given together: the group assigns partitions")
    texts = client_settings(options)
    protocol = (options.group_protocol or texts.get("group.protocol", PROTOCOLS[0])).lower()
    if protocol not in PROTOCOLS:
        raise UsageError(f"group.protocol={protocol}: must be classic or consumer")
    printer, isolation = _printer(options), _isolation(options)
    bounds = _GroupBounds(cluster, _bounds(options), isolation)
    topics = list(_partitions(cluster, options))
    member = member_of(cluster, options.group, topics, protocol)
    commits = options.commit or COMMITS[0]
    commit_s = None if commits == "never" else COMMIT_S if commits == "regularly" else math.inf
    group = GroupConsumer(
        cluster, options.group, member, isolation, bounds.begin, commit_s, restarts=not bounds.begins_at_end
    )
    with _ended(group, options), suppress(KeyboardInterrupt), Interruption() as interruption:
        _GroupPrinter(group, printer, bounds, interruption, options).run()


@contextmanager
def _ended(group: GroupConsumer, options: argparse.Namespace) -> Iterator[None]:
    """After this block, commit and leave the group, even if the block fails; then print what was committed."""
    try:
        yield
    except BaseException:
        # The failure that ended the block is told, not one of the end.
        with suppress(RequestFailed):
            group.end()
        raise
    group.end()
    if not options.quiet:
        named = ", ".join(f"{topic} [{number}] at {at}" for (topic, number), at in sorted(group.committed.items()))
        many = f"{len(group.committed)} partitions" if len(group.committed) > NAMED_MAX else named
        note(f"Group {options.group} has committed {many or 'nothing'}")


class _GroupBounds:
    """Option -o for a group: offsets where partitions without a committed offset begin, and where all of them end."""

    def __init__(self, cluster: Cluster, bounds: Bounds, isolation: int) -> None:
        self._cluster, self._bounds, self._isolation = cluster, bounds, isolation
        self._ends: dict[Partition, int | None] = {}

    def begin(self, places: Sequence[Partition]) -> Mapping[Partition, int]:
        return {place: begin for place, (begin, _) in self._found(places).items()}

    @property
    def begins_at_end(self) -> bool:
        return self._bounds.kind == "end"

    @property
    def has_end(self) -> bool:
        return self._bounds.until_ms is not None

    def end(self, place: Partition) -> int | None:
        if self._bounds.until_ms is None:
            return None
        if place not in self._ends:
            self._ends[place] = self._found([place])[place][1]
        return self._ends[place]

    def _found(self, places: Sequence[Partition]) -> dict[Partition, tuple[int, int | None]]:
        from ottla.server.cli.client.bounds import begin_and_end
        from ottla.server.cli.client.cluster import by_topic

        return begin_and_end(self._cluster, by_topic(places), self._bounds, self._isolation)


class _GroupPrinter:
    """Printer of the records that a group's member reads. It records in `done` which of them are written."""

    def __init__(
        self,
        group: GroupConsumer,
        printer: RecordPrinter,
        bounds: _GroupBounds,
        interruption: Interruption,
        options: argparse.Namespace,
    ) -> None:
        from ottla.server.cli.client.output import Progress
        from ottla.server.cli.client.paced_output import PacedOutput

        self._group, self._printer, self._bounds, self._options = group, printer, bounds, options
        self._interruption = interruption
        self._output = PacedOutput(group.beat, interruption.check)
        self._progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
        self._size = 0

    def run(self) -> None:
        try:
            while not (self._printer.is_done or (self._ends_at_end and self._group.is_over)):
                check_reader()
                for each in self._group.round():
                    self._take(each)
                    if self._printer.is_done:
                        break
        finally:
            self._progress.end()

    @property
    def _ends_at_end(self) -> bool:
        return (self._options.exit and not self._options.follow) or self._bounds.has_end

    def _take(self, each: Batch | AtEnd) -> None:
        from ottla.server.cli.client.consumer import Batch

        end = self._bounds.end(each.place)
        if not isinstance(each, Batch):
            self._progress.end()
            self._group.done[each.place] = each.offset
            is_over = (self._options.exit and not self._options.follow) or (end is not None and each.offset >= end)
            if not self._options.quiet:
                _say_end(each, is_last=is_over and self._group.open_count == 1)
            if is_over:
                self._group.close(each.place)
            return
        self._print(each, end)
        if end is not None and each.header.next_offset >= end:
            self._group.close(each.place)

    def _print(self, batch: Batch, end: int | None) -> None:
        """Write the wanted records of a batch. Even after a failure, the group's `done` tells which are written."""
        self._print_and_note(batch, end)
        if self._printer.failure is not None:
            raise self._printer.failure

    def _print_and_note(self, batch: Batch, end: int | None) -> None:
        if self._options.commit == "each":
            for offset, text in self._printer.each(batch, end):
                with self._interruption.held():
                    self._write(text)
                    self._group.done[batch.place] = offset + 1
                self._group.commit()
            return
        text = self._printer.printed(batch, end)
        with self._interruption.held():
            self._write_whole(text, batch, end)

    def _write_whole(self, text: bytes, batch: Batch, end: int | None) -> None:
        try:
            self._write(text)
        except BaseException:
            self._group.done[batch.place] = self._printer.next_offset(batch, end, self._output.written)
            raise
        is_cut = self._printer.is_done or self._printer.failure is not None
        past = self._printer.next_offset(batch, end, len(text)) if is_cut else batch.header.next_offset
        self._group.done[batch.place] = past if end is None else min(past, end)

    def _write(self, text: bytes) -> None:
        self._output.write(text)
        self._size += len(text)
        self._progress.note(self._printer.count, self._size)


def _printer(options: argparse.Namespace) -> RecordPrinter:
    from ottla.server.cli.client.formats import (
        decoding,
        json_printer,
        parse_format,
        raw_printer,
        shown_printer,
        unescaped,
        usual_format,
    )
    from ottla.server.cli.client.printing import RecordPrinter, batch_printer

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
    from ottla.server.cli.client.formats import SCHEMAS

    found: Decode = import_module(SCHEMAS).RecordValues(options.schema_registry, client_settings(options)).decode
    return found


def _partitions(cluster: Cluster, options: argparse.Namespace) -> dict[str, list[int]]:
    names = list(dict.fromkeys([*options.topics, *options.topic]))
    if not names:
        raise UsageError("which topic? ottla consume TOPIC")
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
