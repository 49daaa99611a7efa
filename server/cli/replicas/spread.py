"""ottla spread [--workers K | --brokers LIST]: moves partitions evenly over the brokers"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.server.cli.changes import DRY_RUN, print_undo, undo_command
from ottla.server.cli.client.cluster import live_brokers
from ottla.server.cli.client.output import (
    RequestFailed,
    UsageError,
    ids,
    print_json,
    print_line,
    print_table,
)
from ottla.server.cli.command_line import EXIT_OK, broker_ids, count
from ottla.server.cli.on_cluster import add_connection, add_json, run_on_cluster, wants_json
from ottla.server.cli.replicas.moves import move, moving, placed_partitions
from ottla.server.cli.replicas.plans import Impossible, Placed, nothing_to_move, plan_spread

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

AT_ONCE = 50
SHOWN_MAX = 3

DESCRIPTION = """\
Moves partitions so that every broker has as many replicas as the others, and leads as many, with as few moves as that needs.
It speaks to any Kafka. Clients go on meanwhile. After a start with more workers it gives them their part; before a start with
fewer it empties those that will be left out.

What has been begun when it is interrupted goes on, and another run does the rest.
"""

EXAMPLES = """\
examples:
  ottla spread --dry-run                         show what would move
  ottla spread                                   over all brokers that are there
  ottla spread --workers 1                       all to the broker with the lowest id, before a start with num.workers=1
  ottla spread --brokers 1,2                     over these two alone
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla spread`: the cluster and the choice of brokers."""
    add_connection(parser)
    add_json(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--workers", type=count, metavar="K", help="only over the K brokers with the lowest ids")
    which.add_argument("--brokers", type=broker_ids, metavar="ID,ID", help="only over these brokers")
    parser.add_argument("--dry-run", action="store_true", help="move nothing, and show what would be moved")
    at_once = f"partitions that are moved at a time (default: {AT_ONCE})"
    parser.add_argument("--at-once", type=count, default=AT_ONCE, metavar="N", help=at_once)


def run(options: argparse.Namespace) -> int:
    """Plan the moves of replicas and carry them out; return the exit code."""
    return run_on_cluster(lambda cluster: _spread(cluster, options), options)


def _spread(cluster: Cluster, options: argparse.Namespace) -> int:
    brokers = _targets(live_brokers(cluster), options)
    if under_way := moving(cluster):
        raise RequestFailed(f"partitions are being moved already ({_some(under_way)}); wait until that is done")
    before, without_leader = placed_partitions(cluster)
    _check_sources(before, live_brokers(cluster), without_leader, options)
    try:
        moves = plan_spread(before, brokers)
    except Impossible as problem:
        raise RequestFailed(str(problem)) from None
    if not options.dry_run:
        _carry_out(cluster, moves, options)
    _print_result(before, moves, brokers, options)
    return EXIT_OK


def _targets(live: Sequence[int], options: argparse.Namespace) -> list[int]:
    if options.brokers is not None:
        if gone := sorted({*options.brokers} - {*live}):
            raise UsageError(f"--brokers: {ids(gone)} is not there; the cluster has {ids(live)}")
        return list(options.brokers)
    if options.workers is not None and options.workers > len(live):
        raise UsageError(f"--workers {options.workers}: the cluster has {len(live)} brokers")
    return list(live)[: options.workers]


def _check_sources(
    placed: Sequence[Placed], live: Sequence[int], without_leader: Sequence[str], options: argparse.Namespace
) -> None:
    if without_leader:
        raise RequestFailed(f"{_some(without_leader)}: there is no leader to copy from; start its broker first")
    gone = sorted({broker for each in placed for broker in each.replicas} - {*live})
    # Somebody may just start it again, and would find it empty.
    if gone and options.brokers is None:
        raise RequestFailed(
            f"broker {ids(gone)} has replicas and is not there; start it, or give --brokers to do without"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"{', '.join(names[:SHOWN_MAX])}{more}"


def _carry_out(cluster: Cluster, moves: Sequence[Placed], options: argparse.Namespace) -> None:
    done = 0
    is_shown = sys.stderr.isatty() and not wants_json(options)

    def show(left: int) -> None:
        if is_shown:
            moved = done + len(part) - left
            print(f"\r{moved} of {len(moves)} partitions are moved ", end="", file=sys.stderr, flush=True)

    for start in range(0, len(moves), options.at_once):
        part = moves[start : start + options.at_once]
        move(cluster, part, show)
        done += len(part)
        show(0)
    if is_shown and moves:
        print(file=sys.stderr)


def _print_result(
    before: Sequence[Placed], moves: Sequence[Placed], brokers: Sequence[int], options: argparse.Namespace
) -> None:
    were = {(each.topic, each.partition): each.replicas for each in before}
    back = [f"{each.topic}:{each.partition}={ids(were[each[:2]])}" for each in moves]
    undo = [] if options.dry_run or not back else [undo_command(options, "reassign", "execute", names=back)]
    if wants_json(options):
        moved = [
            {"topic": each.topic, "partition": each.partition, "from": list(were[each[:2]]), "to": list(each.replicas)}
            for each in moves
        ]
        print_json({"brokers": list(brokers), "dry_run": options.dry_run, "moved": moved, "undo": undo})
        return
    if not moves:
        print_line(nothing_to_move(brokers))
        if options.dry_run:
            print_line(DRY_RUN)
        return
    rows = [(each.topic, each.partition, ids(were[each[:2]]), ids(each.replicas)) for each in moves]
    print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
    print_line("")
    print_line(f"{len(moves)} of {len(before)} partitions {'would be' if options.dry_run else 'are'} moved")
    if options.dry_run:
        print_line(DRY_RUN)
    print_undo(undo)
