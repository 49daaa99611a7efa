"""The command: `make bench`, or `python -m benchmarks [--quick] [--only GROUP [--keep]] [--alone]`.

Ottla, Apache Kafka 4 and their peers run on this machine, in turns, with the same clients and the same workloads. Everything is
on the loopback interface, within bounds, and on data directories that are removed again. See benchmarks/README.md.
"""

import argparse
import contextlib
import dataclasses
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from benchmarks import machine, report, table
from benchmarks.alone import run as alone
from benchmarks.brokers import AGAINST, Failed
from benchmarks.rows import Line, Metric, Row, measure
from benchmarks.session import Session
from benchmarks.workloads import (
    cluster,
    compressed,
    consumer_groups,
    cores,
    failover,
    groups,
    latency,
    partitions,
    registry,
    replays,
    rest,
    saturation,
    security,
    share_groups,
    spark,
    startup,
    stored,
    streams,
    throughput,
    transactions,
)

GROUPS: dict[str, Callable[[Session], Generator[Row]]] = {
    "startup": startup.rows,
    "produce": throughput.produce_rows,
    "consume": throughput.consume_rows,
    "both": throughput.both_rows,
    "replays": replays.rows,
    "compressed": compressed.rows,
    "memory": startup.loaded_memory_rows,
    "latency": latency.rows,
    "saturation": saturation.rows,
    "groups": groups.rows,
    "transactions": transactions.rows,
    "consumer-groups": consumer_groups.rows,
    "share-groups": share_groups.rows,
    "streams": streams.rows,
    "spark": spark.rows,
    "security": security.rows,
    "partitions": partitions.rows,
    "stored": stored.rows,
    "cluster": cluster.rows,
    "failover": failover.rows,
    "cores": cores.rows,
    "registry": registry.rows,
    "rest": rest.rows,
}
# These have brokers of their own, beside which no other should run.
ALONE = ("startup", "security", "partitions", "stored", "cluster", "failover", "cores", "registry", "rest")
# After so long, one round of each remaining row has to do; and after so long again, no row is begun.
PATIENCE_S, QUICK_PATIENCE_S = 60 * 60.0, 10 * 60.0
GRACE_S, QUICK_GRACE_S = 3 * 60.0, 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Ottla beside Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds and records: 12 minutes instead of 46")
    parser.add_argument(
        "--only", action="append", default=[], metavar="GROUP", help=f"of {', '.join(GROUPS)}; repeatable"
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, help="rounds of each row instead of its own number")
    parser.add_argument("--alone", action="store_true", help=f"Ottla alone: {', '.join(alone.PARTS)}")
    parser.add_argument(
        "--keep", action="store_true", help="put the groups of --only into RESULTS.md, with their own date"
    )
    options = parser.parse_args()
    is_part = options.match or options.quick or options.rounds or options.alone
    if options.keep and (is_part or not options.only or AGAINST):
        parser.error("--keep is for whole groups beside Apache Kafka: give it with --only, and nothing else")
    known = alone.PARTS if options.alone else tuple(GROUPS)
    if unknown := set(options.only) - set(known):
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(known)}")
    if options.alone:
        return alone.run(options.only, options.quick, report.JSON.with_name("alone.json"))
    side_by_side(options)
    return 0


def side_by_side(options: argparse.Namespace) -> None:
    machine.allow_many_files()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that brokers and folders go as well
    about = report.about()
    print("; ".join(f"{name}: {value}" for name, value in about.items()), end="\n\n")
    began, lines = time.monotonic(), []
    print(table.head(), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True) as work:
        session = Session(Path(work), options.quick)
        for line in every_line(session, options):
            print(table.text(line), flush=True)
            lines.append(line)
    about["minutes"] = f"{(time.monotonic() - began) / 60:.1f}"
    report.write(lines, about, whole=not (options.only or options.match or options.quick or options.rounds))
    if options.keep:
        report.keep(lines, about)
    print(f"\n{table.summary(lines)}; {about['minutes']} minutes")


def every_line(session: Session, options: argparse.Namespace) -> Iterator[Line]:
    deadline = time.monotonic() + (QUICK_PATIENCE_S if options.quick else PATIENCE_S)
    end = deadline + (QUICK_GRACE_S if options.quick else GRACE_S)
    try:
        for group in options.only or GROUPS:
            if group in ALONE:
                session.close()
            yield from lines_of(group, session, options, deadline, end)
    finally:
        session.close()


def lines_of(group: str, session: Session, options: argparse.Namespace, deadline: float, end: float) -> Iterator[Line]:
    """A group that cannot go on is one failed line; the others are still to be measured."""
    try:
        must_be_before(end)
        with contextlib.closing(GROUPS[group](session)) as rows:
            for row in rows:
                must_be_before(end)
                if options.match in row.name:
                    yield from measure(group, with_rounds(row, options.rounds), deadline)
    except Exception as error:  # noqa: BLE001 - the other groups are still to be measured
        if not isinstance(error, Failed):
            traceback.print_exc()
        yield Line(group, group, Metric("", ""), "", {}, {"all": f"{type(error).__name__}: {error}"[:300]})


def must_be_before(end: float) -> None:
    if time.monotonic() > end:
        raise Failed("not measured: the time of this run was over")


def with_rounds(row: Row, rounds: int | None) -> Row:
    return row if rounds is None else dataclasses.replace(row, rounds=rounds)


if __name__ == "__main__":
    sys.exit(main())
