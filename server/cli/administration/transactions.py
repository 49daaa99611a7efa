"""ottla transactions [list | describe | hanging | abort]"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, counted, done_word, report
from ottla.server.cli.client.cluster import live_brokers
from ottla.server.cli.client.configs import BROKER, Resource, settings_of
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_pairs, print_table
from ottla.server.cli.client.transactions import (
    Open,
    abort_in_partition,
    describe,
    fence,
    hanging,
    list_transactions,
)
from ottla.server.cli.command_line import EXIT_OK, is_number, period_ms
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import place_words, places_of, time_text

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.wire.messages.describe_transactions import TransactionState

DESCRIPTION = """\
Lists transactional ids, tells about their transactions, finds transactions that hang, and aborts some. A transaction hangs if it is
open in a partition and no coordinator will end it: readers with read_committed never get past it.
"""

EXAMPLES = """\
examples:
  ottla transactions                             list transactional ids
  ottla transactions list --state Ongoing --older-than 10m
  ottla transactions describe billing-1
  ottla transactions hanging --partition orders:0,1
  ottla transactions abort billing-1             fences its producer; asks first, --yes does not
  ottla transactions abort --hanging --partition orders
"""

MAX_TIMEOUT = "transaction.max.timeout.ms"
MAX_TIMEOUT_MS = 900_000  # Kafka's default of the setting, where the broker does not tell its own
_ONGOING = "Ongoing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla transactions`; the default is `list`."""
    parser.set_defaults(state=[], producer_id=[], older_than=-1, pattern=None)
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list transactional ids", _list)
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="such as Ongoing; repeatable")
    by_id = "of this producer; repeatable"
    listing.add_argument("--producer-id", action="append", default=[], type=_producer_id, metavar="N", help=by_id)
    age = "open for longer than this, such as 10m"
    listing.add_argument("--older-than", type=period_ms, default=-1, metavar="TIME", help=age)
    pattern = "ids that match this regular expression of RE2"
    listing.add_argument("--pattern", metavar="PATTERN", help=pattern)
    describing = actions.add("describe", "tell state, producer and partitions of transactional ids", _describe)
    describing.add_argument("ids", nargs="+", metavar="ID")
    finding = actions.add("hanging", "find transactions that no coordinator will end", _hanging)
    _add_search(finding)
    aborting = actions.add("abort", "abort open transactions", _abort)
    aborting.add_argument("ids", nargs="*", metavar="ID", help="transactional ids, whose producers are fenced")
    aborting.add_argument("--hanging", action="store_true", help="those that `hanging` finds")
    _add_search(aborting)
    add_dry_run(aborting)
    add_yes(aborting)


def _add_search(parser: argparse.ArgumentParser) -> None:
    where = "only in this topic, or in some of its partitions; repeatable"
    parser.add_argument("--partition", action="append", default=[], metavar="TOPIC[:N,N]", help=where)
    age = f"without a record for longer than this (default: the broker's {MAX_TIMEOUT})"
    parser.add_argument("--older-than", type=period_ms, metavar="TIME", help=age)


def _producer_id(text: str) -> int:
    if not is_number(text, 18):
        raise argparse.ArgumentTypeError(f"{text} is not a producer id")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


# --- list and describe


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = list_transactions(
        cluster,
        states=options.state,
        producer_ids=options.producer_id,
        longer_than_ms=options.older_than,
        pattern=options.pattern,
    )
    if wants_json(options):
        print_json([each._asdict() for each in found])
    elif not found:
        print_line("no transactional ids")
    else:
        print_table(("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), found)
    return EXIT_OK


def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    states = [describe(cluster, each) for each in dict.fromkeys(options.ids)]
    if wants_json(options):
        print_json([_as_json(each) for each in states])
        return EXIT_OK
    for index, state in enumerate(states):
        if index:
            print_line("")
        words = " ".join(place_words(dict.fromkeys(_places(state))))
        begun_ms = state.transaction_start_time_ms
        print_pairs(
            [
                ("transactional id", state.transactional_id),
                ("state", state.transaction_state),
                ("producer id", state.producer_id),
                ("producer epoch", state.producer_epoch),
                ("timeout", f"{state.transaction_timeout_ms} ms"),
                ("begun", time_text(begun_ms) if begun_ms >= 0 else None),
                ("partitions", words or None),
            ]
        )
    return EXIT_OK


def _places(state: TransactionState) -> list[Partition]:
    return [(topic.topic, number) for topic in state.topics for number in topic.partitions]


def _as_json(state: TransactionState) -> dict[str, Any]:
    begun_ms = state.transaction_start_time_ms
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "start_ms": begun_ms if begun_ms >= 0 else None,
        "partitions": {topic.topic: sorted(topic.partitions) for topic in state.topics},
    }


# --- hanging


def _hanging(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _found(cluster, options)
    if wants_json(options):
        print_json([each._asdict() for each in found])
    elif not found:
        print_line("no transaction hangs")
    else:
        _print_open(found)
        print_line("\n`ottla transactions abort --hanging` aborts them.")
    return EXIT_OK


def _found(cluster: Cluster, options: argparse.Namespace) -> list[Open]:
    places = places_of(cluster, options.partition, "--partition") if options.partition else _all_places(cluster)
    older_than_ms = options.older_than
    if older_than_ms is None:
        resource = Resource(BROKER, str(live_brokers(cluster)[0]))
        told = settings_of(cluster, resource, [MAX_TIMEOUT], with_origins=False)
        older_than_ms = int(told[0].value or MAX_TIMEOUT_MS) if told else MAX_TIMEOUT_MS
    return hanging(cluster, places, older_than_ms)


def _all_places(cluster: Cluster) -> list[Partition]:
    """Return all partitions that have a leader, those of internal topics too: groups commit by transactions."""
    topics = cluster.metadata(None).topics
    return sorted(
        (topic.name or "", each.partition_index) for topic in topics for each in topic.partitions if each.leader_id >= 0
    )


def _print_open(found: Sequence[Open]) -> None:
    now_ms = int(time.time() * 1000)
    rows = [
        (
            each.topic,
            each.partition,
            each.producer_id,
            each.producer_epoch,
            each.start_offset,
            max(0, now_ms - each.last_ms) // 60_000,
        )
        for each in found
    ]
    print_table(("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "FIRST OFFSET", "IDLE MINUTES"), rows)


# --- abort


def _abort(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.hanging is bool(options.ids):
        raise UsageError("which transactions? Give transactional ids, or --hanging")
    if options.ids and (options.partition or options.older_than is not None):
        raise UsageError("--partition and --older-than go with --hanging")
    return _abort_hanging(cluster, options) if options.hanging else _abort_ids(cluster, options)


def _abort_ids(cluster: Cluster, options: argparse.Namespace) -> int:
    states = [describe(cluster, each) for each in dict.fromkeys(options.ids)]
    for state in states:
        if state.transaction_state != _ONGOING:
            raise RequestFailed(
                f"transactional id {state.transactional_id} has no open transaction (it is {state.transaction_state})"
            )
    names = [state.transactional_id for state in states]
    if not options.dry_run:
        agree(options, f"Abort the open transaction of {', '.join(names)}, and fence the producer")
        carry_out(
            [
                Step(
                    f"the transaction of {each.transactional_id} is aborted",
                    partial(fence, cluster, each.transactional_id, each.transaction_timeout_ms),
                )
                for each in states
            ]
        )

    def show() -> None:
        for each in names:
            print_line(f"the transaction of {each} {done_word(options)} aborted")

    report(options, {"transactions": [_as_json(each) for each in states]}, show, [], "its records are aborted")
    return EXIT_OK


def _abort_hanging(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _found(cluster, options)
    if found and not options.dry_run:
        places = ", ".join(f"{each.topic}-{each.partition} (producer {each.producer_id})" for each in found)
        agree(options, f"Abort the transactions that hang in {places}")
        carry_out(
            [
                Step(
                    f"the transaction of producer {each.producer_id} in {each.topic}-{each.partition} is aborted",
                    partial(abort_in_partition, cluster, each),
                )
                for each in found
            ]
        )

    def show() -> None:
        if not found:
            print_line("no transaction hangs")
            return
        _print_open(found)
        print_line(f"{counted(len(found), 'transaction')} {done_word(options, len(found))} aborted")

    never = "their records are aborted" if found else ""
    report(options, {"transactions": [each._asdict() for each in found]}, show, [], never)
    return EXIT_OK
