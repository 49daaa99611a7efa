"""ottla groups [list | describe | members | reset | delete-offsets | delete]"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.server.cli.administration.group_changes import add_actions as add_changes
from ottla.server.cli.client.assignment import assigned, topics_in
from ottla.server.cli.client.cluster import by_topic, only
from ottla.server.cli.client.groups import (
    Member,
    described,
    ends_of,
    existing_group,
    list_groups,
    members_of,
    offsets_of,
)
from ottla.server.cli.client.output import RequestFailed, print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import place_words
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.share_group import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.cli.client.cluster import Cluster, Partition

_CLASSIC_MAX_VERSION = 5  # of DescribeGroups: later ones differ in what they say of groups that are not there

Members = tuple[str | None, list[dict[str, Any]]]
"""Name of the assignor (None: unknown) and the members, each as the JSON has it."""

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
    telling = actions.add("members", "tell the members of groups, their subscriptions and assignments", _members)
    telling.add_argument("names", nargs="+", metavar="GROUP")
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
    return _print([_described(cluster, name) for name in options.names], _show, options)


def _print(groups: list[dict[str, Any]], show: Callable[[dict[str, Any]], None], options: argparse.Namespace) -> int:
    if wants_json(options):
        print_json(groups)
        return EXIT_OK
    for index, group in enumerate(groups):
        if index:
            print_line("")
        show(group)
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


# --- members


def _members(cluster: Cluster, options: argparse.Namespace) -> int:
    """Tell what members of groups of each type subscribe to, have, and are to get."""
    groups = [_with_members(cluster, name) for name in dict.fromkeys(options.names)]
    return _print(groups, _show_members, options)


def _with_members(cluster: Cluster, name: str) -> dict[str, Any]:
    listed = existing_group(cluster, name)
    ask = _KINDS.get(listed.kind.lower())
    if ask is None:
        raise RequestFailed(f"group {name} is of a kind that this version does not know: {listed.kind}")
    assignor, members = cluster.patiently(lambda: ask(cluster, name))
    state = listed.state or None
    return {"group": name, "kind": listed.kind, "state": state, "assignor": assignor, "members": members}


def _member(found: Any, instance: str | None, **more: Any) -> dict[str, Any]:
    member = {"member": found.member_id, "instance": instance, "client_id": found.client_id, "host": found.client_host}
    return member | more


def _partitions(parts: Iterable[Partition]) -> dict[str, list[int]]:
    return {topic: sorted(numbers) for topic, numbers in sorted(by_topic(list(parts)).items())}


def _classic(cluster: Cluster, group: str) -> Members:
    answer = cluster.coordinator(group).ask(DescribeGroupsRequest(groups=[group]), at_most=_CLASSIC_MAX_VERSION)
    found = only(answer.groups, f"group {group}")
    cluster.check(f"group {group}", found.error_code, found.error_message)
    is_consumer = found.protocol_type == "consumer"
    members = [
        _member(
            each,
            each.group_instance_id,
            subscribed=topics_in(bytes(each.member_metadata)) if is_consumer else [],
            assigned=_partitions(assigned(bytes(each.member_assignment)) if is_consumer else ()),
        )
        for each in found.members
    ]
    return found.protocol_data or None, members


def _of_topics(assignment: Any) -> dict[str, list[int]]:
    return {each.topic_name: sorted(each.partitions) for each in assignment.topic_partitions}


def _consumer(cluster: Cluster, group: str) -> Members:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    found = described(cluster, group, request)
    members = [
        _member(
            each,
            each.instance_id,
            rack=each.rack_id,
            epoch=each.member_epoch,
            subscribed=each.subscribed_topic_names,
            pattern=each.subscribed_topic_regex or None,
            assigned=_of_topics(each.assignment),
            target=_of_topics(each.target_assignment),
        )
        for each in found.members
    ]
    return found.assignor_name or None, members


def _share(cluster: Cluster, group: str) -> Members:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    found = described(cluster, group, request)
    members = [
        _member(
            each,
            None,
            rack=each.rack_id,
            epoch=each.member_epoch,
            subscribed=each.subscribed_topic_names,
            assigned=_of_topics(each.assignment),
        )
        for each in found.members
    ]
    return found.assignor_name or None, members


def _tasks(assignment: Any) -> dict[str, list[str]]:
    kinds = {
        "active": assignment.active_tasks,
        "standby": assignment.standby_tasks,
        "warmup": assignment.warmup_tasks,
    }
    return {
        kind: [f"{each.subtopology_id}_{number}" for each in tasks for number in sorted(each.partitions)]
        for kind, tasks in kinds.items()
    }


def _streams(cluster: Cluster, group: str) -> Members:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    found = described(cluster, group, request)
    members = [
        _member(
            each,
            each.instance_id,
            rack=each.rack_id,
            epoch=each.member_epoch,
            process=each.process_id,
            tasks=_tasks(each.assignment),
            target=_tasks(each.target_assignment),
        )
        for each in found.members
    ]
    return found.assignor_name, members


_KINDS: dict[str, Callable[[Cluster, str], Members]] = {
    "classic": _classic,
    "consumer": _consumer,
    "share": _share,
    "streams": _streams,
}


def _show_members(group: dict[str, Any]) -> None:
    print_pairs([(name, group[name]) for name in ("group", "kind", "state", "assignor")])
    members = group["members"]
    print_line("")
    if not members:
        print_line("no members")
        return
    headings = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "EPOCH", "SUBSCRIBED", "ASSIGNED", "TARGET"]
    rows = [
        [
            each["member"],
            each["instance"],
            each["client_id"],
            each["host"],
            each.get("epoch"),
            each.get("pattern") or _words(each.get("subscribed", ())),
            _assignment_words(each.get("assigned", each.get("tasks", {}))),
            _target_words(each),
        ]
        for each in members
    ]
    # A column that is empty in all rows tells nothing.
    kept = [index for index in range(len(headings)) if any(row[index] is not None for row in rows)]
    print_table([headings[index] for index in kept], [[row[index] for index in kept] for row in rows])


def _words(names: Iterable[str]) -> str | None:
    return " ".join(names) or None


def _target_words(member: dict[str, Any]) -> str | None:
    """Return a member's target assignment as text; None if the member already has this assignment."""
    target = member.get("target")
    return (
        None if target is None or target == member.get("assigned", member.get("tasks")) else _assignment_words(target)
    )


def _assignment_words(assignment: dict[str, Sequence[Any]]) -> str | None:
    if "active" in assignment and "standby" in assignment:
        words = list(assignment["active"])
        return _words([*words, *(f"{each}({kind})" for kind in ("standby", "warmup") for each in assignment[kind])])
    return _words(place_words({(topic, number): None for topic, numbers in assignment.items() for number in numbers}))
