"""Metrics of requests by api, errors by code, and connections (Kafka's RequestMetrics and socket-server-metrics).

Request times come in two forms: quantiles of the last minutes, as in Kafka, and a histogram, which can be summed over brokers.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Family
from ottla.server.dispatch.dispatch import no_times, quantiles, shorter_than
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.server.dispatch.dispatch import Route
    from ottla.server.network.listener import Listener

_REQUESTS = Family("kafka_network_requestmetrics_requests_total", COUNTER, "Requests taken in.")
_ERRORS = Family("kafka_network_requestmetrics_errors_total", COUNTER, "Answers with an error at their top level.")
_TIMES = "kafka_network_requestmetrics_totaltimems"
_QUANTILES = Family(
    _TIMES, GAUGE, "Milliseconds from the request until its answer, waits included: quantiles of the last minutes."
)
_COUNT = Family(f"{_TIMES}_count", GAUGE, "Requests taken in, under the name that Kafka's exporter has for it.")
_SUM = Family(
    f"{_TIMES}_sum", GAUGE, "Milliseconds from requests until their answers, waits included, of all together."
)
_SECONDS = Family("ottla_request_seconds", HISTOGRAM, "Seconds from the request until its answer, waits included.")
_BYTES_IN = Family("ottla_request_bytes_total", COUNTER, "Bytes of requests.")
_BYTES_OUT = Family("ottla_response_bytes_total", COUNTER, "Bytes of answers, records included.")
_CONNECTIONS = Family(
    "kafka_server_socket_server_metrics_connection_count", GAUGE, "Connections of clients and brokers."
)

SHARES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""Quantiles by the label that the usual rule for Kafka's exporter makes of 50thPercentile and so on; dashboards ask for it."""
EXPONENTS = range(-14, 7)
"""The bounds of the histogram are powers of two seconds, from 61 us to 64 s."""
LOOK_S, WINDOW_S = 60.0, 300.0


class ApiTotals:
    """Totals of all routes of one api. A listener for clients has routes of its own for refused requests."""

    def __init__(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0
        self.seconds = 0.0
        self.times = no_times()
        self.errors: Counter[int] = Counter()

    def add(self, route: Route) -> None:
        self.requests += route.request_count
        self.bytes_in += route.request_bytes
        self.bytes_out += route.response_bytes
        self.seconds += route.seconds
        self.times = [sum(both) for both in zip(self.times, route.times, strict=True)]
        self.errors.update(route.errors)


def by_api(listeners: Sequence[Listener]) -> dict[str, ApiTotals]:
    """Totals by Kafka's name of the api, of all apis with requests."""
    routes = {id(route): route for listener in listeners for route in listener.calls.routes}
    found: defaultdict[str, ApiTotals] = defaultdict(ApiTotals)
    for route in routes.values():
        if route.request_count:
            found[route.name].add(route)
    return dict(sorted(found.items()))


class RecentTimes:
    """Request times of the last five to six minutes, by the totals of earlier scrapes; Kafka's quantiles look as far back.

    At first they are those since `now_s`; if nobody scrapes for longer, those since the last scrape.
    """

    def __init__(self, now_s: float) -> None:
        self._looks: deque[tuple[float, dict[str, list[int]]]] = deque([(now_s, {})])

    def since(self, apis: dict[str, ApiTotals], now_s: float) -> dict[str, list[int]]:
        """Times counted lately, of each api with any request."""
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - WINDOW_S:
            self._looks.popleft()
        before = self._looks[0][1]
        if now_s - self._looks[-1][0] >= LOOK_S:
            self._looks.append((now_s, {api: each.times for api, each in apis.items()}))
        found = {}
        for api, each in apis.items():
            known = before.get(api)
            times = each.times if known is None else [now - then for now, then in zip(each.times, known, strict=True)]
            if any(times):
                found[api] = times
        return found


def requests(listeners: Sequence[Listener], recent: RecentTimes, now_s: float, exposition: Exposition) -> Iterator[str]:
    """Metrics of requests, in pieces."""
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
    yield _quantiles(exposition, recent.since(apis, now_s))
    yield exposition.family(_COUNT, [({"request": api}, each.requests) for api, each in apis.items()])
    yield exposition.family(_SUM, [({"request": api}, round(each.seconds * 1000, 6)) for api, each in apis.items()])
    yield _histogram(exposition, apis)
    yield exposition.family(_BYTES_IN, [({"request": api}, each.bytes_in) for api, each in apis.items()])
    yield exposition.family(_BYTES_OUT, [({"request": api}, each.bytes_out) for api, each in apis.items()])
    # Kafka has several network processors, and its dashboards sum over them.
    connections: Counter[str] = Counter()
    for each in listeners:  # one of several workers accepts at two addresses under one name
        connections[each.name] += len(each.connections)
    counted = [({"listener": name, "networkProcessor": "0"}, count) for name, count in connections.items()]
    yield exposition.family(_CONNECTIONS, counted)


def _quantiles(exposition: Exposition, recent: dict[str, list[int]]) -> str:
    lines = [
        f'{_TIMES}{{request="{api}",quantile="{text}"}} {seconds * 1000:.6g}\n'
        for api, times in recent.items()
        for text, seconds in zip(SHARES, quantiles(times, list(SHARES.values())), strict=True)
    ]
    return exposition.head(_QUANTILES) + "".join(lines)


def _histogram(exposition: Exposition, apis: dict[str, ApiTotals]) -> str:
    name, lines = _SECONDS.name, []
    for api, each in apis.items():
        total = sum(each.times)
        for exponent, count in zip(EXPONENTS, shorter_than(each.times, EXPONENTS), strict=True):
            lines.append(f'{name}_bucket{{request="{api}",le="{2.0**exponent!r}"}} {count}\n')
        lines.append(f'{name}_bucket{{request="{api}",le="+Inf"}} {total}\n')
        lines.append(f'{name}_count{{request="{api}"}} {total}\n{name}_sum{{request="{api}"}} {each.seconds:.9f}\n')
    return exposition.head(_SECONDS) + "".join(lines)
