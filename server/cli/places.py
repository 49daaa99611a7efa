"""Options that name partitions (TOPIC:N,N) and an offset in each of them: a number, a time, the beginning or the end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from ottla.server.cli.client.cluster import EARLIEST, LATEST, by_topic, offsets_at, offsets_since
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.client.times import FORMS, parse_time
from ottla.server.cli.command_line import is_number
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition

Target = Callable[["Cluster", Sequence["Partition"]], dict["Partition", int]]
"""Find an offset for each partition."""


def add_target(parser: argparse.ArgumentParser, *, offset: str, time: str, latest: str, earliest: str = "") -> None:
    """Add --to-offset, --to-datetime, --to-latest and perhaps --to-earliest; the user must give one of these options.

    Each parameter is the help text of its option. Without `earliest` there is no --to-earliest.
    """
    to = parser.add_mutually_exclusive_group(required=True)
    if earliest:
        to.add_argument("--to-earliest", action="store_true", help=earliest)
    to.add_argument("--to-latest", action="store_true", help=latest)
    to.add_argument("--to-offset", metavar="N", help=offset)
    to.add_argument("--to-datetime", metavar="TIME", help=time)


def parse_target(options: argparse.Namespace, *, is_strict: bool) -> Target:
    """Return a function that computes new offsets, as the given --to option says. Raises UsageError.

    `is_strict`: take --to-offset as it is; otherwise take the nearest offset that the partition has.
    """
    if getattr(options, "to_earliest", False):
        return lambda cluster, places: offsets_at(cluster, by_topic(places), EARLIEST)
    if options.to_latest:
        return lambda cluster, places: offsets_at(cluster, by_topic(places), LATEST)
    if options.to_offset is not None:
        offset = parse_integer(options.to_offset, 64)
        if offset is None or offset < 0:
            raise UsageError(f"--to-offset {options.to_offset}: must be a number from 0 on")
        if is_strict:
            return lambda cluster, places: dict.fromkeys(places, offset)
        return lambda cluster, places: _nearest(cluster, places, offset)
    # As kafka-consumer-groups.sh takes it.
    timestamp_ms = milliseconds("--to-datetime", options.to_datetime, UTC)
    return lambda cluster, places: offsets_since(cluster, by_topic(places), timestamp_ms)


def _nearest(cluster: Cluster, places: Sequence[Partition], offset: int) -> dict[Partition, int]:
    first, last = (offsets_at(cluster, by_topic(places), each) for each in (EARLIEST, LATEST))
    return {place: min(max(offset, first[place]), last[place]) for place in places}


def milliseconds(option: str, text: str, zone: tzinfo | None = None) -> int:
    """Parse the time `text` that is the value of an option; return ms since 1970. Raises UsageError.

    `zone` is that of a text that names none; None: the local one.
    """
    try:
        return parse_time(text, zone)
    except ValueError:
        raise UsageError(f"{option} {text}: must be a time such as {FORMS}, and not before 1970") from None


def places_of(cluster: Cluster, texts: Sequence[str], option: str = "") -> list[Partition]:
    """Return the partitions that `texts` name: TOPIC (all) or TOPIC:N,N (some). Raises UsageError, RequestFailed.

    `option`: name of the option that has the texts, for error messages.
    """
    wanted: dict[str, set[int] | None] = {}
    for text in texts:
        topic, numbers = _place(text, option)
        before = wanted.get(topic, set())
        # All partitions of a topic, or all that are named, however often the topic is.
        wanted[topic] = None if numbers is None or before is None else before | numbers
    places = []
    for found in cluster.topics(list(wanted)):
        name = found.name or ""
        known = {each.partition_index for each in found.partitions}
        numbers = wanted[name]
        if numbers is not None and (missing := numbers - known):
            raise RequestFailed(f"topic {name} has no partition {min(missing)}")
        places += [(name, number) for number in (known if numbers is None else numbers)]
    return sorted(places)


def _place(text: str, option: str) -> tuple[str, set[int] | None]:
    topic, separator, numbers = text.partition(":")
    parts = numbers.split(",") if separator else []
    if not topic or not all(is_number(each) for each in parts):
        raise UsageError(f"{option} {text}: must be TOPIC or TOPIC:N,N".strip())
    return topic, set(map(int, parts)) if separator else None


def place_words(places: Mapping[Partition, object]) -> list[str]:
    """Format partitions as TOPIC:N,N, with one text for each topic."""
    return [f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in by_topic(list(places)).items()]
