"""PushTelemetry (key 72): metrics of a client, as MetricsData of OpenTelemetry in protobuf, maybe compressed (KIP-714)."""

from ottla.wire.schema import Bool, Bytes, Int8, Int16, Int32, Message, Uuid, field


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = field(Uuid)
    subscription_id: int = field(Int32)
    terminating: bool = field(Bool)
    compression_type: int = field(Int8)
    metrics: bytes = field(Bytes)


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
