"""Decoding of a batch's records to objects, for coordinators, compaction, conversion and lookups by time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.compression import Compression
from ottla.wire.decompression import decompress, decompressed
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_walk import Buffer, RawHeaders, read_bytes, read_varint, read_varlong
from ottla.wire.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    MAGIC_V2,
    RECORDS_OFFSET,
    BatchHeader,
    Record,
    check_records,
    read_header,
    wrap_int64,
)

HEADERS_MAX = (1 << 31) - 1  # of one record, as Kafka counts them

_new_tuple = tuple.__new__  # past NamedTuple's keyword handling


def records_area(buffer: Buffer, header: BatchHeader, start: int = 0, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the records of the batch at `start`. Compressed ones are decompressed to at most `limit` bytes."""
    area = memoryview(buffer)[start + RECORDS_OFFSET : start + header.size_in_bytes]
    # An uncompressed area stays a view; nothing is copied.
    return decompress(_codec_of(header), area, limit) if header.attributes & COMPRESSION_MASK else area


@contextmanager
def lent_records_area(
    buffer: Buffer, header: BatchHeader, start: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[memoryview]:
    """Lend the records of a batch for a `with` block. Compressed ones are decompressed into scratch memory."""
    area = memoryview(buffer)[start + RECORDS_OFFSET : start + header.size_in_bytes]
    if header.attributes & COMPRESSION_MASK:
        with decompressed(_codec_of(header), area, limit) as lent:
            yield lent
    else:
        yield area


def _codec_of(header: BatchHeader) -> Compression:
    try:
        return header.compression
    except ValueError:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.attributes & COMPRESSION_MASK}"
        ) from None


def decode_records(
    batch_buffer: Buffer,
    start: int = 0,
    limit: int = DECOMPRESSED_BYTES_MAX,
    *,
    in_place: bool = False,
    header: BatchHeader | None = None,
    headers_max: int = HEADERS_MAX,
    raw_headers: bool = False,
) -> Iterator[Record]:
    """Check the batch at `start` and return its records.

    `in_place`: keys, values and headers of a very long batch are views. `header`: the batch's header, if already read.
    `headers_max` and `raw_headers` are passed to `iter_records`.
    """
    if header is None:
        header = read_header(batch_buffer, start)
    if header.magic != MAGIC_V2:
        from ottla.wire.legacy_records import decode_message

        return iter(decode_message(batch_buffer, start, limit, in_place=in_place))
    area = records_area(batch_buffer, header, start, limit)
    return decode_area(area, header, in_place=in_place, headers_max=headers_max, raw_headers=raw_headers)


def decode_area(
    area: Buffer,
    header: BatchHeader,
    *,
    in_place: bool = False,
    headers_max: int = HEADERS_MAX,
    raw_headers: bool = False,
) -> Iterator[Record]:
    """Check the records in an uncompressed area, and return them decoded."""
    # A batch of many megabytes is not copied in one step, which would keep other threads waiting.
    area = memoryview(area) if in_place and len(area) > COPIED_BYTES_MAX else bytes(area)
    if header.records_count == 0:  # compaction removed the records, and the header still matters
        return iter(())
    check_records(area, header.records_count)
    return iter_records(area, header, headers_max, raw_headers=raw_headers)


def first_record(
    batch: Buffer, timestamp: int, start_offset: int = 0, *, is_exact: bool = False
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or after `timestamp` and `start_offset`; None if none is.

    With `is_exact` the timestamp must be equal. The whole batch is checked, but most keys, values and headers are not
    read.
    """
    header = read_header(batch)
    if header.magic != MAGIC_V2:
        return _first_of(decode_records(batch), timestamp, start_offset, is_exact)
    area = walkable(records_area(batch, header))
    if header.records_count == 0:
        return None
    walked = check_records(area, header.records_count)
    earliest, latest = (
        header.base_timestamp + walked.min_timestamp_delta,
        header.base_timestamp + walked.max_timestamp_delta,
    )
    # Deltas say nothing with LogAppendTime, and comparing them fails where a sum leaves 64 bits.
    if header.is_log_append_time or wrap_int64(earliest) != earliest or wrap_int64(latest) != latest:
        return _first_of(iter_records(area, header), timestamp, start_offset, is_exact)
    if is_exact:
        # The walk has found where the largest timestamp is, so no record has to be read.
        if latest == timestamp:
            return timestamp, wrap_int64(header.base_offset + walked.max_timestamp_offset_delta)
        return _first_of(iter_records(area, header), timestamp, start_offset, is_exact)
    return _first_not_older(area, header, timestamp, start_offset) if latest >= timestamp else None


def _first_of(records: Iterator[Record], timestamp: int, start_offset: int, is_exact: bool) -> tuple[int, int] | None:
    for record in records:
        is_wanted = record.timestamp == timestamp if is_exact else record.timestamp >= timestamp
        if is_wanted and record.offset >= start_offset:
            return record.timestamp, record.offset
    return None


def _first_not_older(area: Buffer, header: BatchHeader, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    # Lengths and deltas mostly fit one byte or two; a call for each of them would take four times as long.
    # One subtraction here saves an addition for each record.
    wanted = timestamp - header.base_timestamp
    position = 0
    for _ in range(header.records_count):
        if (low := area[position]) < 128:
            length = low >> 1
            position += 1
        elif (high := area[position + 1]) < 128:
            length = (low & 127 | high << 7) >> 1
            position += 2
        else:
            length, position = read_varint(area, position)
        low = area[position + 1]
        delta = (low >> 1) ^ -(low & 1) if low < 128 else read_varlong(area, position + 1)[0]
        if delta >= wanted:
            offset_delta = read_varint(area, read_varlong(area, position + 1)[1])[0]
            offset = wrap_int64(header.base_offset + offset_delta)
            if offset >= start_offset:
                return header.base_timestamp + delta, offset
        position += length
    return None


def walkable(area: Buffer) -> Buffer:
    """Return the area as an object that is quick to read: bytes, or a view if the area is long."""
    if len(area) > COPIED_BYTES_MAX:
        return memoryview(area)
    return bytes(area) if isinstance(area, memoryview) else area


def iter_records(
    area: Buffer, header: BatchHeader, headers_max: int = HEADERS_MAX, *, raw_headers: bool = False
) -> Iterator[Record]:
    """Yield the records of an uncompressed area that `check_records` has accepted with this header.

    Keys and values are slices of the area; pass bytes to keep them. A header of two bytes becomes objects of eighty
    bytes: callers limit headers by `headers_max`, or take them as `RawHeaders` for `encode_batch`.
    """
    position = 0
    # With this flag all records have the time of the append, and the producer's deltas are void.
    log_append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for _ in range(header.records_count):
        begin = position
        # Nearly all of these numbers fit one byte. A call for each would double the time of a small record.
        # First the length and the attributes.
        position = position + 2 if area[position] < 128 else read_varint(area, position)[1] + 1
        if (byte := area[position]) < 128:
            timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            timestamp_delta, position = read_varlong(area, position)
        if (byte := area[position]) < 128:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            offset_delta, position = read_varint(area, position)
        if (byte := area[position]) < 128:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            length, position = read_varint(area, position)
        key = None if length < 0 else area[position : position + length]
        position += max(length, 0)
        if (byte := area[position]) < 128:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            length, position = read_varint(area, position)
        value = None if length < 0 else area[position : position + length]
        position += max(length, 0)
        headers: tuple[tuple[bytes, bytes | None], ...] | RawHeaders = ()
        # Most records have none.
        if area[position] == 0:
            position += 1
        elif raw_headers:
            length, end = read_varint(area, begin)
            end += length
            headers, position = RawHeaders(area[position:end]), end
        else:
            headers_count, position = read_varint(area, position)
            headers, position = _read_headers(area, position, min(headers_count, headers_max))
            if headers_count > headers_max:
                length, position = read_varint(area, begin)
                position += length
        timestamp = wrap_int64(base_timestamp + timestamp_delta) if log_append_time is None else log_append_time
        yield _new_tuple(Record, (wrap_int64(base_offset + offset_delta), timestamp, key, value, headers))


def _read_headers(area: Any, position: int, count: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    headers = []
    for _ in range(count):
        key, position = read_bytes(area, position)
        value, position = read_bytes(area, position)
        headers.append((key or b"", value))
    return tuple(headers), position
