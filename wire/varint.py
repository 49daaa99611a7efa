"""Unsigned varints as Kafka reads and writes them, and the section of tagged fields that is made of them.

A varint has seven bits a byte, lowest first, and at most five bytes. What does not fit into Java's int wraps as it does
there, so a length can turn out negative.

The readers take no end of input: reading beyond a frame that ends inside a longer buffer moves the position beyond the
frame's end, which the caller checks, and reading beyond the buffer raises IndexError.
"""

from __future__ import annotations

from ottla.wire.errors import ProtocolViolation
from ottla.wire.limits import TAGS_PER_SECTION_MAX

VARINT_BYTES_MAX = 5


def read_varint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """The varint at `position` and the position behind it."""
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
    """The same for a length or count + 1, where Java takes the one off again: its lowest int becomes its highest."""
    value, position = read_varint(buffer, position)
    return (1 << 31 if value == -1 << 31 else value), position


def encode_varint(value: int) -> bytes:
    """The shortest encoding of a number from 0 to 2^32 - 1."""
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
    """The position behind a tagged field of `size` bytes that nobody knows."""
    if not 0 <= size <= end - position:
        raise ProtocolViolation(f"a tagged field of {size} bytes goes beyond the end")
    return position + size


def read_tag_count(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """How many tagged fields a section holds, and the position of the first; a negative number is none, as in Java."""
    count, position = read_varint(buffer, position)
    if count > TAGS_PER_SECTION_MAX:
        raise ProtocolViolation(f"{count} tagged fields in one section")
    return max(count, 0), position


def skip_tags(buffer: bytes | bytearray, position: int, end: int, count: int) -> int:
    """The position behind `count` tagged fields of which none is wanted."""
    for _ in range(count):
        _tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position = skip_tagged_field(position, end, size)
    return position


def skip_tagged_fields(buffer: bytes | bytearray, position: int, end: int) -> int:
    """The position behind a section of tagged fields of which none is wanted."""
    try:
        count, position = read_tag_count(buffer, position)
        position = skip_tags(buffer, position, end, count)
    except IndexError:
        position = end + 1
    if position > end:
        raise ProtocolViolation("tagged fields go beyond the end")
    return position
