"""Authentication by SASL: SaslHandshake and SaslAuthenticate."""

from ottla.wire.schema import Array, Bytes, Int16, Int64, Message, String, Text, field


class SaslHandshakeRequest(Message, key=17, versions="0-1", flexible="none"):
    """SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

    After v0 the client sends tokens in raw frames, after v1 in SaslAuthenticate requests (KIP-152).
    """

    mechanism: str = field(String)


class SaslHandshakeResponse(Message, key=17, versions="0-1", flexible="none"):
    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    """SaslAuthenticate (key 36): send one token of a SASL exchange (KIP-152). v1 session lifetime (KIP-368)."""

    auth_bytes: bytes = field(Bytes)


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", default=0)
