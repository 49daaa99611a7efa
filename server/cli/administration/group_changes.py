"""ottla groups reset, delete-offsets, delete: changes of what groups have committed"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import (
    Step,
    add_dry_run,
    add_yes,
    agree,
    carry_out,
    counted,
    done_word,
    option_words,
    print_undo,
    report,
    undo_command,
)
from ottla.server.cli.client.groups import (
    SHARE,
    WITHOUT_MEMBERS,
    Listed,
    commit,
    delete_group,
    delete_offsets,
    delete_starts,
    existing_group,
    find_group,
    nearest_group,
    offsets_of,
    set_starts,
)
from ottla.server.cli.client.output import RequestFailed, print_json, print_line, print_table, say
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, wants_json
from ottla.server.cli.places import add_target, parse_target, place_words, places_of

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition


def add_actions(actions: Actions) -> None:
    """Add `reset`, `delete-offsets` and `delete` to the actions of `ottla groups`."""
    resetting = actions.add("reset", "set what a group without members has committed", _reset)
    _add_places(resetting)
    add_target(
        resetting,
        earliest="the first record that is there",
        latest="the end, before the next record",
        offset="this offset, or the nearest that is there",
        time="the first record since YYYY-MM-DDTHH:MM:SS (UTC, as in Kafka's script, unless it names a zone), or -1h",
    )
    mode = resetting.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it")
    mode.add_argument("--dry-run", action="store_true", help="only tell what would change, as without --execute")
    forgetting = actions.add("delete-offsets", "delete what a group has committed of topics", _delete_offsets)
    _add_places(forgetting)
    add_dry_run(forgetting)
    add_yes(forgetting)
    deleting = actions.add("delete", "delete groups without members, with what they have committed", _delete)
    deleting.add_argument("names", nargs="+", metavar="GROUP")
    add_dry_run(deleting)
    add_yes(deleting)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    which = parser.add_mutually_exclusive_group(required=True)
    topic = "of this topic, or some of its partitions; repeatable"
    which.add_argument("--topic", action="append", default=[], metavar="TOPIC[:N,N]", help=topic)
    committed = "of all topics that the group has committed offsets of"
    which.add_argument("--all-topics", action="store_true", help=committed)


# --- reset


def _reset(cluster: Cluster, options: argparse.Namespace) -> int:
    name = options.name
    target = parse_target(options, is_strict=False)
    listed = find_group(cluster, name)
    if listed is not None:
        _check_without_members(listed)
    elif hint := nearest_group(cluster, name):
        say(f"group {name} does not exist yet: {hint}")
    before = {} if listed is None else offsets_of(cluster, listed)
    places = sorted(before) if options.all_topics else places_of(cluster, options.topic, "--topic")
    if not places:
        raise RequestFailed(f"group {name} has committed nothing: name what to reset by --topic")
    planned = target(cluster, places)
    if options.execute:
        change = set_starts if listed is not None and _is_share(listed) else commit
        carry_out([Step(f"the offsets of {name} are set", partial(change, cluster, name, planned))])
    _print_result(options, before, planned)
    return EXIT_OK


def _is_share(listed: Listed) -> bool:
    return listed.kind.lower() == SHARE


def _check_without_members(listed: Listed) -> None:
    if listed.state not in WITHOUT_MEMBERS:
        raise RequestFailed(f"group {listed.group} has members (it is {listed.state}): stop them first")


def _print_result(
    options: argparse.Namespace, before: Mapping[Partition, int], planned: Mapping[Partition, int]
) -> None:
    undo = list(_undo_reset(options, before, planned)) if options.execute else []
    rows = [(*place, before.get(place), offset) for place, offset in sorted(planned.items())]
    if wants_json(options):
        offsets = [dict(zip(("topic", "partition", "committed", "new"), row, strict=True)) for row in rows]
        print_json({"group": options.name, "executed": options.execute, "offsets": offsets, "undo": undo})
        return
    print_table(("TOPIC", "PARTITION", "COMMITTED", "NEW"), rows)
    if not options.execute:
        print_line("\nNothing is changed; --execute does it.")
    print_undo(undo)


def _undo_reset(
    options: argparse.Namespace, before: Mapping[Partition, int], planned: Mapping[Partition, int]
) -> Iterator[str]:
    changed = {place: before[place] for place in planned if place in before and before[place] != planned[place]}
    yield from _commits(options, options.name, changed)
    if new := [place for place in planned if place not in before]:
        yield undo_command(options, "groups", "delete-offsets", *_topic_words(new), names=[options.name])


# --- delete-offsets


def _delete_offsets(cluster: Cluster, options: argparse.Namespace) -> int:
    name = options.name
    listed = existing_group(cluster, name)
    before = offsets_of(cluster, listed)
    places = sorted(before) if options.all_topics else places_of(cluster, options.topic, "--topic")
    found = {place: before[place] for place in places if place in before}
    if not found:
        raise RequestFailed(f"group {name} has committed nothing of that: nothing is changed")
    if _is_share(listed):
        _check_without_members(listed)
        _check_whole_topics(before, found)
    if not options.dry_run:
        agree(options, f"Delete the offsets of {name} for {' '.join(place_words(found))}")
        act = (
            partial(delete_starts, cluster, name, sorted({topic for topic, _ in found}))
            if _is_share(listed)
            else partial(delete_offsets, cluster, name, list(found))
        )
        carry_out([Step(f"the offsets of {name} are deleted", act)])
    rows = [(*place, offset) for place, offset in sorted(found.items())]
    value = {"group": name, "offsets": _as_list(found)}
    show = partial(print_table, ("TOPIC", "PARTITION", "COMMITTED"), rows)
    report(options, value, show, list(_commits(options, name, found)))
    return EXIT_OK


def _check_whole_topics(before: Mapping[Partition, int], found: Mapping[Partition, int]) -> None:
    """Raise RequestFailed if a topic has other offsets, too: those of a share group are deleted for whole topics."""
    topics = {topic for topic, _ in found}
    for topic, number in before:
        if topic in topics and (topic, number) not in found:
            raise RequestFailed(f"a share group's offsets are deleted for whole topics: {topic}-{number} has one, too")


# --- delete


def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    groups = [_deletable(cluster, name) for name in names]
    offsets = {each.group: offsets_of(cluster, each) for each in groups}
    if not options.dry_run:
        told = ", ".join(f"{name} (offsets of {counted(len(offsets[name]), 'partition')})" for name in names)
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
            print_line(f"{name} {done_word(options)} deleted")

    # The state of share groups and streams groups beside their offsets cannot be restored.
    undo = [
        line
        for each in groups
        if each.kind.lower() in _BEGUN_AGAIN
        for line in _commits(options, each.group, offsets[each.group])
    ]
    report(options, value, show, undo, "" if undo else "a group is made again by its members")
    return EXIT_OK


_BEGUN_AGAIN = ("classic", "consumer")


def _deletable(cluster: Cluster, name: str) -> Listed:
    listed = existing_group(cluster, name)
    _check_without_members(listed)
    return listed


def _as_list(offsets: Mapping[Partition, int]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "committed": offset}
        for (topic, number), offset in sorted(offsets.items())
    ]


def _commits(options: argparse.Namespace, group: str, offsets: Mapping[Partition, int]) -> Iterator[str]:
    """Yield commands that restore a group's offsets, one command for each offset."""
    places_by_offset: dict[int, list[Partition]] = {}
    for place, offset in offsets.items():
        places_by_offset.setdefault(offset, []).append(place)
    for offset, places in sorted(places_by_offset.items()):
        named = _topic_words(places)
        yield undo_command(options, "groups", "reset", *named, "--to-offset", str(offset), "--execute", names=[group])


def _topic_words(places: Iterable[Partition]) -> list[str]:
    return [word for each in place_words(dict.fromkeys(places)) for word in option_words("--topic", each)]
