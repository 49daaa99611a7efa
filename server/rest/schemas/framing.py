"""Confluent's wire format: a zero, the schema's id in four bytes, and the data.

Between them Protobuf has the path of the message's type in its file: a count and as many numbers, in zigzag, seven bits a byte. A single
zero stands for the first message.
"""

from __future__ import annotations

from typing import NamedTuple

MAGIC, HEAD_BYTES = 0, 5
ID_MAX = (1 << 31) - 1
FIRST_MESSAGE = b"\0"
INDEXES_MAX = 64
_VARINT_BYTES_MAX = 5


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


def message_path(data: memoryview) -> tuple[list[int], memoryview]:
    """Split Protobuf data into the index path of the message's type and the message itself. Raises BadFrame."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], data[position:]
    if not 0 < count <= INDEXES_MAX:
        raise BadFrame(f"The path of the message has {count} parts")
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path, data[position:]


def _zigzag(data: memoryview, position: int) -> tuple[int, int]:
    found = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position + shift >= len(data):
            break
        byte = data[position + shift]
        found |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position + shift + 1
    raise BadFrame("The path of the message is cut off")
