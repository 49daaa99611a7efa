"""SaslAuthenticate (key 36): one token of a SASL exchange (KIP-152).

v1 lifetime of the session (KIP-368)
"""

from ottla.wire.schema import Bytes, Int16, Int64, Message, Text, field


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field(Bytes)


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", default=0)
