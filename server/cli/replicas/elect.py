"""ottla elect [preferred | unclean]"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, report
from ottla.server.cli.client.cluster import TemporaryFailure
from ottla.server.cli.client.output import RequestFailed, UsageError, ids, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, run_action
from ottla.server.cli.places import place_words, places_of
from ottla.server.cli.replicas.moves import PREFERRED, UNCLEAN, elect

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition

DESCRIPTION = """\
Elects leaders of partitions: the preferred one, which is the first replica, if it is in sync; or, for a partition without a leader,
any replica that lives (unclean), even if it lacks records that others have, which then are lost.
"""

EXAMPLES = """\
examples:
  ottla elect preferred --all-topics             after brokers were started again
  ottla elect preferred orders:0,1 --dry-run     tells who would lead
  ottla elect unclean orders:3                   asks first; --yes does not
"""


class Election(NamedTuple):
    """Partition with its leader now (None: it has none) and the replica that is to lead; `obstacle`: why it cannot."""

    place: Partition
    leader: int | None
    candidate: int | None
    obstacle: str = ""

    def __str__(self) -> str:
        return f"{self.place[0]}-{self.place[1]}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla elect`; the default is `preferred`."""
    parser.set_defaults(names=[], all_topics=False, dry_run=False)
    actions = Actions(parser, "preferred", partial(_elect, PREFERRED))
    for name, what, kind in (
        ("preferred", "let the first replica lead, if it is in sync", PREFERRED),
        ("unclean", "let any living replica lead a partition without a leader", UNCLEAN),
    ):
        action = actions.add(name, what, partial(_elect, kind))
        places = "a topic, or some of its partitions"
        action.add_argument("names", nargs="*", metavar="TOPIC[:N,N]", help=places)
        action.add_argument("--all-topics", action="store_true", help="all partitions of the cluster")
        add_dry_run(action)
        if kind == UNCLEAN:
            add_yes(action)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `preferred`."""
    return run_action(options)


def _elect(kind: int, cluster: Cluster, options: argparse.Namespace) -> int:
    if options.all_topics is bool(options.names):
        raise UsageError("which partitions? Give TOPIC or TOPIC:N,N; or --all-topics, which goes with none")
    elections = _elections(cluster, kind, None if options.all_topics else places_of(cluster, options.names))
    wanted = [each for each in elections if each.leader != each.candidate or each.obstacle]
    stuck = [each for each in wanted if each.obstacle]
    # A partition that is named must be possible to elect; --all-topics skips those that are not.
    if stuck and not options.all_topics:
        raise RequestFailed(f"{stuck[0]}: {stuck[0].obstacle}")
    possible = [each for each in wanted if not each.obstacle]
    if possible and not options.dry_run:
        if kind == UNCLEAN:
            names = ", ".join(f"{each} (broker {each.candidate})" for each in possible)
            agree(options, f"Elect leaders that may lack records, which then are lost: {names}")
        words = " ".join(place_words(dict.fromkeys(each.place for each in possible)))
        carry_out([Step(f"{words} have other leaders", partial(_carry_out, cluster, kind, possible))])
    _report(options, kind, possible, stuck)
    return EXIT_OK


def _elections(cluster: Cluster, kind: int, places: Sequence[Partition] | None) -> list[Election]:
    """Find who is to lead each partition; None: all partitions of the cluster."""
    wanted = None if places is None else set(places)
    live = {each.node_id for each in cluster.metadata(()).brokers}
    found = []
    for topic in cluster.metadata(None if places is None else {name for name, _ in places}).topics:
        cluster.check(f"topic {topic.name}", topic.error_code)
        for each in topic.partitions:
            place = (topic.name or "", each.partition_index)
            if wanted is None or place in wanted:
                leader = each.leader_id if each.leader_id >= 0 else None
                alive = [one for one in each.replica_nodes if one in live and one not in each.offline_replicas]
                in_sync = [one for one in alive if one in each.isr_nodes]
                judge = _preferred if kind == PREFERRED else _unclean
                found.append(judge(place, leader, each.replica_nodes, alive, in_sync))
    return sorted(found, key=lambda each: each.place)


def _preferred(
    place: Partition, leader: int | None, replicas: Sequence[int], alive: Sequence[int], in_sync: Sequence[int]
) -> Election:
    first = replicas[0] if replicas else None
    if first in in_sync or first == leader:
        return Election(place, leader, first)
    why = "is not in sync" if first in alive else "does not live"
    return Election(place, leader, first, f"its first replica, on broker {first}, {why}")


def _unclean(
    place: Partition, leader: int | None, replicas: Sequence[int], alive: Sequence[int], in_sync: Sequence[int]
) -> Election:
    if leader is not None:
        return Election(place, leader, leader)
    candidates = [*in_sync, *alive]
    if not candidates:
        return Election(place, None, None, f"none of its replicas lives, on brokers {ids(replicas)}")
    return Election(place, None, candidates[0])


def _carry_out(cluster: Cluster, kind: int, elections: Sequence[Election]) -> None:
    elect(cluster, kind, [each.place for each in elections])
    cluster.patiently(partial(_have_leaders, cluster, kind, elections))


def _have_leaders(cluster: Cluster, kind: int, elections: Sequence[Election]) -> None:
    """Raise TemporaryFailure while the queried broker does not know the new leaders."""
    wanted = {each.place: each.candidate for each in elections}
    for topic in cluster.metadata({name for name, _ in wanted}).topics:
        for each in topic.partitions:
            candidate = wanted.get((topic.name or "", each.partition_index))
            is_other = each.leader_id != candidate if kind == PREFERRED else each.leader_id < 0
            if candidate is not None and is_other:
                raise TemporaryFailure(f"{topic.name}-{each.partition_index} is not led by broker {candidate} yet")


def _report(options: argparse.Namespace, kind: int, elected: Sequence[Election], stuck: Sequence[Election]) -> None:
    rows = [(*each.place, each.leader, each.candidate) for each in elected]
    keys = ("topic", "partition", "from", "to")
    value = {
        "elected": [dict(zip(keys, row, strict=True)) for row in rows],
        "not_possible": [{"topic": each.place[0], "partition": each.place[1], "why": each.obstacle} for each in stuck],
    }

    def show() -> None:
        if rows:
            print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
        elif not stuck:
            led = "by their first replicas" if kind == PREFERRED else "by somebody"
            print_line(f"nothing to elect: all of these partitions are led {led}")
        for each in stuck:
            print_line(f"{each}: {each.obstacle}")

    lost = "records that the new leader lacks are lost" if elected and kind == UNCLEAN else ""
    report(options, value, show, [], lost)
