"""Options that name partitions (TOPIC:N,N), an offset in each of them (a number, a time, the beginning or the end), and times.

A time is one of these:
    2026-11-28, 2026-11-28T10:30, 2026-11-28T10:30+01:00    ISO 8601
    -1h, -2d12h                                             a while ago
    now                                                     now
    1700000000000                                           ms since 1970; eight digits are a date
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from ottla.server.cli.client.cluster import EARLIEST, LATEST, by_topic, offsets_at, offsets_since
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.command_line import is_number
from ottla.server.config.quantities import DURATIONS_MS
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition

FORMS = "2026-11-28, 2026-11-28T10:30, 2026-11-28T10:30+01:00, -1h or 1700000000000 (ms since 1970)"
"""Examples of times, for error messages."""

_WHILE = re.compile(r"-(?:[0-9]{1,12}(?:ms|min|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|min|[smhdw])")
_DATE_DIGITS, _MS_DIGITS_MAX = 8, 15

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


# --- times


def parse_time(text: str, zone: tzinfo | None = None) -> int:
    """Parse a time to ms since 1970. `zone` is that of a text that names none; None: the local one. Raises ValueError."""
    found = _parsed(text, zone)
    if found < 0:
        raise ValueError(f"{text} is before 1970")
    return found


def _parsed(text: str, zone: tzinfo | None) -> int:
    if text == "now" or _WHILE.fullmatch(text):
        return time.time_ns() // 1_000_000 - sum(int(count) * DURATIONS_MS[unit] for count, unit in _PART.findall(text))
    if text.isascii() and text.isdecimal() and _DATE_DIGITS < len(text) <= _MS_DIGITS_MAX:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            # astimezone() takes a time without a zone as local.
            found = found.astimezone() if zone is None else found.replace(tzinfo=zone)
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time such as {FORMS}") from None


def time_text(ms: int) -> str:
    """Format ms since 1970 as a time in UTC; a number beyond the year 9999 as it is."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)
