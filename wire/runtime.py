"""What generated codecs refer to. Every public name here is a global of the generated code."""

from __future__ import annotations

from struct import Struct, error, pack, unpack_from

from ottla.wire.errors import ProtocolViolation
from ottla.wire.limits import ELEMENTS_BESIDE_RECORDS_MAX, REQUEST_ELEMENTS_MAX, STRING_BYTES_MAX
from ottla.wire.text import JAVA_REPLACE, text_bytes
from ottla.wire.varint import (
    encode_varint,
    read_length,
    read_tag_count,
    read_varint,
    skip_tagged_field,
    skip_tags,
)

new = object.__new__

BYTES = [bytes((value,)) for value in range(256)]

# Arrays of a few int32 are everywhere (replicas, partitions), and a ready Struct is twice as fast as a format string.
FEW = 32
UNPACK_INT32S = [Struct(f">{count}i").unpack_from for count in range(FEW)]
UNPACK_INT32S_COMPACT = [UNPACK_INT32S[0], *UNPACK_INT32S[:-1]]  # by a count that says one more
PACK_INT32S = [Struct(f">{count}i").pack for count in range(FEW)]


def read_string_length(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """The length + 1 of a compact string that takes more than one byte to say it."""
    length, position = read_length(buffer, position)
    if length > STRING_BYTES_MAX + 1:
        raise ProtocolViolation(f"a string of {length - 1} bytes")
    return length, position


def encode_string_length(length: int) -> bytes:
    if length > STRING_BYTES_MAX + 1:
        raise ValueError(f"a string of {length - 1} bytes does not fit into the protocol")
    return encode_varint(length)


__all__ = [
    "BYTES",
    "ELEMENTS_BESIDE_RECORDS_MAX",
    "FEW",
    "JAVA_REPLACE",
    "PACK_INT32S",
    "REQUEST_ELEMENTS_MAX",
    "UNPACK_INT32S",
    "UNPACK_INT32S_COMPACT",
    "ProtocolViolation",
    "Struct",
    "encode_string_length",
    "encode_varint",
    "error",
    "new",
    "pack",
    "read_length",
    "read_string_length",
    "read_tag_count",
    "read_varint",
    "skip_tagged_field",
    "skip_tags",
    "text_bytes",
    "unpack_from",
]
