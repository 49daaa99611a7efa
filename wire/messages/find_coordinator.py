"""FindCoordinator (key 10): who coordinates a group (key type 0), a transaction (1) or a share partition (2).

v1 key type, throttle time, error text   v2 answers before throttling   v3 flexible   v4 many keys at once (KIP-699)
v5 TRANSACTION_ABORTABLE (KIP-890)   v6 share groups (KIP-932)
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    key: str = field(String, versions="0-3", default="")
    key_type: int = field(Int8, versions="1+", default=0)
    coordinator_keys: list[str] = field(Array(String), versions="4+", default=[])


class Coordinator(Struct):
    key: str = field(String, versions="4+")
    node_id: int = field(Int32, versions="4+")
    host: str = field(String, versions="4+")
    port: int = field(Int32, versions="4+")
    error_code: int = field(Int16, versions="4+")
    error_message: str | None = field(Text, versions="4+", nullable="4+")


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16, versions="0-3", default=0)
    error_message: str | None = field(Text, versions="1-3", nullable="1-3", default="")
    node_id: int = field(Int32, versions="0-3", default=0)
    host: str = field(String, versions="0-3", default="")
    port: int = field(Int32, versions="0-3", default=0)
    coordinators: list[Coordinator] = field(Array(Coordinator), versions="4+", default=[])
