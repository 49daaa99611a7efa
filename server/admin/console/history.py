"""The last hour of a broker's figures for the console's charts: a value every STEP_S seconds.

Each figure is one ring of POINTS values, however many topics, partitions and groups there are, so that the memory has a
bound. A value is NaN where nothing was measured: before the start, while the machine slept, without a request to time.
"""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.admin.console.groups_view import offsets_in
from ottla.server.admin.http.metrics.process import used_routes
from ottla.server.admin.http.routes import PacedTimeSlice
from ottla.server.dispatch.dispatch import no_times, quantiles

if TYPE_CHECKING:
    from ottla.server.admin.http.metrics.page import Meters
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

logger = logging.getLogger("ottla.http")

STEP_S, POINTS = 10.0, 360
OFFSETS_MAX = 20_000
"""Committed offsets that one sum of lags may have. With more the lag has no value."""
DIRECTORIES_MAX = 8
SHARE = 0.99
FIGURES = ("recordsIn", "bytesIn", "bytesOut", "lag", "loopDelayMs", "produceTimeMs", "cpuPercent")


class Ring:
    """The last POINTS values of a figure."""

    __slots__ = ("_next", "_values")

    def __init__(self) -> None:
        self._values = array("d", [math.nan]) * POINTS
        self._next = 0

    def add(self, value: float) -> None:
        """Add a value in place of the oldest one."""
        self._values[self._next] = value
        self._next = (self._next + 1) % POINTS

    def values(self) -> list[float | None]:
        """Return the values, oldest first; None stands for NaN, which JSON does not have."""
        ordered = self._values[self._next :] + self._values[: self._next]
        return [None if math.isnan(each) else round(each, 3) for each in ordered]


class Counts:
    """Counters at one moment; two of them make rates."""

    __slots__ = ("bytes_in", "bytes_out", "cpu_s", "records_in", "times")

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.bytes_out = 0
        self.cpu_s = 0.0
        self.times = no_times()


class History:
    """Sampler of this broker's figures, and the handler of requests for them."""

    def __init__(self, broker: Broker, meters: Meters, pace: Pace) -> None:
        self._broker, self._meters, self._pace = broker, meters, pace
        self._rings = {name: Ring() for name in FIGURES}
        self._free: dict[str, Ring] = {}
        self._end_ms = broker.now_ms()

    async def run(self) -> None:
        """Add a value to each figure every STEP_S seconds, until cancelled."""
        try:
            await self._run()
        # The charts are the least of what the endpoint serves, and must not end the rest.
        except Exception:
            logger.exception("bug: the console's charts go on no more")

    async def _run(self) -> None:
        due = trio.current_time()
        before, before_s = await self._counts(), due
        while True:
            due += STEP_S
            await trio.sleep_until(due)
            # The loop was held, or the machine slept: the values that are missing keep their places.
            while due + STEP_S <= trio.current_time():
                due += STEP_S
                self._add({})
            now, now_s = await self._counts(), trio.current_time()
            figures = _rates(before, now, now_s - before_s) | {
                "lag": await self._lag(),
                "loopDelayMs": _share_of(self._meters.lag.take_recent()) * 1000,
            }
            before, before_s = now, now_s
            self._add(figures)

    def _add(self, figures: dict[str, float]) -> None:
        self._end_ms = self._broker.now_ms()
        for name, ring in self._rings.items():
            ring.add(figures.get(name, math.nan))
        room = self._meters.room.by_path
        for directory in self._broker.replicas.log_directories[:DIRECTORIES_MAX]:
            self._free.setdefault(directory.path, Ring())
        for path, ring in self._free.items():
            ring.add(room[path].free_bytes if path in room else math.nan)

    async def _counts(self) -> Counts:
        counts, traffic = Counts(), self._broker.replicas.traffic
        counts.cpu_s = time.process_time()
        for route in used_routes(self._broker.listeners):
            if route.name == "Produce":
                counts.times = [sum(both) for both in zip(counts.times, route.times, strict=True)]
        # Read at one moment: a topic that is deleted during the sum moves its counts to `gone`.
        gone = traffic.gone
        topics = list(traffic.by_topic.values())
        counts.records_in, counts.bytes_in, counts.bytes_out = gone.messages_in, gone.bytes_in, gone.bytes_out
        time_slice = PacedTimeSlice(self._pace)
        for each in topics:
            counts.records_in += each.messages_in
            counts.bytes_in += each.bytes_in
            counts.bytes_out += each.bytes_out
            await time_slice.yield_if_over()
        return counts

    async def _lag(self) -> float:
        """Add up what the groups of this broker have not read of partitions here; NaN for more than OFFSETS_MAX."""
        time_slice, total = PacedTimeSlice(self._pace), 0
        for count, (topic, index, committed) in enumerate(self._committed(), 1):
            if count > OFFSETS_MAX:
                return math.nan
            partition = self._broker.replicas.partition(topic, index)
            if partition is not None:
                total += max(0, partition.high_watermark - committed)
            await time_slice.yield_if_over()
        return float(total)

    def _committed(self) -> Iterator[tuple[str, int, int]]:
        coordinator = self._broker.begun_groups
        for _, topics in () if coordinator is None else coordinator.all_committed():
            yield from offsets_in(topics, OFFSETS_MAX)

    async def history(self, request: Request) -> dict[str, Any]:
        """Return all figures, oldest value first. The last value is of `endMs`, each other one `stepMs` before the next."""
        room = self._meters.room.by_path
        return {
            "stepMs": int(STEP_S * 1000),
            "endMs": self._end_ms,
            "figures": {name: ring.values() for name, ring in self._rings.items()},
            "directories": [
                {"path": path, "totalBytes": room[path].total_bytes if path in room else None, "free": ring.values()}
                for path, ring in self._free.items()
            ],
        }


def _rates(before: Counts, now: Counts, elapsed_s: float) -> dict[str, float]:
    times = [after - earlier for after, earlier in zip(now.times, before.times, strict=True)]
    produce_s = next(quantiles(times, (SHARE,))) if any(times) else math.nan
    return {
        "recordsIn": (now.records_in - before.records_in) / elapsed_s,
        "bytesIn": (now.bytes_in - before.bytes_in) / elapsed_s,
        "bytesOut": (now.bytes_out - before.bytes_out) / elapsed_s,
        "produceTimeMs": produce_s * 1000,
        "cpuPercent": (now.cpu_s - before.cpu_s) / elapsed_s * 100,
    }


def _share_of(lags: list[float]) -> float:
    """Return the value in seconds that SHARE of the lags do not exceed; NaN if there are none."""
    return sorted(lags)[math.ceil(SHARE * len(lags)) - 1] if lags else math.nan
