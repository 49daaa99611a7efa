"""The walk over the records of a batch, in Python; and the choice between this one and the one in C.

`ottla.wire._native` holds the same walk in C (`native.py` says when it is used); tests hold the two equal on valid, damaged and
random areas. The C file says what a record looks like. Change both or neither.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.native import native

Buffer = bytes | bytearray | memoryview
Walked = tuple[int, int, int, int, int, bool, bool]
"""Records walked, position behind the last one, and what `Found` says of them."""

Found = tuple[int, int, int, bool, bool]
"""Findings about valid records: least and greatest timestamp delta, offset delta of the greatest, has a null key, offsets are
consecutive."""

NOTHING_WALKED: Walked = (0, 0, 0, 0, -1, False, True)


class RawHeaders:
    """Encoded headers of a record, without their number. They can be copied without decoding."""

    __slots__ = ("encoded",)

    def __init__(self, encoded: Buffer) -> None:
        self.encoded = encoded


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a zig-zag varint of at most 5 bytes. Return (value, next position). Raises ValueError or IndexError."""
    raw = shift = 0
    while (byte := data[position]) > 127:
        raw |= (byte & 127) << shift
        shift += 7
        position += 1
        # A fifth byte may still follow, at shift 28. A sixth makes the varint too long.
        if shift > 28:
            raise ValueError("varint is longer than 5 bytes")
    raw = (raw | byte << shift) & 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position + 1


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Read a zig-zag varlong of at most 10 bytes. Return (value, next position). Raises ValueError or IndexError."""
    raw = shift = 0
    while (byte := data[position]) > 127:
        raw |= (byte & 127) << shift
        shift += 7
        position += 1
        # Ten bytes are as many as 64 bits need.
        if shift > 63:
            raise ValueError("varlong is longer than 10 bytes")
    raw = (raw | byte << shift) & 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position + 1


def keys_and_values(area: bytes, count: int, base_offset: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield (offset, key, value) of each record, fast. The area must have been checked before."""
    end = 0
    for _ in range(count):
        position = end
        # Nearly all of these numbers fit one byte or two. A call for each would double the time.
        if (low := area[position]) < 128:
            length, position = low >> 1, position + 1
        elif (high := area[position + 1]) < 128:
            length, position = (low & 127 | high << 7) >> 1, position + 2
        else:
            length, position = read_varint(area, position)
        end = position + length
        position += 1  # attributes
        while area[position] > 127:  # the timestamp
            position += 1
        position += 1
        if (low := area[position]) < 128:
            offset_delta, position = (low >> 1) ^ -(low & 1), position + 1
        elif (high := area[position + 1]) < 128:
            raw = low & 127 | high << 7
            offset_delta, position = (raw >> 1) ^ -(raw & 1), position + 2
        else:
            offset_delta, position = read_varint(area, position)
        if (low := area[position]) < 128 and not low & 1:
            value_at = position + 1 + (low >> 1)
            key: bytes | None = area[position + 1 : value_at]
        else:
            key, value_at = read_bytes(area, position)
        if (low := area[value_at]) < 128 and not low & 1:
            value: bytes | None = area[value_at + 1 : value_at + 1 + (low >> 1)]
        elif low > 127 and (high := area[value_at + 1]) < 128 and not low & 1:
            value = area[value_at + 2 : value_at + 2 + ((low & 127 | high << 7) >> 1)]
        else:
            value, _ = read_bytes(area, value_at)
        yield base_offset + offset_delta, key, value


def read_bytes(area: Any, position: int) -> tuple[bytes | None, int]:
    """Read a varint and as many bytes as it says, None if it is negative. Return (bytes, next position)."""
    length, position = read_varint(area, position)
    return (None, position) if length < 0 else (area[position : position + length], position + length)


def _skip_headers(data: Buffer, position: int, count: int) -> int:
    # A loop would take it for none and accept what Kafka refuses.
    if count < 0:
        raise ValueError("negative header count")
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise ValueError("null header key")
        # A length beyond the area needs no check here: the next read raises IndexError, or the record does not end
        # where it says.
        length, position = read_varint(data, position + length)
        if length > 0:
            position += length
    return position


class _CutOff(ValueError):
    """Error raised if the data end inside a record."""


def _walk_record(data: Buffer, position: int) -> tuple[int, int, int, int]:
    """Check one record. Return (next position, timestamp delta, offset delta, key length)."""
    try:
        length, position = read_varint(data, position)
    except IndexError:
        # A varint of five bytes is too long, and not cut off.
        raise (_CutOff if len(data) - position < 5 else ValueError)("record length ends early") from None
    # Checked first, because all that follows is measured by it.
    end = position + length
    if length < 1:
        raise ValueError("record length is out of range")
    if end > len(data):
        raise _CutOff("record is longer than the area")
    position += 1  # the attributes, which are unused
    # Deltas and lengths mostly fit one byte; a call for each of them would double the time.
    if (byte := data[position]) < 128:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        timestamp_delta, position = read_varlong(data, position)
    if (byte := data[position]) < 128:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        offset_delta, position = read_varint(data, position)
    key_length, position = read_varint(data, position)
    if key_length > 0:
        position += key_length
    length, position = read_varint(data, position)
    if length > 0:
        position += length
    # Most records have no headers.
    if data[position] == 0:
        position += 1
    else:
        length, position = read_varint(data, position)
        position = _skip_headers(data, position, length)
    # Such a record would stop every consumer that reads it.
    if position != end:
        raise ValueError("record does not end where its length says")
    return end, timestamp_delta, offset_delta, key_length


def continue_walk_python(buffer: Buffer, start: int, end: int, count: int, walked: Walked) -> Walked:
    """Check further complete records in `buffer[start:end]`, after `walked`. Twin of continue_walk in _native.c."""
    index, _, minimum, maximum, offset_of_maximum, has_null_key, consecutive = walked
    if not 0 <= start <= end <= len(buffer) or not 0 <= index <= count:
        raise ValueError("no such area or count")
    data: Buffer = memoryview(buffer)[start:end]
    # Bytes are quicker to look at than a view, but no other thread runs while very many are copied.
    if len(data) <= COPIED_BYTES_MAX:
        data = bytes(data)
    position = 0
    while index < count:
        try:
            position, timestamp_delta, offset_delta, key_length = _walk_record(data, position)
        except _CutOff:
            break
        except (ValueError, IndexError):
            raise ValueError(f"record {index} is malformed") from None
        # Only a larger one: of equal times the first record counts.
        if index == 0 or timestamp_delta > maximum:
            maximum = timestamp_delta
            offset_of_maximum = offset_delta
        if index == 0 or timestamp_delta < minimum:
            minimum = timestamp_delta
        if key_length < 0:
            has_null_key = True
        if offset_delta != index:
            consecutive = False
        index += 1
    return index, start + position, minimum, maximum, offset_of_maximum, has_null_key, consecutive


continue_walk: Callable[[Buffer, int, int, int, Walked], Walked] = native("continue_walk", continue_walk_python)
IS_NATIVE = continue_walk is not continue_walk_python


def walk_records(buffer: Buffer, start: int, end: int, count: int) -> Found:
    """Check that `buffer[start:end]` is exactly `count` valid records. Return a summary, or raise ValueError."""
    if not 0 <= count <= 0x7FFFFFFF:
        raise ValueError("no such area or count")
    walked = continue_walk(buffer, start, end, count, NOTHING_WALKED)
    if walked[0] < count:
        raise ValueError(f"record {walked[0]} is malformed")
    # Kafka's reader complains of bytes behind the last record.
    if walked[1] != end:
        raise ValueError(f"bytes left after record {count - 1}")
    return walked[2:]
