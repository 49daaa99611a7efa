"""Envelope (key 58): a broker hands a client's request on to the controller (KIP-590).

`request_data` is the request as a client sends it, header and body without the size; `response_data` its answer. The client
id is in that header. Who asks, and from where, is beside it.
"""

from __future__ import annotations

from ottla.wire.errors import ProtocolViolation
from ottla.wire.schema import Bool, Bytes, Int16, Message, String, Struct, field


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: bytes = field(Bytes)
    request_principal: bytes | None = field(Bytes, nullable="0+")
    client_host_address: bytes = field(Bytes)


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(Bytes, nullable="0+", default=None)
    error_code: int = field(Int16)


class ForwardedPrincipalData(Struct, versions="0", flexible="0+"):
    """Principal of a forwarded request: Kafka's DefaultPrincipalData, with tagged fields for the request's listener."""

    type: str = field(String)
    name: str = field(String)
    token_authenticated: bool = field(Bool)
    listener_name: str = field(String, tag=10_000, default="")
    security_protocol: str = field(String, tag=10_001, default="")


def encode_principal(principal: ForwardedPrincipalData) -> bytes:
    """Encode a principal, with its version in two bytes in front."""
    return bytes(2) + principal.encode(0)


def decode_principal(blob: bytes) -> ForwardedPrincipalData:
    """Decode a principal encoded by `encode_principal` or by Kafka. Raises ProtocolViolation if it is malformed."""
    if len(blob) < 2 or blob[:2] != bytes(2):
        raise ProtocolViolation(f"not a principal: {len(blob)} bytes, version {blob[:2].hex()}")
    return ForwardedPrincipalData.decode(blob, 0, start=2)
