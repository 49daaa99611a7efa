"""Takes what clients push: decompresses and reads it in a thread, one push at a time, and keeps the numbers.

All pushes together work for a third of the time at most, however many push and however much: the others wait, and of each owner
of clients one push at a time (`server/telemetry/fair_lock.py`). Nothing of a push that cannot be read is kept.
"""

from __future__ import annotations

import importlib.util
import time

import trio

from ottla.server.http.clients.points import Decoded, decoded
from ottla.server.http.clients.store import ClientNumbers, Pusher
from ottla.server.http.metrics.exposition import labelled
from ottla.server.telemetry.fair_lock import FairLock
from ottla.server.telemetry.receiver import BadMetrics, Push
from ottla.wire.decompression import decompress
from ottla.wire.errors import KafkaError

REST = 2.0  # how long nothing is read after a push, in the time that it took
SWEEP_S = 5.0
CHARACTERS_MAX = 200  # of what a client calls itself


class ClientMetrics:
    """A receiver of what clients push; see the module's docstring."""

    def __init__(self) -> None:
        self.kept = ClientNumbers()
        self.left_out = 0  # metrics and points that were too many, too long or strange
        self.worked_s = 0.0
        self._fair_lock = FairLock()
        self._rested_at = 0.0
        self._thread = trio.CapacityLimiter(1)

    async def take(self, push: Push) -> None:
        """Keep the numbers of a push. Raises BadMetrics."""
        async with self._fair_lock.hold(push.owner):
            await trio.sleep_until(self._rested_at)
            result = await trio.to_thread.run_sync(_read, push, limiter=self._thread)
            self._rested_at = trio.current_time() + result[1] * REST
        found, worked_s = result
        self.worked_s += worked_s
        if isinstance(found, str):
            raise BadMetrics(found)
        self.left_out += found.left_out
        pusher = Pusher(push.instance_id, push.owner, _known_of(push), push.interval_ms / 1000)
        self.kept.take(pusher, found.numbers, trio.current_time())

    async def sweep(self) -> None:
        """Forget the numbers of those that have gone, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S)
            self.kept.expire(trio.current_time())


def is_possible() -> bool:
    """Whether what is needed to read pushes is installed: pip install 'ottla[telemetry]'."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics.v1") is not None
    except ImportError:  # there is not even the package above
        return False


def _read(push: Push) -> tuple[Decoded | str, float]:
    """In a thread: the numbers, or why there are none, and how long it took. An exception would hold the push."""
    began = time.thread_time()
    own = {"client_instance_id": push.instance_id, "client_id": push.client.client_id[:CHARACTERS_MAX]}
    found: Decoded | str
    try:
        data = memoryview(decompress(push.compression, push.data, push.bytes_max))
        found = decoded(data, push.metrics, own)
    except (BadMetrics, KafkaError) as error:
        found = str(error)
    return found, time.thread_time() - began


def _known_of(push: Push) -> str:
    instance_id, client = push.instance_id, push.client
    told = {
        "client_instance_id": instance_id,
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.source_address,
    }
    return labelled({name: text[:CHARACTERS_MAX] for name, text in told.items()})
