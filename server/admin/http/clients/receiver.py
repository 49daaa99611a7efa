"""Receiver of pushed client metrics, and their metric families for scrapes (Kafka's client-metrics).

A push is decompressed and decoded in a thread, one at a time. That thread works at most a third of the time; further pushes
wait, and each owner of clients may have one push at a time. An unreadable push is dropped as a whole.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import trio

from ottla.server.admin.http.clients.points import Decoded, decoded
from ottla.server.admin.http.clients.store import ClientNumbers, Key, Pusher
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family, labelled
from ottla.server.admin.telemetry.subscriptions import BadMetrics, Push
from ottla.server.admin.telemetry.telemetry import FairLock
from ottla.wire.decompression import decompress
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.server.admin.telemetry.telemetry import Telemetry

REST = 2.0  # how long nothing is read after a push, in the time that it took
SWEEP_S = 5.0
CHARACTERS_MAX = 200  # of what a client calls itself


class ClientMetrics:
    """Receiver of pushed client metrics."""

    def __init__(self) -> None:
        self.kept = ClientNumbers()
        self.left_out = 0  # metrics and points that were too many, too long or strange
        self.worked_s = 0.0
        self._fair_lock = FairLock()
        self._rested_at = 0.0
        self._thread = trio.CapacityLimiter(1)

    async def take(self, push: Push) -> None:
        """Store the samples of a push. Raises BadMetrics."""
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
        """Remove the samples of expired client instances, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S)
            self.kept.expire(trio.current_time())


def is_possible() -> bool:
    """Tell whether opentelemetry-proto is installed: pip install 'ottla[telemetry]'."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.metrics.v1") is not None
    except ImportError:  # there is not even the package above
        return False


def _read(push: Push) -> tuple[Decoded | str, float]:
    """Decode a push in a thread; return the samples or an error text, and the processor time in seconds."""
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
    about = {
        "client_instance_id": instance_id,
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.source_address,
    }
    return labelled({name: text[:CHARACTERS_MAX] for name, text in about.items()})


PIECE_CHARACTERS = 32 * 1024

_REQUESTS = Family("ottla_client_pushes_total", COUNTER, "What became of what clients pushed.")
_CLIENT = Family("ottla_client", GAUGE, "A client that pushes metrics, 1.")


def clients(receiver: ClientMetrics, telemetry: Telemetry, exposition: Exposition) -> Iterator[str]:
    """Yield metrics in pieces: first those about pushes, then those that clients have pushed."""
    for name, kind, about, value in (
        (
            "kafka_server_client_metrics_instance_count",
            GAUGE,
            "Clients that ask what to push.",
            len(telemetry.instances),
        ),
        (
            "kafka_server_client_metrics_unknown_subscription_request_count",
            GAUGE,  # as the exporter of Kafka's metrics has it
            "Pushes for another subscription than the client has.",
            telemetry.unknown_subscriptions,
        ),
        (
            "ottla_client_numbers",
            GAUGE,
            "Numbers that clients have pushed and that are told here.",
            receiver.kept.numbers,
        ),
        (
            "ottla_client_numbers_left_out_total",
            COUNTER,
            "Pushed metrics and numbers that were too many, too long or strange.",
            receiver.left_out + receiver.kept.left_out,
        ),
        (
            "ottla_client_evictions_total",
            COUNTER,
            "Instances of clients that were forgotten to make room for those of others.",
            receiver.kept.evicted,
        ),
        ("ottla_client_push_seconds_total", COUNTER, "Processor time for pushes.", round(receiver.worked_s, 6)),
    ):
        yield exposition.single(name, kind, about, value)
    results = {"taken": telemetry.taken, "throttled": telemetry.throttled, "unreadable": telemetry.refused}
    yield exposition.family(_REQUESTS, [({"result": result}, count) for result, count in results.items()])
    yield exposition.head(_CLIENT)
    yield from _together(f"{_CLIENT.name}{{{labels}}} 1\n" for labels in receiver.kept.known())
    yield from _pushed(receiver, exposition)


def _pushed(receiver: ClientMetrics, exposition: Exposition) -> Iterator[str]:
    # What comes and goes between two pieces is of no matter: the lists are those of now.
    for family, by_instance in receiver.kept.families():
        yield exposition.head(family)
        name = family.name
        for numbers in by_instance:
            listed = _grouped(numbers)
            yield from _together(f"{name}{ending}{{{labels}}} {_number(value)}\n" for (ending, labels), value in listed)


def _grouped(numbers: Mapping[Key, float]) -> list[tuple[Key, float]]:
    """Copy samples so that equal labels are adjacent, as OpenMetrics requires."""
    by_labels: dict[str, list[tuple[Key, float]]] = {}
    for each in numbers.items():
        by_labels.setdefault(each[0][1], []).append(each)
    return list(chain.from_iterable(by_labels.values()))


def _together(lines: Iterable[str]) -> Iterator[str]:
    """Join lines to pieces of PIECE_CHARACTERS. Clients may push megabytes, too long for one piece."""
    found: list[str] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line)
        if size >= PIECE_CHARACTERS:
            yield "".join(found)
            found, size = [], 0
    yield "".join(found)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
