"""SaslHandshake (key 17): choose a mechanism before authentication (KIP-43).

v1 tokens follow in SaslAuthenticate requests, not bare (KIP-152)
"""

from ottla.wire.schema import Array, Int16, Message, String, field


class SaslHandshakeRequest(Message, key=17, versions="0-1", flexible="none"):
    mechanism: str = field(String)


class SaslHandshakeResponse(Message, key=17, versions="0-1", flexible="none"):
    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))
