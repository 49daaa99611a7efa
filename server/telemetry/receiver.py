"""Who takes what clients push, as the broker sees it (Kafka's ClientTelemetryReceiver)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.wire.compression import Compression


class Client(NamedTuple):
    """Who asks or pushes, as subscriptions may match it. `source_port` is empty where it is not known."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: str


class Push(NamedTuple):
    """What a client has pushed: MetricsData of OpenTelemetry in protobuf."""

    instance_id: str
    owner: str
    """Who has this client, and maybe others (`turns.py`)."""
    client: Client
    data: bytes
    compression: Compression
    bytes_max: int
    """How many bytes the data may be when it is decompressed."""
    metrics: tuple[str, ...]
    """What the client was asked for: how names of metrics begin; "*" means all."""
    interval_ms: int
    """When the next push is due."""


class BadMetrics(ValueError):
    """What was pushed cannot be read; says why."""


class Receiver(Protocol):
    """See the module's docstring."""

    async def take(self, push: Push) -> None:
        """Take what was pushed. Raises BadMetrics."""
