"""Metrics of clients (KIP-714): GetTelemetrySubscriptions and PushTelemetry."""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Bytes, Int8, Int16, Int32, Message, String, Uuid, field


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    """GetTelemetrySubscriptions (key 71): ask which metrics a client is to push, and how often (KIP-714)."""

    client_instance_id: bytes = field(Uuid)


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    client_instance_id: bytes = field(Uuid, default=ZERO_UUID)
    subscription_id: int = field(Int32, default=0)
    accepted_compression_types: list[int] = field(Array(Int8), default=[])
    push_interval_ms: int = field(Int32, default=0)
    telemetry_max_bytes: int = field(Int32, default=0)
    delta_temporality: bool = field(Bool, default=False)
    requested_metrics: list[str] = field(Array(String), default=[])


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    """PushTelemetry (key 72): send a client's metrics as OpenTelemetry MetricsData in protobuf (KIP-714).

    The metrics may be compressed.
    """

    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    terminating: bool = field(Bool)
    compression_type: int = field(Int8)
    metrics: bytes = field(Bytes)


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
