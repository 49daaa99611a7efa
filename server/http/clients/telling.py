"""What clients have pushed, as families of a scrape, and what the broker knows of them (Kafka's client-metrics)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.server.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family

if TYPE_CHECKING:
    from ottla.server.http.clients.receiver import ClientMetrics
    from ottla.server.telemetry.telemetry import Telemetry

PIECE_CHARACTERS = 32 * 1024

_REQUESTS = Family("ottla_client_pushes_total", COUNTER, "What became of what clients pushed.")
_CLIENT = Family("ottla_client", GAUGE, "A client that pushes metrics, 1.")


def clients(receiver: ClientMetrics, telemetry: Telemetry, exposition: Exposition) -> Iterator[str]:
    """All of it, in pieces."""
    for name, kind, told, value in (
        (
            "kafka_server_client_metrics_instance_count",
            GAUGE,
            "Clients that ask what to push.",
            len(telemetry.instances),
        ),
        (
            "kafka_server_client_metrics_unknown_subscription_request_count",
            GAUGE,  # as the exporter of Kafka's metrics has it
            "Pushes for another subscription than the client has.",
            telemetry.unknown_subscriptions,
        ),
        (
            "ottla_client_numbers",
            GAUGE,
            "Numbers that clients have pushed and that are told here.",
            receiver.kept.numbers,
        ),
        (
            "ottla_client_numbers_left_out_total",
            COUNTER,
            "Pushed metrics and numbers that were too many, too long or strange.",
            receiver.left_out + receiver.kept.left_out,
        ),
        (
            "ottla_client_evictions_total",
            COUNTER,
            "Instances of clients that were forgotten to make room for those of others.",
            receiver.kept.evicted,
        ),
        ("ottla_client_push_seconds_total", COUNTER, "Processor time for pushes.", round(receiver.worked_s, 6)),
    ):
        yield exposition.single(name, kind, told, value)
    results = {"taken": telemetry.taken, "throttled": telemetry.throttled, "unreadable": telemetry.refused}
    yield exposition.family(_REQUESTS, [({"result": result}, count) for result, count in results.items()])
    yield exposition.head(_CLIENT)
    yield from _together(f"{_CLIENT.name}{{{labels}}} 1\n" for labels in receiver.kept.known())
    yield from _pushed(receiver, exposition)


def _pushed(receiver: ClientMetrics, exposition: Exposition) -> Iterator[str]:
    # What comes and goes between two pieces is of no matter: the lists are those of now.
    for family, by_instance in receiver.kept.families():
        yield exposition.head(family)
        name = family.name
        for numbers in by_instance:
            listed = list(numbers.items())
            yield from _together(f"{name}{ending}{{{labels}}} {_number(value)}\n" for (ending, labels), value in listed)


def _together(lines: Iterable[str]) -> Iterator[str]:
    """The lines in pieces. All of one client may be megabytes, and others want the event loop meanwhile."""
    found: list[str] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line)
        if size >= PIECE_CHARACTERS:
            yield "".join(found)
            found, size = [], 0
    yield "".join(found)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
