"""ottla groups [list | describe | members | reset | delete]"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, report, undo_command
from ottla.server.cli.client.groups import (
    SHARE,
    WITHOUT_MEMBERS,
    Listed,
    Member,
    commit,
    committed_of,
    delete_group,
    ends_of,
    find_group,
    list_groups,
    members_of,
    no_group,
    starts_of,
)
from ottla.server.cli.client.output import RequestFailed, print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.group_members import add_action as add_members
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import add_target, parse_target, place_words, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.cli.client.cluster import Cluster, Partition

DESCRIPTION = """\
Lists the groups of a cluster, tells how far one is behind and who its members are, resets what it has committed, or deletes it.
"""

EXAMPLES = """\
examples:
  ottla groups                                   list them
  ottla groups describe billing                  members, offsets and lag
  ottla groups members billing                   subscriptions and assignments
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
    resetting = actions.add("reset", "set what a group without members has committed", _reset)
    resetting.add_argument("name", metavar="GROUP")
    which = resetting.add_mutually_exclusive_group(required=True)
    topic = "of this topic, or some of its partitions; repeatable"
    which.add_argument("--topic", action="append", default=[], metavar="TOPIC[:N,N]", help=topic)
    committed = "of all topics that the group has committed offsets of"
    which.add_argument("--all-topics", action="store_true", help=committed)
    add_target(
        resetting,
        earliest="the first record that is there",
        latest="the end, before the next record",
        offset="this offset, or the nearest that is there",
        time="the first record since YYYY-MM-DDTHH:MM:SS, in UTC unless it says",
    )
    mode = resetting.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it")
    mode.add_argument("--dry-run", action="store_true", help="only tell what would change, as without --execute")

    deleting = actions.add("delete", "delete groups without members, with what they have committed", _delete)
    deleting.add_argument("names", nargs="+", metavar="GROUP")
    add_dry_run(deleting)
    add_yes(deleting)
    add_members(actions)


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
    listed = find_group(cluster, name)
    if listed is None:
        raise no_group(cluster, name)
    members = members_of(cluster, listed)
    committed = _offsets_of(cluster, listed)
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
    return {
        "group": name,
        "kind": listed.kind,
        "state": listed.state or None,
        "members": [_member_row(each) for each in members.all],
        "offsets": offsets,
        "lag": sum(each["lag"] or 0 for each in offsets),
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


# --- delete


def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    groups = [_deletable(cluster, name) for name in names]
    offsets = {each.group: _offsets_of(cluster, each) for each in groups}
    if not options.dry_run:
        told = ", ".join(f"{name} (offsets of {len(offsets[name])} partitions)" for name in names)
        agree(options, f"Delete {told}")
        carry_out([Step(f"{name} is deleted", partial(delete_group, cluster, name)) for name in names])
    rows = [(name, *place, offset) for name in names for place, offset in sorted(offsets[name].items())]
    value = {
        "groups": [
            {
                "group": each.group,
                "kind": each.kind,
                "deleted": not options.dry_run,
                "offsets": _as_list(offsets[each.group]),
            }
            for each in groups
        ]
    }

    def show() -> None:
        if rows:
            print_table(("GROUP", "TOPIC", "PARTITION", "COMMITTED"), rows)
        for name in names:
            print_line(f"{name} {'would be' if options.dry_run else 'is'} deleted")

    # What a share group or a streams group has beside its offsets is gone for good.
    undo = [
        line for each in groups if each.kind.lower() in _BEGUN_AGAIN for line in _commits(options, each.group, offsets)
    ]
    report(options, value, show, undo, "" if undo else "a group is made again by its members")
    return EXIT_OK


_BEGUN_AGAIN = ("classic", "consumer")


def _deletable(cluster: Cluster, name: str) -> Listed:
    listed = find_group(cluster, name)
    if listed is None:
        raise no_group(cluster, name)
    if listed.state not in WITHOUT_MEMBERS:
        raise RequestFailed(f"group {name} has members (it is {listed.state}): stop them first")
    return listed


def _offsets_of(cluster: Cluster, listed: Listed) -> dict[Partition, int]:
    # A share group has no committed offsets, and its coordinator says so by an error.
    is_share = listed.kind.lower() == SHARE
    return starts_of(cluster, listed.group) if is_share else committed_of(cluster, listed.group)


def _as_list(offsets: dict[Partition, int]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "committed": offset}
        for (topic, number), offset in sorted(offsets.items())
    ]


def _commits(options: argparse.Namespace, group: str, offsets: dict[str, dict[Partition, int]]) -> Iterator[str]:
    """Yield commands that restore a group's committed offsets, one command for each offset."""
    for offset in sorted(set(offsets[group].values())):
        words = place_words({place: None for place, each in offsets[group].items() if each == offset})
        named = [word for each in words for word in ("--topic", each)]
        yield undo_command(options, "groups", "reset", group, *named, "--to-offset", str(offset), "--execute")


# --- reset


def _reset(cluster: Cluster, options: argparse.Namespace) -> int:
    name = options.name
    target = parse_target(options, is_strict=False)
    listed = find_group(cluster, name)
    if listed is not None and listed.state not in WITHOUT_MEMBERS:
        raise RequestFailed(f"group {name} has members (it is {listed.state}): stop them first")
    if listed is not None and listed.kind.lower() == SHARE:
        raise RequestFailed(f"group {name} is a share group, whose start is kafka-share-groups.sh's to reset")
    committed = {} if listed is None else committed_of(cluster, name)
    places = sorted(committed) if options.all_topics else places_of(cluster, options.topic, "--topic")
    if not places:
        raise RequestFailed(f"group {name} has committed nothing: name what to reset by --topic")
    planned = target(cluster, places)
    if options.execute:
        commit(cluster, name, planned)
    _print_result(name, committed, planned, options)
    return EXIT_OK


def _print_result(
    name: str, committed: dict[Partition, int], planned: dict[Partition, int], options: argparse.Namespace
) -> None:
    rows = [
        (topic, number, committed.get((topic, number)), offset) for (topic, number), offset in sorted(planned.items())
    ]
    if wants_json(options):
        offsets = [
            {"topic": topic, "partition": number, "committed": old, "new": new} for topic, number, old, new in rows
        ]
        print_json({"group": name, "executed": options.execute, "offsets": offsets})
        return
    print_table(("TOPIC", "PARTITION", "COMMITTED", "NEW"), rows)
    if not options.execute:
        print_line("\nNothing is changed; --execute does it.")
