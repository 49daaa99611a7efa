"""HTTP endpoint of one broker: its paths put together, and served from before the logs are loaded until the end.

/healthz and /readyz have one line for each check; 200 if all are ok, else 503:

    /healthz    the process answers, and every log directory is online
    /readyz     clients are served: listeners accept, this broker is registered and not fenced, a controller is known, it does
                not stop

/metrics is made piece by piece while it is sent, so that a slow reader holds one piece alone.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import trio

from ottla.server.admin.http.clients.receiver import ClientMetrics, clients, is_possible
from ottla.server.admin.http.metrics.cluster import (
    PartitionLabels,
    controller,
    groups,
    member,
    partitions,
    replica_manager,
    topics,
)
from ottla.server.admin.http.metrics.exposition import COUNTER, Exposition, wanted
from ottla.server.admin.http.metrics.process import Figures, LoopLag, RecentTimes, figures, loop_lag, process, requests
from ottla.server.admin.http.routes import Guard, Pace, Request, Response, Routes
from ottla.server.admin.http.server import HttpServer

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop


def add_health(routes: Routes, broker: Broker, stop: Stop) -> None:
    """Add /healthz and /readyz."""

    async def healthz(request: Request) -> Response:
        return _response(health_of(broker))

    async def readyz(request: Request) -> Response:
        return _response(readiness_of(broker, stop))

    routes.get("/healthz", healthz)
    routes.get("/readyz", readyz)


def health_of(broker: Broker) -> Mapping[str, str]:
    """Health checks by name: "ok", or the problem."""
    # Paths are not told: whoever asks for health need not know them.
    offline = sum(not each.is_online for each in broker.replicas.log_directories)
    return {"log directories": f"{offline} offline" if offline else "ok"}


def readiness_of(broker: Broker, stop: Stop) -> Mapping[str, str]:
    """Readiness checks by name: "ok", or the problem."""
    member = broker.member
    is_open = (
        broker.serving_state.is_on
        and bool(broker.listeners)
        and all(each.calls.opened.is_set() for each in broker.listeners)
    )
    is_registered = broker.node_id in broker.cluster.brokers and not member.is_fenced
    return {
        "listeners": "ok" if is_open else "not open",
        "registration": "ok" if is_registered else "not registered, or fenced",
        "controller": "ok" if member.controller_id >= 0 else "unknown",
        "stop": "asked for" if stop.requested.is_set() else "ok",
    }


def _response(checks: Mapping[str, str]) -> Response:
    is_well = all(each == "ok" for each in checks.values())
    text = "".join(f"{name}: {found}\n" for name, found in checks.items())
    return Response(text.encode(), status=200 if is_well else 503)


logger = logging.getLogger("ottla.http")

Add = Callable[[Routes, "Broker", LoopLag, Pace], Callable[[], Awaitable[None]]]
"""Add paths of another module; returns its background work."""


def client_metrics() -> ClientMetrics | None:
    """Make the receiver of pushed client metrics; None if the packages for it are not installed."""
    if is_possible():
        return ClientMetrics()
    logger.info(
        "Metrics of clients are not taken, because opentelemetry-proto is missing: pip install 'ottla[telemetry]'"
    )
    return None


async def serve_http(broker: Broker, sock: socket.socket, stop: Stop, more: Sequence[Add] = ()) -> None:
    """Serve a listening socket until cancelled. A bug ends the endpoint and leaves the broker to its clients."""
    try:
        await _serve(broker, sock, stop, more)
    except Exception:
        logger.exception("bug: HTTP is not served any more")
        # Nobody waits for answers in its backlog then.
        sock.close()


async def _serve(broker: Broker, sock: socket.socket, stop: Stop, more: Sequence[Add]) -> None:
    routes, pace, lag = Routes(), Pace(), LoopLag()
    server = HttpServer(routes, _guard(broker), broker.environment.descriptors, pace)
    works = [add(routes, broker, lag, pace) for add in more]
    add_health(routes, broker, stop)
    Metrics(broker, stop, pace, lag, server).add_to(routes)
    logger.info("HTTP is served on %s port %d", *sock.getsockname()[:2])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.run)
        if isinstance(broker.receiver, ClientMetrics):
            nursery.start_soon(broker.receiver.sweep)
        for work in works:
            nursery.start_soon(work)
        nursery.start_soon(server.run, sock)


def _guard(broker: Broker) -> Guard:
    config = broker.config
    address = config.http.address
    assert address is not None
    told = [each.host for each in (*config.listeners, *config.advertised.values())]
    return Guard(address[0], [*filter(None, told), socket.gethostname(), *config.http.http_allowed_hosts])


PIECE_BYTES = 256 * 1024
"""A turn with all that belongs to it costs 0.3 ms. So it had better give more than the 64 KiB that are sent at a time."""


class Metrics:
    """The /metrics handler of one broker."""

    def __init__(self, broker: Broker, stop: Stop, pace: Pace, lag: LoopLag, server: HttpServer) -> None:
        self._broker, self._stop, self._pace, self._lag, self._server = broker, stop, pace, lag, server
        self._labels, self._worked_s = PartitionLabels(), 0.0
        self._recent = RecentTimes(trio.current_time())
        self._thread = trio.CapacityLimiter(1)  # of its own: however many ask, disks keep the threads that all share

    def add_to(self, routes: Routes) -> None:
        routes.get("/metrics", self.scrape)

    async def scrape(self, request: Request) -> Response:
        """Answer in the format that the request prefers."""
        exposition = wanted(request.headers.get("accept", ""))
        found = await trio.to_thread.run_sync(figures, limiter=self._thread)
        return Response(self._pieces(self._text(exposition, found)), content_type=exposition.content_type)

    def _text(self, exposition: Exposition, found: Figures) -> Iterator[str]:
        broker = self._broker
        descriptors, listeners = broker.environment.descriptors, broker.listeners
        worked = "Seconds of processor time that scrapes have taken."
        return chain(
            member(broker, self._stop, exposition),
            controller(broker, exposition),
            replica_manager(broker, exposition),
            requests(listeners, self._recent, trio.current_time(), exposition),
            process(found, descriptors, listeners, self._server.connection_count, exposition),
            loop_lag(self._lag, exposition),
            topics(broker.replicas.traffic, exposition),
            groups(broker, exposition),
            partitions(broker.replicas, self._labels, exposition),
            self._clients(exposition),
            [
                exposition.single("ottla_scrape_seconds_total", COUNTER, worked, round(self._worked_s, 6)),
                exposition.end,
            ],
        )

    def _clients(self, exposition: Exposition) -> Iterator[str]:
        # Whoever scrapes begins nothing: the broker may be at its end.
        receiver, telemetry = self._broker.receiver, self._broker.begun_telemetry
        if telemetry is None or not isinstance(receiver, ClientMetrics):
            return iter(())
        return clients(receiver, telemetry, exposition)

    async def _pieces(self, text: Iterator[str]) -> AsyncGenerator[bytes, None]:
        is_done = False
        while not is_done:
            async with self._pace.piece():
                piece, is_done = self._piece(text)
            if piece:
                yield piece

    def _piece(self, text: Iterator[str]) -> tuple[bytes, bool]:
        """Make the text of one turn; True with the last one."""
        begun, worked = trio.current_time(), time.thread_time()
        parts: list[str] = []
        size, is_done = 0, True
        for part in text:
            parts.append(part)
            size += len(part)
            if size >= PIECE_BYTES or trio.current_time() - begun > self._pace.PIECE_S:
                is_done = False
                break
        piece = "".join(parts).encode()
        self._worked_s += time.thread_time() - worked
        return piece, is_done
