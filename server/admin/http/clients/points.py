"""Decode client metrics of OpenTelemetry to numbers with labels. It runs in a thread, and bounds the numbers of however many points.

    Gauge                  a gauge
    Sum, monotonic         a counter, whose name gets `_total`. Clients push deltas (KIP-714), which are added up
    Sum, else              a gauge; deltas are added up, too. If its name ends with `_total` it gets `_value`
    Histogram, Summary,    a summary without quantiles: count and sum. Kafka's clients push none of them
    ExponentialHistogram

Attributes of a point and of its resource become labels, if they are text, a number or a boolean. Counters are never negative, and
never NaN.

Names: Prometheus takes letters, digits and underscores. `org.apache.kafka.producer.record.send.total` becomes
`org_apache_kafka_producer_record_send_total`. Any other name gets a prefix, so that no client can add to the broker's own metrics.

The outer layers of MetricsData are cut without making objects of them:

    MetricsData 1: ResourceMetrics     1: Resource   2: ScopeMetrics     2: Metric

A MiB may hold half a million empty messages. The library would make objects of all of them in one call, which holds the interpreter,
and with it the event loop, for 50 ms. Java pushes each metric with a resource of its own, librdkafka all with one. So the library
gets one metric at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from sys import getsizeof
from typing import Any, NamedTuple

from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, SUMMARY, TOTAL, Labels, labelled
from ottla.server.admin.telemetry.subscriptions import BadMetrics

NAME_LENGTH_MAX, LABEL_LENGTH_MAX = 200, 64
KAFKA, ELSEWHERE = "org_apache_kafka_", "client_telemetry_"
OWN_LABELS = ("client_instance_id", "client_id")
"""Labels that the broker adds to each number."""
_RESERVED = frozenset([*OWN_LABELS, "le", "quantile"])
_OTHERS = re.compile(r"[^a-zA-Z0-9_]+")


def family_name(name: str) -> str | None:
    """Convert a metric's name to the name of a Prometheus family; None if `name` is empty or too long."""
    if not name or len(name) > NAME_LENGTH_MAX:
        return None
    made = _OTHERS.sub("_", name)
    return made if made.startswith(KAFKA) else ELSEWHERE + made


def label_name(name: str) -> str | None:
    """Convert an attribute's name to the name of a label; None if `name` is empty, too long or reserved."""
    if not name or len(name) > LABEL_LENGTH_MAX:
        return None
    made = _OTHERS.sub("_", name)
    # Two underscores at the beginning are for Prometheus itself.
    made = f"_{made.lstrip('_')}" if made.startswith("_") else made
    if made[0].isdigit():
        made = f"_{made}"
    return None if made in _RESERVED else made


FIELDS_MAX = 50_000  # of the outer layers: as many as a MiB of honest metrics has, some ten milliseconds of a thread
METRIC_BYTES_MAX = 64 * 1024
"""Limit of one call of the library: 3 ms at most. A metric has a point for each of its partitions, topics or nodes."""
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5


class Piece(NamedTuple):
    """One metric and its resource, both still encoded in protobuf."""

    resource: memoryview
    metric: memoryview


class Malformed(ValueError):
    """Malformed protobuf message in a push."""


class Cut:
    """Splitter of a push into metrics.

    `left_out`: number of too long metrics. Metrics beyond FIELDS_MAX fields are not counted one by one.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._fields_left = FIELDS_MAX
        self.left_out = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield the metrics one by one. Raises Malformed."""
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
        """Yield (number, value) of each length-delimited protobuf field whose number is in `wanted`."""
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
    """Read a varint of at most ten bytes; return the number and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Malformed("the data end within a number" if position >= end else "a number has more than ten bytes")


NUMBERS_MAX, POINTS_MAX = 4_000, 2_000  # of a push
TEXT_BYTES_MAX = (
    2 * 1024 * 1024
)  # of a push: labels of a resource stand at each of its points, so few bytes may become very many
LABELS_MAX = 16
TEXT_LENGTH_MAX = 200  # of a label's value
OTHERS_ENDINGS = (TOTAL, "_created", "_info", "_bucket")  # that OpenMetrics has for samples of other kinds
_DELTA = 1  # AGGREGATION_TEMPORALITY_DELTA


class Number(NamedTuple):
    """One sample of a metric. `ending`: suffix of the family's name. `labels`: text between the braces."""

    family: str
    kind: str
    ending: str
    labels: str
    value: float
    is_delta: bool
    """True if it adds to the kept value."""


class Decoded(NamedTuple):
    """Samples of a push. Metrics and points that were too many, too long or unsupported are only counted."""

    numbers: list[Number]
    left_out: int


@cache
def library() -> tuple[Any, Any, Any]:
    """Import and return Metric, Resource and DecodeError. Raises ImportError without opentelemetry-proto."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    return Metric, Resource, DecodeError


def decoded(data: memoryview, wanted: tuple[str, ...], own: Labels) -> Decoded:
    """Decode the metrics in `data` whose names begin with one of `wanted`; "*" selects all. Raises BadMetrics.

    `own`: labels of the client instance, which are added to each sample.
    """
    metric_class, resource_class, error = library()
    reading, cut = _Reading(), Cut(data)
    read: memoryview | None = None
    labels = own
    try:
        for piece in cut.pieces():
            metric = metric_class.FromString(piece.metric)
            if "*" in wanted or metric.name.startswith(wanted):
                # Read once: it may be long, and stand before very many metrics.
                if piece.resource is not read:
                    read = piece.resource
                    labels = {**_labels(resource_class.FromString(read).attributes), **own}
                reading.take(metric, labels)
            if reading.is_full:
                reading.left_out += 1
                break
    except (Malformed, error) as problem:
        raise BadMetrics(str(problem)) from None
    return Decoded(reading.numbers, reading.left_out + cut.left_out)


class _Reading:
    def __init__(self) -> None:
        self.numbers: list[Number] = []
        self.points = self.text_bytes = self.left_out = 0

    @property
    def is_full(self) -> bool:
        """True if this push has reached its limits."""
        return len(self.numbers) >= NUMBERS_MAX or self.points >= POINTS_MAX or self.text_bytes >= TEXT_BYTES_MAX

    def take(self, metric: Any, labels: Labels) -> None:
        name, data = family_name(metric.name), metric.WhichOneof("data")
        if name is None or data is None:
            self.left_out += 1
            return
        told = getattr(metric, data)
        is_delta = getattr(told, "aggregation_temporality", 0) == _DELTA
        is_plain = data in ("gauge", "sum")
        kind = GAUGE if is_plain else SUMMARY
        if data == "sum" and told.is_monotonic:
            kind, name = COUNTER, name.removesuffix(TOTAL) + TOTAL
        elif name.endswith(OTHERS_ENDINGS):
            name += "_value"
        for point in told.data_points:
            if self.is_full:
                self.left_out += 1
                return
            self.points += 1
            text = labelled({**labels, **_labels(point.attributes)})
            self.text_bytes += getsizeof(text)
            hash(text)  # kept in the text, so that the event loop need not make it
            values = {"": _plain(point)} if is_plain else {"_count": point.count, "_sum": point.sum}
            for ending, value in values.items():
                # A gauge may be anything.
                if kind == GAUGE or (math.isfinite(value) and value >= 0):
                    self.numbers.append(Number(name, kind, ending, text, value, is_delta))


def _plain(point: Any) -> float:
    return float(point.as_double) if point.WhichOneof("value") == "as_double" else int(point.as_int)


def _labels(attributes: Sequence[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in attributes[:LABELS_MAX]:
        name, value = label_name(each.key), _text(each.value)
        if name is not None and value is not None:
            found[name] = value
    return found


def _text(value: Any) -> str | None:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)[:TEXT_LENGTH_MAX]
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    return str(getattr(value, kind)) if kind in ("int_value", "double_value") else None
