"""The process: processor time, memory, descriptors, under the names that all exporters have."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication import system
from ottla.server.http.metrics.exposition import COUNTER, GAUGE, Exposition

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.server.net.listener import Listener

STARTED_S = time.time()
"""When this module was loaded, which is when the endpoint starts: where the system does not tell of the process."""


class Figures(NamedTuple):
    """What the system says of the process; -1: it does not say."""

    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    disk_read_bytes: int
    disk_written_bytes: int


def figures() -> Figures:
    """Ask the system. With very many descriptors it takes milliseconds, so a thread does it."""
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
    """All of it. What the system does not say is left out."""
    used = time.process_time()
    yield exposition.single("process_cpu_seconds_total", COUNTER, "Seconds of processor time.", round(used, 6))
    memory = listeners[0].buffers.memory.used if listeners else 0
    for name, told, value in (
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
            yield exposition.single(name, GAUGE, told, value)
