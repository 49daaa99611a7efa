"""The HTTP endpoint of one broker: its paths put together, and served from before the logs are loaded until the end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.server.http.clients.receiver import ClientMetrics, is_possible
from ottla.server.http.guard import Guard
from ottla.server.http.health import add_health
from ottla.server.http.metrics.loop_lag import LoopLag
from ottla.server.http.metrics.scrape import Metrics
from ottla.server.http.pace import Pace
from ottla.server.http.routes import Routes
from ottla.server.http.server import HttpServer

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop

logger = logging.getLogger("ottla.http")

Add = Callable[[Routes, "Broker", LoopLag, Pace], Callable[[], Awaitable[None]]]
"""What adds paths, and gives the work that is behind them."""


def client_metrics() -> ClientMetrics | None:
    """What takes the metrics that clients push; None: what is needed for it is not installed."""
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
