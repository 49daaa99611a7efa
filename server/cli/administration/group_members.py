"""ottla groups members: the members of groups of each type, with what they subscribe to, have, and are to get"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.server.cli.client.assignment import assigned, topics_in
from ottla.server.cli.client.cluster import by_topic, only
from ottla.server.cli.client.groups import Listed, described, existing_group
from ottla.server.cli.client.output import RequestFailed, print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, wants_json
from ottla.server.cli.places import place_words
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.share_group import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition

_CLASSIC_MAX_VERSION = 5  # of DescribeGroups: later ones differ in what they say of groups that are not there

Members = tuple[str | None, list[dict[str, Any]]]
"""Name of the assignor (None: unknown) and the members, each as the JSON has it."""


def add_action(actions: Actions) -> None:
    """Add `members` to the actions of `ottla groups`."""
    parser = actions.add("members", "tell the members of groups, their subscriptions and assignments", _show_all)
    parser.add_argument("names", nargs="+", metavar="GROUP")


def _show_all(cluster: Cluster, options: argparse.Namespace) -> int:
    groups = [_group(cluster, name) for name in dict.fromkeys(options.names)]
    if wants_json(options):
        print_json(groups)
        return EXIT_OK
    for index, group in enumerate(groups):
        if index:
            print_line("")
        _show(group)
    return EXIT_OK


def _group(cluster: Cluster, name: str) -> dict[str, Any]:
    listed = existing_group(cluster, name)
    ask = _KINDS.get(listed.kind.lower())
    if ask is None:
        raise RequestFailed(f"group {name} is of a kind that this version does not know: {listed.kind}")
    assignor, members = cluster.patiently(lambda: ask(cluster, name))
    return _group_as_json(listed, assignor, members)


def _group_as_json(listed: Listed, assignor: str | None, members: list[dict[str, Any]]) -> dict[str, Any]:
    state = listed.state or None
    return {"group": listed.group, "kind": listed.kind, "state": state, "assignor": assignor, "members": members}


# --- kinds


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


# --- tables


def _show(group: dict[str, Any]) -> None:
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
