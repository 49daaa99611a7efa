"""Receiver of pushed client metrics, as the broker sees it (Kafka's ClientTelemetryReceiver)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.wire.compression import Compression


class Client(NamedTuple):
    """Attributes of a client, for subscriptions to match. `source_port` is empty if it is not known."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: str


class Push(NamedTuple):
    """A client's push: MetricsData of OpenTelemetry in protobuf."""

    instance_id: str
    owner: str
    """Owner of the client, and maybe of others: a principal, or else an address."""
    client: Client
    data: bytes
    compression: Compression
    bytes_max: int
    """Limit of the decompressed size."""
    metrics: tuple[str, ...]
    """Prefixes of the metrics that the client was asked for; "*" means all."""
    interval_ms: int
    """Interval until the next push is due."""


class BadMetrics(ValueError):
    """Pushed metrics that cannot be read; the text says why."""


class Receiver(Protocol):
    """Port to the receiver; without opentelemetry-proto there is none."""

    async def take(self, push: Push) -> None:
        """Take a push. Raises BadMetrics."""
