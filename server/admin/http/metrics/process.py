"""Metrics of the process, under the names that all exporters have, of the event loop, of requests by api, of errors by code, and of
connections (Kafka's RequestMetrics and socket-server-metrics).

The lag of the event loop is measured by a task that sleeps and looks how late it is woken. Other tasks are as late as that.
Request times come in two forms: quantiles of the last minutes, as in Kafka, and a histogram, which can be summed over brokers.
"""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication import system
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Family
from ottla.server.dispatch.dispatch import no_times, quantiles, shorter_than
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.server.dispatch.dispatch import Route
    from ottla.server.network.listener import Listener

STARTED_S = time.time()
"""Load time of this module, which is when the endpoint starts."""


class Figures(NamedTuple):
    """Figures about the process from the operating system; a figure is -1 if it is not available."""

    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    disk_read_bytes: int
    disk_written_bytes: int


def figures() -> Figures:
    """Measure the process. Call this in a thread: with very many open descriptors it takes milliseconds."""
    resident, virtual = system.memory_bytes() or (-1, -1)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    open_files_max = -1 if limit == resource.RLIM_INFINITY else limit
    return Figures(resident, virtual, _open_files(), open_files_max, *(system.disk_bytes() or (-1, -1)))


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return -1


def process(
    found: Figures,
    descriptors: Descriptors,
    listeners: Sequence[Listener],
    http_connections: int,
    exposition: Exposition,
) -> Iterator[str]:
    """Yield the metrics of the process. Figures that the operating system does not provide are omitted."""
    used = time.process_time()
    yield exposition.single("process_cpu_seconds_total", COUNTER, "Seconds of processor time.", round(used, 6))
    memory = listeners[0].buffers.memory.used if listeners else 0
    for name, about, value in (
        ("process_resident_memory_bytes", "Memory in use.", found.resident_bytes),
        ("process_virtual_memory_bytes", "Address space in use.", found.virtual_bytes),
        ("process_open_fds", "Open descriptors.", found.open_files),
        ("process_max_fds", "Descriptors that the system allows.", found.open_files_max),
        ("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes read from disks.", found.disk_read_bytes),
        ("kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes written to disks.", found.disk_written_bytes),
        ("process_start_time_seconds", "When the endpoint was started.", round(STARTED_S, 3)),
        ("ottla_connections", "Connections of all kinds.", descriptors.connections),
        ("ottla_connections_max", "Connections that descriptors are kept for.", descriptors.connections_max),
        ("ottla_http_connections", "Connections over HTTP.", http_connections),
        ("ottla_request_memory_bytes", "Memory that unfinished requests and unread answers hold.", memory),
    ):
        if value >= 0:
            yield exposition.single(name, GAUGE, about, value)


LOOK_S = 0.1
RECENT_MAX = 200
MEMORY_S = 60.0  # over about so long the idle share is smoothed, as Kafka's is
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper ends of the buckets, in seconds. From 0.05 on somebody has held the loop for too long."""

_LAG = Family("ottla_event_loop_lag_seconds", HISTOGRAM, "By how much the event loop wakes a task too late.")


class LoopLag:
    """Meter of the event loop's lag and idle share. It measures while `run` runs."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.idle_share = 1.0
        self._recent: deque[float] = deque(maxlen=RECENT_MAX)

    async def run(self) -> None:
        """Measure ten times a second until cancelled."""
        before, worked_before = trio.current_time(), time.thread_time()
        while True:
            wanted = before + LOOK_S
            await trio.sleep_until(wanted)
            now, worked = trio.current_time(), time.thread_time()
            self.note(now - wanted)
            self.note_work(worked - worked_before, now - before)
            before, worked_before = now, worked

    def note_work(self, worked_s: float, elapsed_s: float) -> None:
        """Update the idle share. `worked_s`: time that the loop's thread has worked of the last `elapsed_s` seconds."""
        idle = 1.0 - min(1.0, worked_s / elapsed_s)
        self.idle_share += (idle - self.idle_share) * min(1.0, elapsed_s / MEMORY_S)

    def note(self, lag_s: float) -> None:
        """Add one measured lag to the histogram."""
        self.buckets[bisect_left(BOUNDS, lag_s)] += 1
        self.seconds += lag_s
        self._recent.append(lag_s)

    def take_recent(self) -> list[float]:
        """Return the lags in seconds since the last call, at most RECENT_MAX of them."""
        recent = list(self._recent)
        self._recent.clear()
        return recent


def loop_lag(lag: LoopLag, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of the event loop: histogram of the lag, processor time, idle share."""
    name = _LAG.name
    bounds = [*map(str, BOUNDS), "+Inf"]
    counted = list(accumulate(lag.buckets))
    lines = [f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in zip(bounds, counted, strict=True)]
    lines += [f"{name}_count {counted[-1]}\n", f"{name}_sum {lag.seconds:.6f}\n"]
    yield exposition.head(_LAG) + "".join(lines)
    # Called in that thread.
    about = "Seconds of processor time of the thread that the event loop runs in."
    yield exposition.single("ottla_event_loop_cpu_seconds_total", COUNTER, about, round(time.thread_time(), 6))
    # Kafka has threads for each of the two, and this broker has its loop for both.
    for name in ("socketserver_networkprocessor", "kafkarequesthandlerpool_requesthandler"):
        package = "network" if name.startswith("socketserver") else "server"
        about = "Share of the time that the event loop has nothing to do, 0 to 1."
        yield exposition.single(f"kafka_{package}_{name}avgidle_percent", GAUGE, about, round(lag.idle_share, 4))


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
TIMES_LOOK_S, WINDOW_S = 60.0, 300.0


class ApiTotals:
    """Totals of all routes of one API.

    On a client listener, refused requests have routes of their own, which count, too.
    """

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


def used_routes(listeners: Sequence[Listener]) -> Iterator[Route]:
    """Yield the routes that have had requests. Listeners share routes, each of which comes once."""
    routes = {id(route): route for listener in listeners for route in listener.calls.routes}
    return (route for route in routes.values() if route.request_count)


def by_api(listeners: Sequence[Listener]) -> dict[str, ApiTotals]:
    """Return the totals of each API that has requests. Keys are Kafka's names of the APIs."""
    found: defaultdict[str, ApiTotals] = defaultdict(ApiTotals)
    for route in used_routes(listeners):
        found[route.name].add(route)
    return dict(sorted(found.items()))


class RecentTimes:
    """Histogram of request times of the last 5 to 6 minutes (Kafka's window), computed from earlier scrapes.

    At first the window begins at `now_s`, when the object was made. After a gap, it begins at the last scrape.
    """

    def __init__(self, now_s: float) -> None:
        self._looks: deque[tuple[float, dict[str, list[int]]]] = deque([(now_s, {})])

    def since(self, apis: dict[str, ApiTotals], now_s: float) -> dict[str, list[int]]:
        """Return the histogram of request times in the recent window, for each API that has requests."""
        while len(self._looks) > 1 and self._looks[1][0] <= now_s - WINDOW_S:
            self._looks.popleft()
        before = self._looks[0][1]
        if now_s - self._looks[-1][0] >= TIMES_LOOK_S:
            self._looks.append((now_s, {api: each.times for api, each in apis.items()}))
        found = {}
        for api, each in apis.items():
            known = before.get(api)
            times = each.times if known is None else [now - then for now, then in zip(each.times, known, strict=True)]
            if any(times):
                found[api] = times
        return found


def requests(listeners: Sequence[Listener], recent: RecentTimes, now_s: float, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of requests, in pieces."""
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
