"""ottla topics alter, offsets, trim: settings and partitions of topics, offsets at a time, deletion of the oldest records"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, counted, report, undo_command
from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    TemporaryFailure,
    by_topic,
    check_answered,
    leaders_of,
    offsets_at,
)
from ottla.server.cli.client.configs import (
    TOPIC,
    Altered,
    Change,
    Resource,
    alter_settings,
    assignment,
    changes_of,
    planned,
    settings_of,
)
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_table
from ottla.server.cli.command_line import EXIT_OK, count
from ottla.server.cli.on_cluster import Actions, wants_json
from ottla.server.cli.places import add_target, milliseconds, parse_target, places_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Partition
    from ottla.wire.messages.metadata import MetadataResponseTopic

TIMEOUT_MS = 30_000


def add_actions(actions: Actions) -> None:
    """Add `alter`, `offsets` and `trim` to the actions of `ottla topics`."""
    altering = actions.add("alter", "change settings of topics, or give them more partitions", _alter)
    altering.add_argument("names", nargs="+", metavar="TOPIC")
    setting = "set a setting of the topics; repeatable"
    altering.add_argument("-c", "--config", action="append", default=[], metavar="NAME=VALUE", help=setting)
    deletion = "delete a setting, so that the broker's value holds again; repeatable"
    altering.add_argument("-d", "--delete-config", action="append", default=[], metavar="NAME", help=deletion)
    altering.add_argument("-p", "--partitions", type=count, metavar="N", help="how many they have then; only more")
    add_dry_run(altering)
    looking = actions.add("offsets", "tell the offset of each partition at a time", _offsets)
    looking.add_argument("names", nargs="+", metavar="TOPIC[:N,N]", help="a topic, or some of its partitions")
    since = "of the first record since YYYY-MM-DDTHH:MM:SS (local time unless it names a zone), or -1h"
    looking.add_argument("--at", required=True, metavar="TIME", help=since)
    trimming = actions.add("trim", "delete the oldest records of topics", _trim)
    where = "a topic, or some of its partitions"
    trimming.add_argument("names", nargs="+", metavar="TOPIC[:N,N]", help=where)
    add_target(
        trimming,
        offset="delete all records before this offset",
        time="delete all records before the first since YYYY-MM-DDTHH:MM:SS (UTC unless it names a zone), or -7d",
        latest="delete all records that are there",
    )
    add_dry_run(trimming)
    add_yes(trimming)


# --- alter


def _alter(cluster: Cluster, options: argparse.Namespace) -> int:
    changes = changes_of((assignment(each, "--config") for each in options.config), options.delete_config)
    names = list(dict.fromkeys(options.names))
    if not changes and options.partitions is None:
        raise UsageError("what is to be changed? Give --config NAME=VALUE, --delete-config NAME or --partitions N")
    topics = cluster.topics(names)
    counts = _partition_counts(topics, options.partitions)
    altered = {name: _planned(cluster, name, changes) for name in names} if changes else {}
    for name in altered:
        alter_settings(cluster, Resource(TOPIC, name), changes, only_checks=True)
    if counts:
        _create_partitions(cluster, counts, options.partitions, only_checks=True)
    if not options.dry_run:
        carry_out([*_partition_steps(cluster, counts, options.partitions), *_setting_steps(cluster, altered, changes)])
    value = {"topics": [_as_json(name, counts.get(name), options.partitions, altered.get(name, ())) for name in names]}
    rows = [row for name in names for row in _rows(name, counts.get(name), options.partitions, altered.get(name, ()))]
    show = partial(print_table, ("TOPIC", "CHANGED", "FROM", "TO"), rows)
    never = "partitions cannot be taken away again" if counts else ""
    report(options, value, show, _undo(options, altered), never)
    return EXIT_OK


def _partition_counts(topics: Iterable[MetadataResponseTopic], wanted: int | None) -> dict[str, int]:
    """Return the topics' numbers of partitions; empty if `wanted` is None.

    Raises RequestFailed if a topic already has `wanted` partitions or more.
    """
    if wanted is None:
        return {}
    counts = {topic.name or "": len(topic.partitions) for topic in topics}
    for name, present in counts.items():
        if wanted <= present:
            raise RequestFailed(f"topic {name} has {present} partitions already, and can only get more")
    return counts


def _planned(cluster: Cluster, name: str, changes: dict[str, str | None]) -> list[Altered]:
    resource = Resource(TOPIC, name)
    return planned(settings_of(cluster, resource), resource, changes)


def _partition_steps(cluster: Cluster, counts: dict[str, int], wanted: int) -> list[Step]:
    return [
        Step(f"{name} has {wanted} partitions", partial(_add_partitions, cluster, {name: present}, wanted))
        for name, present in counts.items()
    ]


def _add_partitions(cluster: Cluster, counts: dict[str, int], wanted: int) -> None:
    _create_partitions(cluster, counts, wanted, only_checks=False)
    cluster.patiently(lambda: _have_leaders(cluster, list(counts), wanted))


def _setting_steps(cluster: Cluster, altered: dict[str, list[Altered]], changes: dict[str, str | None]) -> list[Step]:
    return [
        Step(
            f"the settings of {name} are changed",
            partial(alter_settings, cluster, Resource(TOPIC, name), changes, only_checks=False),
        )
        for name in altered
    ]


def _create_partitions(cluster: Cluster, counts: dict[str, int], wanted: int, *, only_checks: bool) -> None:
    topics = [CreatePartitionsTopic(name=name, count=wanted, assignments=None) for name in counts]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=only_checks)

    def ask() -> None:
        results = cluster.controller().ask(request).results
        for each in results:
            cluster.check(f"topic {each.name}", each.error_code, each.error_message)
        check_answered("new partitions", counts, (each.name for each in results))

    cluster.patiently(ask)


def _have_leaders(cluster: Cluster, names: Sequence[str], wanted: int) -> None:
    for topic in cluster.metadata(names).topics:
        # A user may have the right to alter a topic, and no right to describe it.
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            continue
        if len(topic.partitions) < wanted or any(each.leader_id < 0 for each in topic.partitions):
            raise TemporaryFailure(f"topic {topic.name} has new partitions, and not all of them have a leader")


def _as_json(name: str, present: int | None, wanted: int, altered: Iterable[Altered]) -> dict[str, Any]:
    partitions = None if present is None else {"from": present, "to": wanted}
    configs = {each.name: {"from": each.before, "to": each.after} for each in altered}
    return {"topic": name, "partitions": partitions, "configs": configs}


def _rows(name: str, present: int | None, wanted: int, altered: Iterable[Altered]) -> list[tuple[str, str, Any, Any]]:
    partitions = [] if present is None else [(name, "partitions", str(present), str(wanted))]
    return partitions + [(name, each.name, each.before_text, each.after_text) for each in altered]


def _undo(options: argparse.Namespace, altered: dict[str, list[Altered]]) -> list[str]:
    topics_by_changes: dict[tuple[Change, ...], list[str]] = {}
    for name, settings in altered.items():
        changes = tuple(change for each in settings if (change := each.undo) is not None)
        if changes:
            topics_by_changes.setdefault(changes, []).append(name)
    return [
        undo_command(options, "topics", "alter", *(word for each in changes for word in _words(each)), names=names)
        for changes, names in topics_by_changes.items()
    ]


def _words(change: Change) -> tuple[str, str]:
    name, value = change
    return ("-d", name) if value is None else ("-c", f"{name}={value}")


# --- offsets


def _offsets(cluster: Cluster, options: argparse.Namespace) -> int:
    timestamp_ms = milliseconds("--at", options.at)
    places = places_of(cluster, options.names)
    found, starts, ends = (offsets_at(cluster, by_topic(places), each) for each in (timestamp_ms, EARLIEST, LATEST))
    # Brokers answer -1 if all records are older.
    rows = [(*each, found[each] if found[each] >= 0 else None, starts[each], ends[each]) for each in places]
    if wants_json(options):
        keys = ("topic", "partition", "offset", "start", "end")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("TOPIC", "PARTITION", "OFFSET", "START", "END"), rows)
    return EXIT_OK


# --- trim


def _trim(cluster: Cluster, options: argparse.Namespace) -> int:
    target = parse_target(options, is_strict=True)
    places = places_of(cluster, options.names)
    _check_policies(cluster, {topic for topic, _ in places})
    starts, ends = (offsets_at(cluster, by_topic(places), each) for each in (EARLIEST, LATEST))
    wanted = target(cluster, places)
    for place, offset in wanted.items():
        if offset > ends[place]:
            raise RequestFailed(f"{place[0]}-{place[1]} ends at {ends[place]}, before {offset}")
    cut = {place: offset for place, offset in wanted.items() if offset > starts[place]}
    number = sum(offset - starts[place] for place, offset in cut.items())
    if cut and not options.dry_run:
        topics = ", ".join(dict.fromkeys(topic for topic, _ in places))
        agree(
            options,
            f"Delete the oldest records of {topics} ({counted(number, 'offset')} in {counted(len(cut), 'partition')})",
        )
        carry_out([Step("the records are deleted", partial(_delete_records, cluster, cut))])
    rows = [
        (topic, partition, starts[topic, partition], max(wanted[topic, partition], starts[topic, partition]), end)
        for (topic, partition), end in sorted(ends.items())
    ]
    keys = ("topic", "partition", "start_before", "start", "end")
    value = {"partitions": [dict(zip(keys, row, strict=True)) for row in rows]}
    show = partial(print_table, ("TOPIC", "PARTITION", "START BEFORE", "START", "END"), rows)
    report(options, value, show, (), "the records are deleted" if cut else "")
    return EXIT_OK


def _check_policies(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise RequestFailed if the cleanup.policy of a topic lacks delete: Kafka deletes no records there."""
    for name in sorted(topics):
        [policy] = settings_of(cluster, Resource(TOPIC, name), ["cleanup.policy"], with_origins=False)
        if "delete" not in (policy.value or ""):
            raise RequestFailed(
                f"topic {name} has cleanup.policy={policy.value}: only topics with delete can be trimmed"
            )


def _delete_records(cluster: Cluster, offsets: dict[Partition, int]) -> None:
    """Delete the records before `offsets`. Raises RequestFailed, with the partitions where records were deleted."""
    done: dict[Partition, int] = {}

    def ask() -> None:
        left = by_topic([place for place in offsets if place not in done])
        for leader, parts in leaders_of(cluster, left).items() if left else ():
            answer = cluster.broker(leader).ask(_deletion(parts, offsets))
            problems = []
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code:
                        problems.append((topic.name, each.partition_index, each.error_code))
                    else:
                        done[topic.name, each.partition_index] = each.low_watermark
            for name, number, code in problems:
                cluster.check(f"the records of {name}-{number}", code)

    try:
        cluster.patiently(ask)
        check_answered("deleting records", offsets, done)
    except RequestFailed as error:
        if not done:
            raise
        begun = ", ".join(f"{name}-{number} begins at {offset}" for (name, number), offset in sorted(done.items()))
        raise type(error)(f"{error}; {begun}") from None


def _deletion(parts: dict[str, list[int]], offsets: dict[Partition, int]) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(
            name=topic,
            partitions=[
                DeleteRecordsPartition(partition_index=number, offset=offsets[topic, number]) for number in numbers
            ],
        )
        for topic, numbers in parts.items()
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
