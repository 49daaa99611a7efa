"""HTTP endpoint of one broker: its paths put together, and served from before the logs are loaded until the end.

/healthz and /readyz have one line for each check; 200 if all are ok, else 503:

    /healthz    the process answers, and every log directory is online
    /readyz     clients are served: listeners accept, this broker is registered and not fenced, a controller is known, it does
                not stop
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.server.admin.http.clients.receiver import ClientMetrics, is_possible
from ottla.server.admin.http.metrics.page import Meters, MetricsPage
from ottla.server.admin.http.metrics.process import LoopLag
from ottla.server.admin.http.metrics.upkeep import DiskRoom
from ottla.server.admin.http.routes import Guard, Pace, Request, Response, Routes
from ottla.server.admin.http.server import HttpServer

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop


def add_health(routes: Routes, broker: Broker, stop: Stop) -> None:
    """Add /healthz and /readyz to `routes`."""

    async def healthz(request: Request) -> Response:
        return _response(health_of(broker))

    async def readyz(request: Request) -> Response:
        return _response(readiness_of(broker, stop))

    routes.get("/healthz", healthz)
    routes.get("/readyz", readyz)


def health_of(broker: Broker) -> Mapping[str, str]:
    """Return the results of the health checks by name: "ok", or the problem."""
    # Paths are not told: whoever asks for health need not know them.
    offline = sum(not each.is_online for each in broker.replicas.log_directories)
    return {"log directories": f"{offline} offline" if offline else "ok"}


def readiness_of(broker: Broker, stop: Stop) -> Mapping[str, str]:
    """Return the results of the readiness checks by name: "ok", or the problem."""
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

Add = Callable[[Routes, "Broker", Meters, Pace], Callable[[], Awaitable[None]]]
"""Add paths of another module; returns its background work."""


def client_metrics() -> ClientMetrics | None:
    """Make the receiver of pushed client metrics; None if opentelemetry-proto is not installed."""
    if is_possible():
        return ClientMetrics()
    logger.info(
        "Metrics of clients are not taken, because opentelemetry-proto is missing: pip install 'ottla[telemetry]'"
    )
    return None


async def serve_http(broker: Broker, sock: socket.socket, stop: Stop, more: Sequence[Add] = ()) -> None:
    """Serve HTTP on a listening socket until cancelled. Unexpected exceptions end only the endpoint."""
    try:
        await _serve(broker, sock, stop, more)
    except Exception:
        logger.exception("bug: HTTP is not served any more")
        # Nobody waits for answers in its backlog then.
        sock.close()


async def _serve(broker: Broker, sock: socket.socket, stop: Stop, more: Sequence[Add]) -> None:
    routes, pace, meters = Routes(), Pace(), Meters(LoopLag(), DiskRoom(broker))
    server = HttpServer(routes, _guard(broker), broker.environment.descriptors, pace)
    works = [add(routes, broker, meters, pace) for add in more]
    add_health(routes, broker, stop)
    MetricsPage(broker, stop, pace, meters, server).add_to(routes)
    logger.info("HTTP is served on %s port %d", *sock.getsockname()[:2])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(meters.lag.run)
        nursery.start_soon(meters.room.run)
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
