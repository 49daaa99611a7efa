"""How late the event loop is: a task sleeps, and looks by how much it was woken too late. Others are as late as that."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

import trio

from ottla.server.http.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Family

LOOK_S = 0.1
MEMORY_S = 60.0  # over about so long the idle share is smoothed, as Kafka's is
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper ends of the buckets, in seconds. From 0.05 on somebody has held the loop for too long."""

_LAG = Family("ottla_event_loop_lag_seconds", HISTOGRAM, "By how much the event loop wakes a task too late.")


class LoopLag:
    """Counts since it runs."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.idle_share = 1.0

    async def run(self) -> None:
        """Look ten times a second, until cancelled."""
        before, worked_before = trio.current_time(), time.thread_time()
        while True:
            wanted = before + LOOK_S
            await trio.sleep_until(wanted)
            now, worked = trio.current_time(), time.thread_time()
            self.note(now - wanted)
            self.note_work(worked - worked_before, now - before)
            before, worked_before = now, worked

    def note_work(self, worked_s: float, elapsed_s: float) -> None:
        """So much of the time since the last look the loop's thread was at work."""
        idle = 1.0 - min(1.0, worked_s / elapsed_s)
        self.idle_share += (idle - self.idle_share) * min(1.0, elapsed_s / MEMORY_S)

    def note(self, lag_s: float) -> None:
        """It was so late."""
        self.buckets[bisect_left(BOUNDS, lag_s)] += 1
        self.seconds += lag_s


def loop_lag(lag: LoopLag, exposition: Exposition) -> Iterator[str]:
    """The histogram, and what the loop's thread has worked."""
    name = _LAG.name
    bounds = [*map(str, BOUNDS), "+Inf"]
    counted = list(accumulate(lag.buckets))
    lines = [f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in zip(bounds, counted, strict=True)]
    lines += [f"{name}_count {counted[-1]}\n", f"{name}_sum {lag.seconds:.6f}\n"]
    yield exposition.head(_LAG) + "".join(lines)
    # Called in that thread.
    told = "Seconds of processor time of the thread that the event loop runs in."
    yield exposition.single("ottla_event_loop_cpu_seconds_total", COUNTER, told, round(time.thread_time(), 6))
    # Kafka has threads for each of the two, and this broker has its loop for both.
    for name in ("socketserver_networkprocessor", "kafkarequesthandlerpool_requesthandler"):
        package = "network" if name.startswith("socketserver") else "server"
        told = "Share of the time that the event loop has nothing to do, 0 to 1."
        yield exposition.single(f"kafka_{package}_{name}avgidle_percent", GAUGE, told, round(lag.idle_share, 4))
