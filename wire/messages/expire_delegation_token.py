"""ExpireDelegationToken (key 40): let a token expire at another time, or remove it at once (KIP-48).

v2 flexible
"""

from ottla.wire.schema import Bytes, Int16, Int32, Int64, Message, field


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+"):
    hmac: bytes = field(Bytes)
    expiry_time_period_ms: int = field(Int64)


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32, default=0)
