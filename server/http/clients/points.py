"""Metrics of OpenTelemetry as numbers with labels. It works in a thread, and bounds what it makes of however many points.

    Gauge                  a gauge
    Sum, monotonic         a counter, whose name gets `_total`. Clients push deltas (KIP-714), which are added up
    Sum, else              a gauge; deltas are added up, too. If its name ends with `_total` it gets `_value`
    Histogram, Summary,    a summary without quantiles: count and sum. Kafka's clients push none of them
    ExponentialHistogram

What a point is about (its attributes, and those of its resource) becomes labels, if it is text, a number or a truth value.
What only grows is never negative, and never no number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from sys import getsizeof
from typing import Any, NamedTuple

from ottla.server.http.clients.names import family_name, label_name
from ottla.server.http.clients.wire import Cut, Malformed
from ottla.server.http.metrics.exposition import COUNTER, GAUGE, SUMMARY, TOTAL, Labels, labelled
from ottla.server.telemetry.receiver import BadMetrics

NUMBERS_MAX, POINTS_MAX = 4_000, 2_000  # of a push
TEXT_BYTES_MAX = (
    2 * 1024 * 1024
)  # of a push: labels of a resource stand at each of its points, so few bytes may become very many
LABELS_MAX = 16
TEXT_LENGTH_MAX = 200  # of a label's value
OTHERS_ENDINGS = (TOTAL, "_created", "_info", "_bucket")  # that OpenMetrics has for samples of other kinds
_DELTA = 1  # AGGREGATION_TEMPORALITY_DELTA


class Number(NamedTuple):
    """One sample. `ending` is what its name has behind that of its family; `labels` are text as between the braces."""

    family: str
    kind: str
    ending: str
    labels: str
    value: float
    is_delta: bool
    """Whether it adds to what there is."""


class Decoded(NamedTuple):
    """The numbers of a push, and how many metrics and points were left out because they were too many, too long or strange."""

    numbers: list[Number]
    left_out: int


@cache
def library() -> tuple[Any, Any, Any]:
    """The classes of Metric and Resource, and what the library raises. ImportError: it is not installed."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    return Metric, Resource, DecodeError


def decoded(data: memoryview, wanted: tuple[str, ...], own: Labels) -> Decoded:
    """The numbers of MetricsData that were asked for, with the labels of the instance. Raises BadMetrics."""
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
        """Whether nothing more is taken of this push."""
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
