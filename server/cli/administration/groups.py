"""ottla groups [list | describe | members | reset | delete-offsets | delete]"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ottla.server.cli.administration.group_changes import add_actions as add_changes
from ottla.server.cli.administration.group_members import add_action as add_members
from ottla.server.cli.client.groups import (
    Member,
    ends_of,
    existing_group,
    list_groups,
    members_of,
    offsets_of,
)
from ottla.server.cli.client.output import print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, run_action, wants_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Lists the groups of a cluster, tells how far one is behind and who its members are, resets what it has committed, or deletes it.
"""

EXAMPLES = """\
examples:
  ottla groups                                   list them
  ottla groups describe billing                  members, offsets and lag
  ottla groups members billing                   subscriptions and assignments
  ottla groups delete-offsets billing --topic orders
                                                 asks first, as does the next
  ottla groups delete billing                    asks first; --yes does not
  ottla groups reset billing --topic orders --to-earliest
                                                 tells what would change
  ottla groups reset billing --topic orders:0,1 --to-datetime 2026-01-31T12:00:00 --execute
  ottla groups reset billing --all-topics --to-offset 42 --execute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla groups`; the default is `list`."""
    actions = Actions(parser, "list", _list)
    actions.add("list", "list the groups", _list)
    describing = actions.add("describe", "tell members, offsets and lag of groups", _describe)
    describing.add_argument("names", nargs="+", metavar="GROUP")
    add_members(actions)
    add_changes(actions)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line, or `list` without one; return the exit code."""
    return run_action(options)


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    groups = list_groups(cluster)
    if wants_json(options):
        print_json([each._asdict() for each in groups])
        return EXIT_OK
    rows = [(each.group, each.kind, each.state or None, each.protocol or None, each.coordinator) for each in groups]
    print_table(("GROUP", "KIND", "STATE", "PROTOCOL", "COORDINATOR"), rows)
    return EXIT_OK


# --- describe


def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    groups = [_described(cluster, name) for name in options.names]
    if wants_json(options):
        print_json(groups)
        return EXIT_OK
    for index, group in enumerate(groups):
        if index:
            print_line("")
        _show(group)
    return EXIT_OK


def _described(cluster: Cluster, name: str) -> dict[str, Any]:
    listed = existing_group(cluster, name)
    members = members_of(cluster, listed)
    committed = offsets_of(cluster, listed)
    readers = members.readers(committed)
    places = sorted(committed.keys() | readers.keys())
    ends = ends_of(cluster, places)
    offsets = [
        {
            "topic": place[0],
            "partition": place[1],
            "committed": committed.get(place),
            "end": ends.get(place),
            "lag": _lag(committed.get(place), ends.get(place)),
            "member": _reader(readers.get(place, [])),
        }
        for place in places
    ]
    lags = [each["lag"] for each in offsets if each["lag"] is not None]
    return {
        "group": name,
        "kind": listed.kind,
        "state": listed.state or None,
        "members": [_member_row(each) for each in members.all],
        "offsets": offsets,
        "lag": sum(lags) if lags or not offsets else None,
    }


def _reader(readers: Sequence[str]) -> str | None:
    """Format the readers of a partition: one member's id or, if several share the partition, their number."""
    return f"{len(readers)} members" if len(readers) > 1 else next(iter(readers), None)


def _member_row(member: Member) -> dict[str, Any]:
    row = {"member": member.member_id, "client_id": member.client_id, "host": member.host}
    if member.tasks:
        return row | {"partitions": None, "tasks": sorted(map(str, member.tasks))}
    return row | {"partitions": len(member.partitions)}


def _lag(committed: int | None, end: int | None) -> int | None:
    # The end was asked for after the offset, but a topic may have been made again meanwhile.
    return None if committed is None or end is None else max(0, end - committed)


def _show(group: dict[str, Any]) -> None:
    print_pairs([(name, group[name]) for name in ("group", "kind", "state", "lag")])
    if group["members"]:
        print_line("")
        columns = ("member", "client_id", "host", "partitions")
        rows = [(*(each[key] for key in columns), " ".join(each.get("tasks", ())) or None) for each in group["members"]]
        of_members = ("MEMBER", "CLIENT", "HOST", "PARTITIONS", "TASKS")
        # Tasks are of streams groups alone.
        width = len(of_members) - (not any(row[-1] for row in rows))
        print_table(of_members[:width], [row[:width] for row in rows])
    if group["offsets"]:
        keys = ("topic", "partition", "committed", "end", "lag", "member")
        print_line("")
        headings = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
        print_table(headings, [[each[key] for key in keys] for each in group["offsets"]])
