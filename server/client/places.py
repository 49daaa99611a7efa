"""Where to begin and to end reading: kcat's -o, resolved to an offset for each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.server.client.cluster import Cluster
from ottla.server.client.failures import WrongUse
from ottla.server.client.offsets import EARLIEST, LATEST, READ_COMMITTED, Partition, offsets_at
from ottla.wire.settings import parse_integer


class Bounds(NamedTuple):
    """What -o says. `kind` is beginning, end, offset, before_end or time."""

    kind: str = "beginning"
    number: int = 0
    until_ms: int | None = None


def parse_bounds(texts: Sequence[str]) -> Bounds:
    """-o may be given twice, for the beginning and for the end: -o s@TIME -o e@TIME. WrongUse."""
    bounds = Bounds()
    for text in texts:
        if text in ("beginning", "start", "end"):
            bounds = bounds._replace(kind="end" if text == "end" else "beginning")
            continue
        prefix, number_text = (text[:2], text[2:]) if text[:2] in ("s@", "e@") else ("", text)
        number = parse_integer(number_text, 64)
        if number is None or (prefix and number < 0):
            raise WrongUse(f"-o {text}: must be beginning, end, an offset, -N, s@TIME or e@TIME (in ms since 1970)")
        if prefix == "e@":
            bounds = bounds._replace(until_ms=number)
        elif prefix == "s@":
            bounds = bounds._replace(kind="time", number=number)
        else:
            # Also "-0", which is the end.
            kind = "before_end" if number_text.startswith("-") else "offset"
            bounds = bounds._replace(kind=kind, number=abs(number))
    return bounds


def begin_and_end(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], bounds: Bounds, isolation: int = READ_COMMITTED
) -> dict[Partition, tuple[int, int | None]]:
    """The first offset to read of each partition, and the one before which to end (None: go on)."""
    begins = _begins(cluster, partitions, bounds, isolation)
    if bounds.until_ms is None:
        return {place: (begin, None) for place, begin in begins.items()}
    ends = _at_time(cluster, partitions, bounds.until_ms, isolation)
    return {place: (begin, ends[place]) for place, begin in begins.items()}


def _begins(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], bounds: Bounds, isolation: int
) -> dict[Partition, int]:
    if bounds.kind == "offset":
        return {(topic, number): bounds.number for topic, numbers in partitions.items() for number in numbers}
    if bounds.kind == "beginning":
        return offsets_at(cluster, partitions, EARLIEST)
    if bounds.kind == "time":
        return _at_time(cluster, partitions, bounds.number, isolation)
    latest = offsets_at(cluster, partitions, LATEST, isolation=isolation)
    if bounds.kind == "end":
        return latest
    earliest = offsets_at(cluster, partitions, EARLIEST)
    return {place: max(earliest[place], offset - bounds.number) for place, offset in latest.items()}


def _at_time(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]], timestamp_ms: int, isolation: int
) -> dict[Partition, int]:
    """The first record that is not older; the present end where there is none."""
    found = offsets_at(cluster, partitions, timestamp_ms)
    late: dict[str, list[int]] = {}
    for (topic, number), offset in found.items():
        if offset < 0:
            late.setdefault(topic, []).append(number)
    return found | (offsets_at(cluster, late, LATEST, isolation=isolation) if late else {})
