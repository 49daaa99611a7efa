"""The outer layers of MetricsData, cut into single metrics without making objects of them.

    MetricsData 1: ResourceMetrics     1: Resource   2: ScopeMetrics     2: Metric

A MiB may hold half a million empty messages. The library makes objects of all of them in one call, which holds the interpreter,
and with it the event loop, for 50 ms. Java pushes each metric with a resource of its own, librdkafka all with one. So the
layers are cut here, in a thread that others take turns with, and the library gets one metric at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FIELDS_MAX = 50_000  # of the outer layers: as many as a MiB of honest metrics has, some ten milliseconds of a thread
METRIC_BYTES_MAX = 64 * 1024
"""For the library at a time: 3 ms at most. A metric has a point for each of its partitions, topics or nodes."""
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5


class Piece(NamedTuple):
    """One metric with the resource that it is of, both still encoded."""

    resource: memoryview
    metric: memoryview


class Malformed(ValueError):
    """These bytes are no message of protobuf."""


class Cut:
    """The metrics of a push. `left_out` counts those that are too long, and is true if there was more than FIELDS_MAX."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._fields_left = FIELDS_MAX
        self.left_out = 0

    def pieces(self) -> Iterator[Piece]:
        """One by one. Raises Malformed."""
        for _, resource_metrics in self._fields(self._data, (1,)):
            resource = self._data[:0]
            for number, value in self._fields(resource_metrics, (1, 2)):
                if number == 1:
                    resource = value
                    continue
                for _, metric in self._fields(value, (2,)):
                    if max(len(metric), len(resource)) > METRIC_BYTES_MAX:
                        self.left_out += 1
                    else:
                        yield Piece(resource, metric)

    def _fields(self, data: memoryview, wanted: tuple[int, ...]) -> Iterator[tuple[int, memoryview]]:
        """The fields of these numbers that have a length."""
        position, end = 0, len(data)
        while position < end:
            if not self._fields_left:
                self.left_out += 1
                return
            self._fields_left -= 1
            key, position = _varint(data, position, end)
            kind = key & 7
            if kind == _LENGTH:
                length, position = _varint(data, position, end)
                if length > end - position:
                    raise Malformed("a field is longer than what it is in")
                if key >> 3 in wanted:
                    yield key >> 3, data[position : position + length]
                position += length
            else:
                position = _skipped(data, kind, position, end)


def _skipped(data: memoryview, kind: int, position: int, end: int) -> int:
    if kind == _VARINT:
        return _varint(data, position, end)[1]
    if kind not in (_FIXED_32, _FIXED_64):
        raise Malformed(f"there is no field of kind {kind}")
    position += 4 if kind == _FIXED_32 else 8
    if position > end:
        raise Malformed("the data end within a field")
    return position


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A number of at most ten bytes, and where it ends."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Malformed("the data end within a number" if position >= end else "a number has more than ten bytes")
