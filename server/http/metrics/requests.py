"""Requests by api, errors by code, and connections (Kafka's RequestMetrics and socket-server-metrics)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.server.http.metrics.exposition import COUNTER, GAUGE, SUMMARY, Exposition, Family
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.server.gate.dispatch import Route
    from ottla.server.net.listener import Listener

_REQUESTS = Family("kafka_network_requestmetrics_requests_total", COUNTER, "Requests taken in.")
_ERRORS = Family("kafka_network_requestmetrics_errors_total", COUNTER, "Answers with an error at their top level.")
_TIMES = Family(
    "kafka_network_requestmetrics_totaltimems", SUMMARY, "Milliseconds from the request until its answer, waits included."
)
_SECONDS = Family("ottla_request_seconds", SUMMARY, "Seconds from the request until its answer, waits included.")
_BYTES_IN = Family("ottla_request_bytes_total", COUNTER, "Bytes of requests.")
_BYTES_OUT = Family("ottla_response_bytes_total", COUNTER, "Bytes of answers, records included.")
_CONNECTIONS = Family("kafka_server_socket_server_metrics_connection_count", GAUGE, "Connections of clients and brokers.")


class Told:
    """What all routes of one api have counted. A listener for clients has routes of its own for what it refuses."""

    def __init__(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0
        self.seconds = 0.0
        self.errors: Counter[int] = Counter()

    def add(self, route: Route) -> None:
        self.requests += route.request_count
        self.bytes_in += route.request_bytes
        self.bytes_out += route.response_bytes
        self.seconds += route.seconds
        self.errors.update(route.errors)


def by_api(listeners: Sequence[Listener]) -> dict[str, Told]:
    """Kafka's name of the api -> what was counted, of all apis that somebody has asked for."""
    routes = {id(route): route for listener in listeners for route in listener.calls.routes}
    found: defaultdict[str, Told] = defaultdict(Told)
    for route in routes.values():
        if route.request_count:
            found[route.name].add(route)
    return dict(sorted(found.items()))


def requests(listeners: Sequence[Listener], exposition: Exposition) -> Iterator[str]:
    """All of it, in pieces."""
    apis = by_api(listeners)
    yield exposition.family(_REQUESTS, [({"request": api}, each.requests) for api, each in apis.items()])
    yield exposition.family(
        _ERRORS,
        [
            ({"request": api, "error": ErrorCode.of(code).name}, count)
            for api, each in apis.items()
            for code, count in sorted(each.errors.items())
        ],
    )
    yield _summary(exposition, _TIMES, apis, 1000)
    yield _summary(exposition, _SECONDS, apis, 1)
    yield exposition.family(_BYTES_IN, [({"request": api}, each.bytes_in) for api, each in apis.items()])
    yield exposition.family(_BYTES_OUT, [({"request": api}, each.bytes_out) for api, each in apis.items()])
    # Kafka has several network processors, and its dashboards sum over them.
    counted = [({"listener": each.name, "networkProcessor": "0"}, len(each.connections)) for each in listeners]
    yield exposition.family(_CONNECTIONS, counted)


def _summary(exposition: Exposition, family: Family, apis: dict[str, Told], factor: float) -> str:
    name = family.name
    lines = [
        f'{name}_count{{request="{api}"}} {each.requests}\n{name}_sum{{request="{api}"}} {each.seconds * factor:.6f}\n'
        for api, each in apis.items()
    ]
    return exposition.head(family) + "".join(lines)
