"""Metrics of what runs out and then stops a broker: room on the disks, validity of certificates.

A task measures the room, and a scrape only reads the results, because a disk that hangs must not hold /metrics up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.admin.http.metrics.exposition import GAUGE, Exposition, Family

if TYPE_CHECKING:
    from ottla.replication.log.storage import LogDirectory
    from ottla.server.broker import Broker

MEASURED_S = 10.0
EARLY_S = 0.2  # while nothing is known, because the endpoint starts before the log directories are opened
PATIENCE_S = 5.0
DIRECTORIES_MAX = 100


class Room(NamedTuple):
    """Size of a file system in bytes, and the bytes that this process may still use."""

    total_bytes: int
    free_bytes: int


class DiskRoom:
    """Meter of the room that the file systems of the log directories have left."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._busy: set[str] = set()
        self.by_path: dict[str, Room] = {}
        """Room by log directory; those that are offline or do not answer are missing."""

    async def run(self) -> None:
        """Measure every MEASURED_S seconds until cancelled."""
        while True:
            await self.measure()
            await trio.sleep(MEASURED_S if self.by_path else EARLY_S)

    async def measure(self) -> None:
        """Ask for the room of each log directory that is online; wait for PATIENCE_S seconds at most."""
        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for directory in self._broker.replicas.log_directories[:DIRECTORIES_MAX]:
                    if not directory.is_online:
                        self.by_path.pop(directory.path, None)
                    # While a dead disk holds a thread, no second one joins it.
                    elif directory.path not in self._busy:
                        nursery.start_soon(self._measure_one, directory)
        for path in tuple(self._busy):  # a copy, because each thread removes its own path
            self.by_path.pop(path, None)

    async def _measure_one(self, directory: LogDirectory) -> None:
        # A limiter of its own: threads that hang must not take those that all others share.
        try:
            room = await trio.to_thread.run_sync(
                self._ask, directory, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        except RuntimeError:  # Python's words for EAGAIN: the system has no room for another thread now
            room = None
        if room is None:
            self.by_path.pop(directory.path, None)
        else:
            self.by_path[directory.path] = room

    def _ask(self, directory: LogDirectory) -> Room | None:
        """Ask the system for a directory's room; None if it cannot tell. Runs in a thread."""
        # Here, because a task that is cancelled before its thread begins would leave the mark for ever.
        self._busy.add(directory.path)
        try:
            return Room(*directory.storage.space(directory.path))
        except OSError:
            return None
        finally:
            self._busy.discard(directory.path)


_TOTAL = Family("ottla_log_directory_total_bytes", GAUGE, "Bytes of the file system that a log directory is on.")
_FREE = Family("ottla_log_directory_free_bytes", GAUGE, "Bytes that are left on it for this broker.")


def disk_room(room: DiskRoom, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of the log directories' file systems."""
    found = [({"logDirectory": path}, each) for path, each in sorted(room.by_path.items())]
    yield exposition.family(_TOTAL, [(labels, each.total_bytes) for labels, each in found])
    yield exposition.family(_FREE, [(labels, each.free_bytes) for labels, each in found])


_EXPIRY = Family(
    "ottla_certificate_expiry_timestamp_seconds",
    GAUGE,
    "When the first certificate of a listener's chain expires, in seconds since 1970.",
)


def certificates(broker: Broker, exposition: Exposition) -> Iterator[str]:
    """Yield the times at which the certificates of encrypted listeners expire."""
    known = () if broker.tls is None else [(each.name, each.expires_s) for each in broker.tls]
    yield exposition.family(_EXPIRY, [({"listener": name}, at) for name, at in known if at is not None])
