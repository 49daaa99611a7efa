"""ottla reassign [list | plan | execute | verify | cancel]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import Step, add_dry_run, carry_out, counted, done_word, report, undo_command
from ottla.server.cli.client.cluster import live_brokers
from ottla.server.cli.client.output import RequestFailed, UsageError, ids, print_json, print_line, print_table, say
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, broker_ids, count
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import places_of
from ottla.server.cli.replicas.moves import RATES, Ongoing, Throttle, await_moves, ongoing, reassign
from ottla.server.cli.replicas.plans import (
    Impossible,
    Placed,
    Targets,
    add_moves,
    as_plan,
    nothing_to_move,
    plan_spread,
    read_targets,
    with_number,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.wire.messages.metadata import MetadataResponseTopic

DESCRIPTION = """\
Moves replicas of partitions to other brokers, or gives partitions more or fewer of them: plans that, has it carried out, tells how far
it is, and cancels it. Plans are those of kafka-reassign-partitions.sh. `ottla spread` plans and moves by itself.
"""

EXAMPLES = """\
examples:
  ottla reassign                                 what is being moved
  ottla reassign plan orders --brokers 1,2,3 --replicas 3 --json >plan.json
  ottla reassign execute --plan plan.json --wait --throttle 10MiB
  ottla reassign execute orders:0=1,2 orders:1=2,3 --dry-run
  ottla reassign verify --plan plan.json         ends with 1 until all is done
  ottla reassign cancel orders:0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla reassign`; the default is `list`."""
    actions = Actions(parser, "list", _list)
    actions.add("list", "list the partitions that are being moved", _list)
    planning = actions.add("plan", "plan an even distribution of topics, and change nothing", _plan)
    planning.add_argument("names", nargs="+", metavar="TOPIC")
    over = "over these brokers (default: all that are there)"
    planning.add_argument("--brokers", type=broker_ids, metavar="ID,ID", help=over)
    planning.add_argument("--replicas", type=count, metavar="N", help="of each partition (default: as many as now)")
    executing = actions.add("execute", "begin to move replicas", _execute)
    add_moves(executing)
    replace = "also partitions that are being moved already, which then go to the new place"
    executing.add_argument("--replace", action="store_true", help=replace)
    executing.add_argument("--wait", action="store_true", help="end when all is moved")
    limit = "with --wait: at most so many bytes a second, such as 10MiB, from and to each broker"
    executing.add_argument("--throttle", type=_rate, metavar="BYTES", help=limit)
    add_dry_run(executing)
    verifying = actions.add("verify", "tell whether replicas are where they are to be; 1 if not", _verify)
    add_moves(verifying)
    cancelling = actions.add("cancel", "end moves, with the replicas where they were", _cancel)
    cancelling.add_argument("names", nargs="*", metavar="TOPIC[:N,N]", help="a topic, or some of its partitions")
    cancelling.add_argument("--all", action="store_true", help="all that are being moved")
    add_dry_run(cancelling)


def _rate(text: str) -> int:
    from ottla.server.config.quantities import InvalidQuantity, as_number

    try:
        return count(as_number(RATES[0], text))
    except InvalidQuantity as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


# --- list


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = ongoing(cluster)
    if wants_json(options):
        print_json([_as_json(each) for each in found])
    elif not found:
        print_line("nothing is being moved")
    else:
        rows = [(*each.place, ids(each.origin), ids(each.target)) for each in found]
        print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
    return EXIT_OK


def _as_json(moving: Ongoing) -> dict[str, Any]:
    return {
        "topic": moving.topic,
        "partition": moving.partition,
        "from": list(moving.origin),
        "to": list(moving.target),
        "adding": list(moving.adding),
        "removing": list(moving.removing),
    }


# --- plan


def _plan(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = cluster.topics(list(dict.fromkeys(options.names)))
    before = _replicas(topics)
    live = live_brokers(cluster)
    brokers = live if options.brokers is None else options.brokers
    _check_live(brokers, live)
    replicas = options.replicas
    if replicas is not None and replicas > len(brokers):
        raise RequestFailed(f"{len(brokers)} brokers cannot hold {replicas} replicas of a partition")
    try:
        placed = with_number([Placed(*place, each) for place, each in before.items()], brokers, replicas)
        moved = {each[:2]: each.replicas for each in plan_spread(placed, brokers)}
    except Impossible as problem:
        raise RequestFailed(str(problem)) from None
    after = {each[:2]: each.replicas for each in placed} | moved
    changed = {place: each for place, each in after.items() if each != before[place]}
    if wants_json(options):
        print_json(as_plan(changed))
    elif not changed:
        print_line(nothing_to_move(brokers))
    else:
        _print_moves(before, changed)
        print_line("\nNothing is changed: this is a plan. --json prints it for `ottla reassign execute --plan`.")
    return EXIT_OK


def _replicas(topics: Iterable[MetadataResponseTopic]) -> Targets:
    return {
        (topic.name or "", each.partition_index): tuple(each.replica_nodes)
        for topic in topics
        for each in topic.partitions
    }


def _print_moves(before: Mapping[Partition, Sequence[int]], after: Mapping[Partition, Sequence[int]]) -> None:
    rows = [(*place, ids(before[place]), ids(replicas)) for place, replicas in sorted(after.items())]
    print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)


# --- execute


def _execute(cluster: Cluster, options: argparse.Namespace) -> int:
    targets = read_targets(options)
    if options.throttle is not None and not options.wait:
        raise UsageError("--throttle goes with --wait: the throttle is removed at the end")
    before = _present(cluster, targets)
    _check_live(sorted({broker for each in targets.values() for broker in each}), live_brokers(cluster))
    moving = {each.place: each for each in ongoing(cluster) if each.place in targets}
    if moving and not options.replace:
        first = next(iter(moving.values()))
        raise RequestFailed(
            f"{first.topic}-{first.partition} is being moved to {ids(first.target)} already: wait, cancel it, or --replace"
        )
    # The undo command brings a partition that is being moved back to its place before that move.
    before |= {place: each.origin for place, each in moving.items()}
    changed = {place: each for place, each in targets.items() if place in moving or each != before[place]}
    if changed and not options.dry_run:
        _carry_out(cluster, before, changed, options)
    _report(options, before, changed, _done_words(options))
    return EXIT_OK


def _carry_out(cluster: Cluster, before: Targets, changed: Targets, options: argparse.Namespace) -> None:
    steps = [Step("the moves are begun", partial(reassign, cluster, changed))]
    if options.wait:
        steps.append(Step("all of them are there", partial(_await_end, cluster, changed, options)))
    if options.throttle is None:
        carry_out(steps)
        return
    throttle = Throttle(cluster, options.throttle, before, changed)
    try:
        carry_out([Step("the throttle is set", throttle.set), *steps, Step("it is removed", throttle.remove)])
    finally:
        # After a failure the moves go on with the throttle, until somebody removes it.
        for each in throttle.commands(options):
            say(f"to remove the throttle: {each}")


def _present(cluster: Cluster, targets: Targets) -> Targets:
    """Return the present replicas of the partitions. Raises RequestFailed if one does not exist."""
    if not targets:
        return {}
    known = _replicas(cluster.topics(sorted({topic for topic, _ in targets})))
    for topic, number in targets:
        if (topic, number) not in known:
            raise RequestFailed(f"topic {topic} has no partition {number}")
    return {place: known[place] for place in targets}


def _check_live(brokers: Iterable[int], live: Sequence[int]) -> None:
    for each in brokers:
        if each not in live:
            raise RequestFailed(f"broker {each} is not there; the cluster has {ids(live)}")


def _done_words(options: argparse.Namespace) -> str:
    return "moved" if options.wait else "being moved"


def _await_end(cluster: Cluster, targets: Targets, options: argparse.Namespace) -> None:
    is_shown = sys.stderr.isatty() and not wants_json(options)

    def show(left: int) -> None:
        if is_shown:
            moved = len(targets) - left
            print(f"\r{moved} of {len(targets)} partitions are moved ", end="", file=sys.stderr, flush=True)

    await_moves(cluster, [Placed(*place, replicas) for place, replicas in targets.items()], show)
    if is_shown:
        print(file=sys.stderr)


def _report(options: argparse.Namespace, before: Targets, after: Targets, done: str) -> None:
    value = {
        "moved": [
            {"topic": topic, "partition": number, "from": list(before[topic, number]), "to": list(replicas)}
            for (topic, number), replicas in sorted(after.items())
        ]
    }

    def show() -> None:
        if not after:
            print_line("nothing to move: the replicas are there already")
            return
        _print_moves(before, after)
        print_line(f"{counted(len(after), 'partition')} {done_word(options, len(after))} {done}")

    # The same command sends back a partition that is on its way, and moves again one that has arrived.
    back = [f"{topic}:{number}={ids(before[topic, number])}" for topic, number in sorted(after)]
    report(
        options, value, show, [undo_command(options, "reassign", "execute", "--replace", names=back)] if back else []
    )


# --- verify and cancel


def _verify(cluster: Cluster, options: argparse.Namespace) -> int:
    targets = read_targets(options)
    present = _present(cluster, targets)
    moving = {each.place: each for each in ongoing(cluster) if each.place in targets}
    states = {place: _state(targets[place], present[place], moving.get(place)) for place in sorted(targets)}
    if wants_json(options):
        print_json(
            [
                {
                    "topic": topic,
                    "partition": number,
                    "replicas": list(present[topic, number]),
                    "wanted": list(targets[topic, number]),
                    "state": state,
                }
                for (topic, number), state in states.items()
            ]
        )
    else:
        rows = [(*place, ids(present[place]), ids(targets[place]), state) for place, state in states.items()]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "WANTED", "STATE"), rows)
    return EXIT_OK if all(each == "done" for each in states.values()) else EXIT_FAILED


def _state(target: Sequence[int], present: Sequence[int], moving: Ongoing | None) -> str:
    if moving is not None:
        return "moving" if moving.target == tuple(target) else "moving elsewhere"
    return "done" if tuple(present) == tuple(target) else "elsewhere"


def _cancel(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.all is bool(options.names):
        raise UsageError("which partitions? Give TOPIC or TOPIC:N,N; or --all, which goes with none")
    moving = {each.place: each for each in ongoing(cluster)}
    if options.names:
        # Of a whole topic, only the partitions that are being moved are cancelled. One that is named by its number has to be moving.
        places = places_of(cluster, options.names)
        wanted = [each for each in places if each in moving]
        named = {text.partition(":")[0] for text in options.names if ":" in text}
        if missing := [each for each in places if each not in moving and each[0] in named]:
            raise RequestFailed(f"{missing[0][0]}-{missing[0][1]} is not being moved")
    else:
        wanted = sorted(moving)
    if not wanted:
        raise RequestFailed("nothing is being moved: nothing is changed")
    if not options.dry_run:
        step = partial(reassign, cluster, dict.fromkeys(wanted))
        carry_out([Step("the moves are cancelled", step)])
    before = {place: moving[place].target for place in wanted}
    _report(options, before, {place: moving[place].origin for place in wanted}, "cancelled, and moved back")
    return EXIT_OK
