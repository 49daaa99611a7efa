"""ottla consume TOPIC ...: records of a topic to stdout, with kcat's options"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.command_line import EXIT_OK, count, is_number
from ottla.server.cli.on_cluster import add_connection, run_on_cluster

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.server.cli.client.consumer import AtEnd, Consumer
    from ottla.server.cli.client.printing import RecordPrinter

DESCRIPTION = """\
Prints the records of topics, and goes on with new ones until Ctrl-C. Options are kcat's. On a terminal control characters in
records are shown and never obeyed, and huge values are cut; a pipe or a file gets the bytes as they are.
"""

EXAMPLES = """\
examples:
  ottla consume orders                           all records, and then those that come
  ottla consume orders -e -f '%p %o %T %k=%s\\n'  to the end, with partition, offset, time and key
  ottla consume orders -o end                    only those that come
  ottla consume orders -o -10 -c 10              the last ten of a topic with one partition
  ottla consume orders -o s@1700000000000 -o e@1700003600000
                                                 of one hour
  ottla consume orders -J -e | jq .payload       one JSON object a line

format fields:
  %s %S value and its length    %k %K key and its length    %h headers    %t topic    %p partition    %o offset
  %T timestamp in ms    %R length of the value as 32 bits    %% a percent sign    \\n \\r \\t \\xNN characters
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla consume`: the choice of records and the output format."""
    add_connection(parser)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="whose records are read")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="the same; repeatable")
    parser.add_argument("-p", "--partitions", metavar="N,N", help="only these partitions")
    bounds = "where to begin: beginning (the default), end, an offset, -N from the end, s@TIME; e@TIME: where to end"
    parser.add_argument("-o", "--offset", action="append", default=[], metavar="OFFSET", help=bounds)
    parser.add_argument("-c", "--count", type=count, metavar="N", help="end after N records")
    parser.add_argument("-e", "--exit", action="store_true", help="end at the end of the topics")
    parser.add_argument("--follow", action="store_true", help="go on with new records, as without -e; wins over it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", metavar="FORMAT", help="how a record is printed; see below")
    form.add_argument("-J", "--json", action="store_true", help="as a JSON object, one a line, with kcat's names")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print keys, with this between key and value")
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="after each record (default: \\n)")
    parser.add_argument("-Z", "--null", action="store_true", help="print null keys and values as NULL, not empty")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of ends that are reached")
    levels = "read_committed", "read_uncommitted"
    about = "whether records of transactions that are aborted or open are left out (default: they are)"
    parser.add_argument("--isolation-level", choices=levels, default=levels[0], help=about)


def run(options: argparse.Namespace) -> int:
    """Print records until the requested end, or until Ctrl-C; return the exit code."""

    def consume(cluster: Cluster) -> int:
        with suppress(KeyboardInterrupt):  # how this command usually ends
            _consume(cluster, options)
        return EXIT_OK

    return run_on_cluster(consume, options)


def _consume(cluster: Cluster, options: argparse.Namespace) -> None:
    from ottla.server.cli.client.cluster import READ_COMMITTED
    from ottla.server.cli.client.consumer import Batch, Consumer, begin_and_end, parse_bounds
    from ottla.server.cli.client.output import Progress

    isolation = READ_COMMITTED if options.isolation_level == "read_committed" else 0
    printer = _printer(options)
    bounds = parse_bounds(options.offset)
    places = begin_and_end(cluster, _partitions(cluster, options), bounds, isolation)
    ends = {place: end for place, (_, end) in places.items() if end is not None}
    begins = {place: begin for place, (begin, _) in places.items() if begin < ends.get(place, begin + 1)}
    consumer = Consumer(cluster, begins, isolation)
    progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
    size = 0
    try:
        for each in consumer:
            if isinstance(each, Batch):
                end = ends.get(each.place)
                size += _write(printer.printed(each, end))
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


def _write(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)


def _at_end(consumer: Consumer, at_end: AtEnd, ends: dict[Partition, int], options: argparse.Namespace) -> None:
    topic, number = at_end.place
    is_over = (options.exit and not options.follow) or at_end.offset >= ends.get(at_end.place, at_end.offset + 1)
    if not options.quiet:
        what = ": exiting" if is_over and len(consumer.positions) == 1 else ""
        print(f"% Reached end of topic {topic} [{number}] at offset {at_end.offset}{what}", file=sys.stderr, flush=True)
    if is_over:
        consumer.close(at_end.place)


def _printer(options: argparse.Namespace) -> RecordPrinter:
    from ottla.server.cli.client.formats import (
        json_printer,
        parse_format,
        raw_printer,
        shown_printer,
        unescaped,
        usual_format,
    )
    from ottla.server.cli.client.printing import RecordPrinter, batch_printer

    delimiter = unescaped(options.delimiter, "-D")
    if options.json:
        return RecordPrinter(json_printer(delimiter), None, options.count)
    if options.format is not None:
        chosen = parse_format(options.format, is_null_shown=options.null)
    else:
        key_delimiter = None if options.key_delimiter is None else unescaped(options.key_delimiter, "-K")
        chosen = usual_format(delimiter, key_delimiter, is_null_shown=options.null)
    if sys.stdout.isatty():
        return RecordPrinter(shown_printer(chosen), None, options.count)
    return RecordPrinter(raw_printer(chosen), batch_printer(chosen), options.count)


def _partitions(cluster: Cluster, options: argparse.Namespace) -> dict[str, list[int]]:
    names = list(dict.fromkeys([*options.topics, *options.topic]))
    if not names:
        raise UsageError("no topic is named: ottla consume TOPIC")
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
