"""Embedded formats: how a key or a value stands in JSON.

    binary      a base64 string
    json        any JSON, written without spaces as Confluent's serializer does
    string      a string, only in requests of the third version

Formats with a schema need a registry (schemas/); `WITH_SCHEMA` names them.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64encode
from typing import Any

from ottla.server.rest.bodies import loads
from ottla.server.rest.errors import Code, RestError, bad_request

BINARY, JSON, STRING = "binary", "json", "string"
WITH_SCHEMA = ("avro", "jsonschema", "protobuf")
_SHOWN = 100


def encode(kind: str, data: Any) -> bytes | None:
    """Convert a key or value in JSON to bytes, in the embedded format `kind`; None stays None. Raises RestError."""
    if data is None:
        return None
    if kind == BINARY:
        return from_base64(data)
    if kind == JSON:
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:  # also half a surrogate pair
            raise RestError(Code.JSON_CONVERSION, f"Conversion of JSON to Object failed: {error}") from None
    if kind == STRING:
        if not isinstance(data, str):
            raise bad_request(f"data={_shown(data)} is not a string.")
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise bad_request(f"data={_shown(data)} is not a valid string.") from None
    raise no_registry("serialize")


def from_base64(data: Any) -> bytes:
    """Decode base64, with or without padding. Raises RestError."""
    if not isinstance(data, str):
        raise bad_request(f"data={_shown(data)} is not a base64 string.")
    padded = data + "=" * (-len(data) % 4) if len(data) % 4 else data
    try:
        return binascii.a2b_base64(padded, strict_mode=True)
    except ValueError:
        raise bad_request(f"data={_shown(data)} is not a valid base64 string.") from None


def decode(kind: str, data: bytes | None) -> Any:
    """Convert a key or value to JSON, in the embedded format `kind`; None stays None. Raises RestError."""
    if data is None:
        return None
    if kind == BINARY:
        return b64encode(data).decode()
    if kind == JSON:
        try:
            return loads(data)
        except (RestError, UnicodeDecodeError) as error:
            raise RestError(Code.SERIALIZATION, f"A record is no JSON: {error}") from None
    raise no_registry("deserialize")


def no_registry(what: str) -> RestError:
    return RestError(
        Code.MESSAGE_SERIALIZATION,
        f"Error serializing message. Schema Registry not defined, no Schema Registry client available to {what} message.",
    )


def no_schemas() -> RestError:
    text = "Payload error. Schema Registry must be configured when using schemas."
    return RestError(Code.INVALID_PAYLOAD, text)


def _shown(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
