"""Metrics of the process, under the names that all exporters have, and of the event loop.

The lag of the event loop is measured by a task that sleeps and looks how late it is woken. Other tasks are as late as that.
"""

from __future__ import annotations

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication import system
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Family

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.server.network.listener import Listener

STARTED_S = time.time()
"""Load time of this module, which is when the endpoint starts."""


class Figures(NamedTuple):
    """Figures of the process from the system; -1 if it does not tell."""

    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    disk_read_bytes: int
    disk_written_bytes: int


def figures() -> Figures:
    """Ask the system. With very many descriptors it takes milliseconds, so call it in a thread."""
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
    """Metrics of the process. Figures that the system does not tell are left out."""
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
MEMORY_S = 60.0  # over about so long the idle share is smoothed, as Kafka's is
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper ends of the buckets, in seconds. From 0.05 on somebody has held the loop for too long."""

_LAG = Family("ottla_event_loop_lag_seconds", HISTOGRAM, "By how much the event loop wakes a task too late.")


class LoopLag:
    """Measures the lag and the idle share of the event loop while `run` runs."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.idle_share = 1.0

    async def run(self) -> None:
        """Measure ten times a second, until cancelled."""
        before, worked_before = trio.current_time(), time.thread_time()
        while True:
            wanted = before + LOOK_S
            await trio.sleep_until(wanted)
            now, worked = trio.current_time(), time.thread_time()
            self.note(now - wanted)
            self.note_work(worked - worked_before, now - before)
            before, worked_before = now, worked

    def note_work(self, worked_s: float, elapsed_s: float) -> None:
        """Note the time that the loop's thread has worked since the last look."""
        idle = 1.0 - min(1.0, worked_s / elapsed_s)
        self.idle_share += (idle - self.idle_share) * min(1.0, elapsed_s / MEMORY_S)

    def note(self, lag_s: float) -> None:
        """Note one lag."""
        self.buckets[bisect_left(BOUNDS, lag_s)] += 1
        self.seconds += lag_s


def loop_lag(lag: LoopLag, exposition: Exposition) -> Iterator[str]:
    """Metrics of the event loop: histogram of the lag, processor time, idle share."""
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
