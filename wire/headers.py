"""Headers of requests and responses.

Request header:  v0 api key, api version, correlation id   v1 client id   v2 tagged fields
Response header: v0 correlation id                         v1 tagged fields

A flexible request has header v2 and its response v1, with these exceptions:
- the client id stays a classic nullable string even in v2, so that a broker can read the header of any request;
- ControlledShutdown v0 came before client ids and has request header v0;
- ApiVersions always has response header v0, because the client reads it before it knows the broker's versions.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.wire.errors import ProtocolViolation
from ottla.wire.runtime import skip_tagged_fields
from ottla.wire.schema import Message
from ottla.wire.text import JAVA_REPLACE

__all__ = [
    "RequestHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
    "request_header_version",
    "response_header_version",
    "skip_tagged_fields",
]

CONTROLLED_SHUTDOWN_KEY = 7
API_VERSIONS_KEY = 18

_FIXED_PART = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def request_header_version(request_class: type[Message], version: int) -> int:
    if version in request_class.flexible:
        return 2
    return 0 if request_class.api_key == CONTROLLED_SHUTDOWN_KEY and version == 0 else 1


def response_header_version(response_class: type[Message], version: int) -> int:
    return int(version in response_class.flexible and response_class.api_key != API_VERSIONS_KEY)


def decode_request_header(
    buffer: bytes | bytearray, start: int, end: int, header_version: int
) -> tuple[RequestHeader, int]:
    """Decode the request header in `buffer[start:end]`. Return it and the position where the body begins."""
    position = start + _FIXED_PART.size
    # Asked of the frame's end, for the buffer may go on with other frames.
    if position > end:
        raise ProtocolViolation(f"{end - start} bytes are too few for a request header")
    api_key, api_version, correlation_id = _FIXED_PART.unpack_from(buffer, start)
    client_id = None
    if header_version >= 1:
        client_id, position = _read_client_id(buffer, position, end)
    if header_version >= 2:
        position = skip_tagged_fields(buffer, position, end)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _read_client_id(buffer: bytes | bytearray, position: int, end: int) -> tuple[str | None, int]:
    text_start = position + _CLIENT_ID_LENGTH.size
    if text_start > end:
        raise ProtocolViolation("the frame ends within the client id")
    (length,) = _CLIENT_ID_LENGTH.unpack_from(buffer, position)
    # Kafka takes any length below zero for null.
    if length < 0:
        return None, text_start
    text_end = text_start + length
    if text_end > end:
        raise ProtocolViolation(f"a client id of {length} bytes goes beyond the end of its frame")
    # As Java reads it: bytes that are not UTF-8 are replaced, and the connection goes on.
    return buffer[text_start:text_end].decode("utf-8", JAVA_REPLACE), text_end


def encode_request_header(header: RequestHeader, header_version: int) -> bytes:
    encoded = _FIXED_PART.pack(header.api_key, header.api_version, header.correlation_id)
    if header_version >= 1:
        client_id = None if header.client_id is None else header.client_id.encode()
        encoded += _CLIENT_ID_LENGTH.pack(-1 if client_id is None else len(client_id)) + (client_id or b"")
    # A single zero byte is a section without tagged fields.
    return encoded + b"\0" if header_version >= 2 else encoded


def decode_response_header(buffer: bytes | bytearray, start: int, end: int, header_version: int) -> tuple[int, int]:
    """Decode the response header in `buffer[start:end]`. Return the correlation id and where the body begins."""
    position = start + _CORRELATION_ID.size
    if position > end:
        raise ProtocolViolation(f"{end - start} bytes are too few for a response header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, start)
    return correlation_id, skip_tagged_fields(buffer, position, end) if header_version >= 1 else position


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    encoded = _CORRELATION_ID.pack(correlation_id)
    return encoded + b"\0" if header_version >= 1 else encoded
