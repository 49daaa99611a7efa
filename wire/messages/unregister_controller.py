"""UnregisterController (key 94): forget a controller of Kafka's metadata quorum that will not come back."""

from ottla.wire.schema import Int16, Int32, Message, Text, field


class UnregisterControllerRequest(Message, key=94, versions="0", flexible="0+"):
    controller_id: int = field(Int32)


class UnregisterControllerResponse(Message, key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
