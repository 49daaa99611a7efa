"""Functions of generated codecs, first of all unsigned varints and tagged fields. Each name of `__all__` is a global of generated code.

A varint has seven bits a byte, lowest first, and at most five bytes. A value that does not fit into Java's int wraps as it does
there, so a length can turn out negative.

The readers take no end of input: reading beyond a frame that ends inside a longer buffer moves the position beyond the
frame's end, which the caller checks, and reading beyond the buffer raises IndexError.
"""

from __future__ import annotations

from struct import Struct, error, pack, unpack_from

from ottla.wire.errors import ProtocolViolation
from ottla.wire.limits import ELEMENTS_BESIDE_RECORDS_MAX, REQUEST_ELEMENTS_MAX, STRING_BYTES_MAX, TAGS_PER_SECTION_MAX
from ottla.wire.text import JAVA_REPLACE, text_bytes

VARINT_BYTES_MAX = 5


def read_varint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read the varint at `position`; return the value and the next position."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    second = buffer[position + 1]
    value = byte & 0x7F | (second & 0x7F) << 7
    if second < 0x80:
        return value, position + 2
    for index in range(2, VARINT_BYTES_MAX):
        byte = buffer[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - (1 << 32) if value >> 31 else value, position + index + 1
    raise ProtocolViolation("a varint of more than five bytes")


def read_length(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read the stored form, one higher, of a compact length or count. Return it and the next position.

    The lowest int becomes 2^31, because Java's subtraction of one wraps around.
    """
    value, position = read_varint(buffer, position)
    return (1 << 31 if value == -1 << 31 else value), position


def encode_varint(value: int) -> bytes:
    """Encode a number from 0 to 2^32 - 1 in as few bytes as possible."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tagged_field(position: int, end: int, size: int) -> int:
    """Return the position after an unknown tagged field of `size` bytes."""
    if not 0 <= size <= end - position:
        raise ProtocolViolation(f"a tagged field of {size} bytes goes beyond the end")
    return position + size


def read_tag_count(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read the number of tagged fields. Return it, with negative numbers as 0 like Java, and the next position."""
    count, position = read_varint(buffer, position)
    if count > TAGS_PER_SECTION_MAX:
        raise ProtocolViolation(f"{count} tagged fields in one section")
    return max(count, 0), position


def skip_tags(buffer: bytes | bytearray, position: int, end: int, count: int) -> int:
    """Skip `count` tagged fields; return the next position."""
    for _ in range(count):
        _tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position = skip_tagged_field(position, end, size)
    return position


def skip_tagged_fields(buffer: bytes | bytearray, position: int, end: int) -> int:
    """Skip a section of tagged fields; return the next position."""
    try:
        count, position = read_tag_count(buffer, position)
        position = skip_tags(buffer, position, end, count)
    except IndexError:
        position = end + 1
    if position > end:
        raise ProtocolViolation("tagged fields go beyond the end")
    return position


new = object.__new__

BYTES = [bytes((value,)) for value in range(256)]

# Arrays of a few int32 are everywhere (replicas, partitions), and a ready Struct is twice as fast as a format string.
FEW = 32
UNPACK_INT32S = [Struct(f">{count}i").unpack_from for count in range(FEW)]
UNPACK_INT32S_COMPACT = [UNPACK_INT32S[0], *UNPACK_INT32S[:-1]]  # by a count that says one more
PACK_INT32S = [Struct(f">{count}i").pack for count in range(FEW)]


def read_string_length(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read the stored form, one higher, of a compact string's length. Return it and the next position.

    Generated code calls this only for a length of more than one byte.
    """
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
