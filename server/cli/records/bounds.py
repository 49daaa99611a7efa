"""Option -o of `ottla consume`: where reading begins, and where it ends.

    beginning, earliest     the first record that is there       end, latest     behind the last one
    5                       this offset                          -5              so many before the end
    stored                  what the group has committed         @TIME, s@TIME   the first record since then
                                                                 e@TIME          where to end

A time is 2026-11-28, 2026-11-28T10:30 or the like, local unless it names a zone; ms since 1970; or a while ago, such as -1h or -2d12h.
As in rpk, a time of ten digits behind a plain @ is in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    Partition,
    offsets_at,
    offsets_since,
)
from ottla.server.cli.client.output import UsageError
from ottla.server.cli.places import parse_time
from ottla.wire.settings import parse_integer

STORED = "stored"
_BEGINNINGS, _ENDS = ("beginning", "start", "earliest", "oldest"), ("end", "latest", "newest")
_WORDS = dict.fromkeys(_BEGINNINGS, "beginning") | dict.fromkeys(_ENDS, "end")
"""Words of kcat, rpk, Kafka's clients, kaf and kafkactl."""
_SECONDS_DIGITS = 10


class Bounds(NamedTuple):
    """Parsed option -o. `kind` is beginning, end, offset, before_end or time."""

    kind: str = "beginning"
    number: int = 0
    until_ms: int | None = None
    is_stored: bool = False
    """True if committed offsets of the group were asked for by name."""


def parse_bounds(texts: Sequence[str]) -> Bounds:
    """Parse the values of -o. If two values set the same bound, the later one counts. Raises UsageError."""
    bounds = Bounds()
    for text in texts:
        prefix, at, when = text.partition("@")
        if text in _WORDS:
            bounds = bounds._replace(kind=_WORDS[text])
        elif text == STORED:
            bounds = bounds._replace(is_stored=True)
        elif at and prefix == "e":
            bounds = bounds._replace(until_ms=_time_ms(text, when))
        elif at and prefix in ("s", ""):
            bounds = bounds._replace(kind="time", number=_time_ms(text, when))
        elif (number := parse_integer(text, 64)) is not None:
            # Also "-0", which is the end.
            kind = "before_end" if text.startswith("-") else "offset"
            bounds = bounds._replace(kind=kind, number=abs(number))
        else:
            raise UsageError(
                f"-o {text}: must be earliest, latest, stored, an offset, -N, @TIME, s@TIME or e@TIME,"
                " where TIME is 2026-11-28T10:30, -1h or ms since 1970"
            )
    return bounds


def _time_ms(option: str, text: str) -> int:
    """Return a time as ms since 1970. `option`: whole value of -o, for the error. Raises UsageError."""
    if (number := parse_integer(text, 64)) is not None and number >= 0:
        is_seconds = option.startswith("@") and len(text) == _SECONDS_DIGITS
        return number * 1000 if is_seconds else number
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"-o {option}: {error}") from None


def begin_and_end(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], bounds: Bounds, isolation: int = READ_COMMITTED
) -> dict[Partition, tuple[int, int | None]]:
    """Return each partition's first offset and end offset for `bounds`. End None: read without an end."""
    begins = _begins(cluster, partitions, bounds, isolation)
    if bounds.until_ms is None:
        return {place: (begin, None) for place, begin in begins.items()}
    ends = offsets_since(cluster, partitions, bounds.until_ms, isolation=isolation)
    return {place: (begin, ends[place]) for place, begin in begins.items()}


def _begins(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], bounds: Bounds, isolation: int
) -> dict[Partition, int]:
    if bounds.kind == "offset":
        return {(topic, number): bounds.number for topic, numbers in partitions.items() for number in numbers}
    if bounds.kind == "beginning":
        return offsets_at(cluster, partitions, EARLIEST)
    if bounds.kind == "time":
        return offsets_since(cluster, partitions, bounds.number, isolation=isolation)
    latest = offsets_at(cluster, partitions, LATEST, isolation=isolation)
    if bounds.kind == "end":
        return latest
    earliest = offsets_at(cluster, partitions, EARLIEST)
    return {place: max(earliest[place], offset - bounds.number) for place, offset in latest.items()}
