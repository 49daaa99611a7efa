"""ottla topics [list | create | delete | describe]"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import (
    RequestFailed,
    UsageError,
    ids,
    print_json,
    print_line,
    print_pairs,
    print_table,
)
from ottla.server.cli.client.topics import (
    SERVERS_DEFAULT,
    create_topic,
    delete_topic,
    describe_topics,
    topic_summary,
)
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, count, run_action, wants_json

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Lists the topics of a cluster, creates and deletes some, or tells all of some.
"""

EXAMPLES = """\
examples:
  ottla topics                                   list them
  ottla topics create orders -p 6 -r 3 -c retention.ms=86400000
  ottla topics describe orders                   partitions, leaders, replicas, offsets, settings
  ottla topics delete orders                     asks first; --yes does not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions; the default lists."""
    parser.set_defaults(internal=False)
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list the topics", _list)
    listing.add_argument("--internal", action="store_true", help="list the cluster's own topics, too")
    creating = actions.add("create", "create topics", _create)
    creating.add_argument("names", nargs="+", metavar="TOPIC")
    creating.add_argument("-p", "--partitions", type=count, metavar="N", help="how many (default: the broker's)")
    creating.add_argument("-r", "--replicas", type=count, metavar="N", help="of each partition (default: the broker's)")
    creating.add_argument(
        "-c", "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting of the topics; repeatable"
    )
    creating.add_argument("--if-not-exists", action="store_true", help="say nothing of topics that are there already")
    creating.add_argument("--dry-run", action="store_true", help="have it checked, and create nothing")
    deleting = actions.add("delete", "delete topics with all their records", _delete)
    deleting.add_argument("names", nargs="+", metavar="TOPIC")
    deleting.add_argument("-y", "--yes", action="store_true", help="do not ask")
    describing = actions.add("describe", "tell all of topics", _describe)
    describing.add_argument("names", nargs="+", metavar="TOPIC")
    describing.add_argument("--all-configs", action="store_true", help="settings that have their defaults, too")


def run(options: argparse.Namespace) -> int:
    """Run the action of the command line, by default `list`."""
    return run_action(options)


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = [topic_summary(each) for each in cluster.metadata(None).topics if options.internal or not each.is_internal]
    topics.sort(key=lambda each: each["name"] or "")
    if wants_json(options):
        print_json(topics)
        return EXIT_OK
    columns = ("name", "partitions", "replicas", "under_replicated", "offline")
    headings = ("TOPIC", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "OFFLINE")
    print_table(headings, [[each[column] for column in columns] for each in topics])
    return EXIT_OK


def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    configs = dict(map(_pair, options.config))
    made = []
    for name in options.names:
        is_new = create_topic(
            cluster,
            name,
            options.partitions or SERVERS_DEFAULT,
            options.replicas or SERVERS_DEFAULT,
            configs,
            only_checks=options.dry_run,
        )
        if not is_new and not options.if_not_exists:
            raise RequestFailed(f"topic {name} is there already")
        made.append({"name": name, "created": is_new and not options.dry_run})
        if not wants_json(options):
            print_line(f"{name} {_said(is_new, options.dry_run)}")
    if wants_json(options):
        print_json(made)
    return EXIT_OK


def _said(is_new: bool, only_checked: bool) -> str:
    if not is_new:
        return "is there already"
    return "could be created" if only_checked else "is created"


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--config {text}: must be NAME=VALUE")
    return name, value


def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = cluster.topics(options.names)
    if not options.yes and not _agreed([f"{each.name} ({len(each.partitions)} partitions)" for each in topics]):
        raise RequestFailed("nothing is deleted")
    for name in options.names:
        delete_topic(cluster, name)
        if not wants_json(options):
            print_line(f"{name} is deleted")
    if wants_json(options):
        print_json([{"name": name, "deleted": True} for name in options.names])
    return EXIT_OK


def _agreed(what: list[str]) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"there is nobody to ask whether to delete {', '.join(what)}: give --yes")
    print(f"Delete {', '.join(what)} with all records? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = describe_topics(cluster, options.names, with_defaults=options.all_configs)
    if wants_json(options):
        print_json(topics)
        return EXIT_OK
    for index, topic in enumerate(topics):
        if index:
            print_line("")
        pairs = [("topic", topic["name"]), ("id", topic["id"])]
        pairs += [(f"  {name}", value) for name, value in topic["configs"].items()]
        print_pairs(pairs)
        rows = [
            (
                each["partition"],
                each["leader"],
                ids(each["replicas"]),
                ids(each["isr"]),
                ids(each["offline"]),
                each["start_offset"],
                each["end_offset"],
            )
            for each in topic["partitions"]
        ]
        print_table(("PARTITION", "LEADER", "REPLICAS", "ISR", "OFFLINE", "START", "END"), rows)
    return EXIT_OK
