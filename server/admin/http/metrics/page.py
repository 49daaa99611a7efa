"""The page /metrics for Prometheus: all metrics of a broker, put together.

It is made piece by piece while it is sent, so that a slow reader holds one piece alone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.admin.http.clients.receiver import ClientMetrics, clients
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
from ottla.server.admin.http.metrics.upkeep import DiskRoom, certificates, disk_room
from ottla.server.admin.http.routes import Pace, Request, Response, Routes
from ottla.server.admin.http.server import HttpServer

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop

PIECE_BYTES = 256 * 1024
"""A turn with all that belongs to it costs 0.3 ms. So it had better give more than the 64 KiB that are sent at a time."""


class Meters(NamedTuple):
    """Meters that run as long as the endpoint does."""

    lag: LoopLag
    room: DiskRoom


class MetricsPage:
    """Handler of requests for /metrics."""

    def __init__(self, broker: Broker, stop: Stop, pace: Pace, meters: Meters, server: HttpServer) -> None:
        self._broker, self._stop, self._pace, self._server = broker, stop, pace, server
        self._lag, self._room = meters
        self._labels, self._worked_s = PartitionLabels(), 0.0
        self._recent = RecentTimes(trio.current_time())
        self._thread = trio.CapacityLimiter(1)  # of its own: however many ask, disks keep the threads that all share

    def add_to(self, routes: Routes) -> None:
        routes.get("/metrics", self.scrape)

    async def scrape(self, request: Request) -> Response:
        """Return all metrics in the format that the request prefers."""
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
            disk_room(self._room, exposition),
            certificates(broker, exposition),
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
        """Join the texts of one time slice; return the joined text, and True if it was the last."""
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
