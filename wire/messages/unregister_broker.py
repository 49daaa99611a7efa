"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-631)."""

from ottla.wire.schema import Int16, Int32, Message, Text, field


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = field(Int32)


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
