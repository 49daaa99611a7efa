"""ottla groups [list | describe | reset]"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.server.cli.client.cluster import EARLIEST, LATEST, Partition, by_topic, offsets_at
from ottla.server.cli.client.groups import (
    SHARE,
    WITHOUT_MEMBERS,
    Member,
    commit,
    committed_of,
    ends_of,
    find_group,
    list_groups,
    members_of,
    starts_of,
)
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK, is_number
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Lists the groups of a cluster, tells how far one is behind, or resets what it has committed.
"""

EXAMPLES = """\
examples:
  ottla groups                                   list them
  ottla groups describe billing                  members, offsets and lag
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
    to = resetting.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    to.add_argument("--to-latest", action="store_true", help="the end, before the next record")
    to.add_argument("--to-offset", metavar="N", help="this offset, or the nearest that is there")
    since = "the first record since YYYY-MM-DDTHH:MM:SS, in UTC unless it says"
    to.add_argument("--to-datetime", metavar="TIME", help=since)
    mode = resetting.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it")
    mode.add_argument("--dry-run", action="store_true", help="only tell what would change, as without --execute")


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
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
        raise RequestFailed(f"group {name} does not exist: `ottla groups` lists those that do")
    members = members_of(cluster, listed)
    # A share group has no committed offsets, and its coordinator says so by an error.
    committed = starts_of(cluster, name) if listed.kind.lower() == SHARE else committed_of(cluster, name)
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
    """Format the readers of a partition: the member's id, or the number of members if several share the partition."""
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


# --- reset


def _reset(cluster: Cluster, options: argparse.Namespace) -> int:
    name = options.name
    target = _target(options)
    listed = find_group(cluster, name)
    if listed is not None and listed.state not in WITHOUT_MEMBERS:
        raise RequestFailed(f"group {name} has members (it is {listed.state}): stop them first")
    if listed is not None and listed.kind.lower() == SHARE:
        raise RequestFailed(f"group {name} is a share group, whose start is kafka-share-groups.sh's to reset")
    committed = {} if listed is None else committed_of(cluster, name)
    places = sorted(committed) if options.all_topics else _places(cluster, options.topic)
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


def _target(options: argparse.Namespace) -> Callable[[Cluster, Sequence[Partition]], dict[Partition, int]]:
    """Return a function that computes the new offset of each partition from the options. Raises UsageError."""
    if options.to_earliest:
        return lambda cluster, places: offsets_at(cluster, by_topic(places), EARLIEST)
    if options.to_latest:
        return lambda cluster, places: offsets_at(cluster, by_topic(places), LATEST)
    if options.to_offset is not None:
        offset = parse_integer(options.to_offset, 64)
        if offset is None or offset < 0:
            raise UsageError(f"--to-offset {options.to_offset}: must be a number from 0 on")
        return lambda cluster, places: _nearest(cluster, places, offset)
    timestamp_ms = _milliseconds(options.to_datetime)
    return lambda cluster, places: _since(cluster, places, timestamp_ms)


def _nearest(cluster: Cluster, places: Sequence[Partition], offset: int) -> dict[Partition, int]:
    first, last = (offsets_at(cluster, by_topic(places), each) for each in (EARLIEST, LATEST))
    return {place: min(max(offset, first[place]), last[place]) for place in places}


def _since(cluster: Cluster, places: Sequence[Partition], timestamp_ms: int) -> dict[Partition, int]:
    found = offsets_at(cluster, by_topic(places), timestamp_ms)
    last = offsets_at(cluster, by_topic(places), LATEST)
    return {place: offset if offset >= 0 else last[place] for place, offset in found.items()}


def _milliseconds(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        timestamp_ms = int(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--to-datetime {text}: must be a time such as 2026-01-31T12:00:00 or 2026-01-31T12:00:00+02:00"
        ) from None
    if timestamp_ms < 0:
        raise UsageError(f"--to-datetime {text}: is before 1970")
    return timestamp_ms


def _places(cluster: Cluster, texts: Sequence[str]) -> list[Partition]:
    """Parse the values of --topic: TOPIC for all partitions, TOPIC:N,N for some. Raises UsageError, RequestFailed."""
    wanted: dict[str, set[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        parts = numbers.split(",") if separator else []
        if not topic or not all(is_number(each) for each in parts):
            raise UsageError(f"--topic {text}: must be TOPIC or TOPIC:N,N")
        wanted[topic] = set(map(int, parts)) if separator else None
    places = []
    for found in cluster.topics(list(wanted)):
        name = found.name or ""
        known = [each.partition_index for each in found.partitions]
        numbers_wanted = wanted[name]
        chosen = known if numbers_wanted is None else sorted(numbers_wanted)
        for number in chosen:
            if number not in known:
                raise RequestFailed(f"topic {name} has no partition {number}")
            places.append((name, number))
    return sorted(places)
