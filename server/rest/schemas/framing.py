"""Confluent's wire format: a zero, the schema's id in four bytes, and the data.

Between them Protobuf has the path of the message's type in its file: a count and as many numbers, in zigzag, seven bits a byte. A single
zero stands for the first message.
"""

from __future__ import annotations

from typing import NamedTuple

MAGIC, HEAD_BYTES = 0, 5
ID_MAX = (1 << 31) - 1
FIRST_MESSAGE = b"\0"


class BadFrame(ValueError):
    """Error: bytes have no frame with a schema id, or the frame is malformed."""


class Framed(NamedTuple):
    """Framed value: schema id and data."""

    schema_id: int
    data: memoryview


def framed(schema_id: int, data: bytes) -> bytes:
    """Return `data` with a frame that contains the schema id in front."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


def unframed(data: bytes) -> Framed:
    """Split a framed value into schema id and data. Raises BadFrame."""
    if len(data) < HEAD_BYTES or data[0] != MAGIC:
        raise BadFrame("Unknown magic byte!")
    schema_id = int.from_bytes(data[1:HEAD_BYTES], "big")
    if schema_id > ID_MAX:
        raise BadFrame("Unknown magic byte!")
    return Framed(schema_id, memoryview(data)[HEAD_BYTES:])
