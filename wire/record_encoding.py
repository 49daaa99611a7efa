"""Encoding of record batches: from records (`encode_batch`), coordinators' pairs (`encode_pairs`), or an encoded area."""

import struct
from collections.abc import Iterable

from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compressing, Compression, compress
from ottla.wire.record_walk import Buffer, RawHeaders
from ottla.wire.records import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    TimestampType,
    wrap_int64,
)

_CHECKED_HEADER = struct.Struct(">hiqqqhii")  # the part of the header that the checksum covers
_UNCHECKED_HEADER = struct.Struct(">qiibI")


def encode_varint(value: int) -> bytes:
    """Encode a zig-zag varint or varlong."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    # Most lengths and deltas are short, so their encodings are made once.
    if raw < 128:
        return _SHORT[raw]
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


_SHORT = [bytes((value,)) for value in range(128)]
_NULL = b"\x01"  # a length of -1


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
) -> bytes:
    return b"".join(_record_parts(offset_delta, timestamp_delta, key, value, headers))


def _record_parts(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[bytes, bytes | None]] | RawHeaders,
) -> list[Buffer]:
    parts: list[Buffer] = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    parts += (_NULL,) if key is None else (encode_varint(len(key)), key)
    parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    if isinstance(headers, RawHeaders):
        parts.append(headers.encoded)
        return [encode_varint(sum(map(len, parts))), *parts]
    headers = tuple(headers)
    parts.append(encode_varint(len(headers)))
    for header_key, header_value in headers:
        parts += (encode_varint(len(header_key)), header_key)
        parts += (_NULL,) if header_value is None else (encode_varint(len(header_value)), header_value)
    return [encode_varint(sum(map(len, parts))), *parts]


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encode records as one batch.

    Records get offsets from `base_offset` on. With `keep_offsets` they keep their own; compaction uses that, with the
    original batch's `last_offset_delta`. `max_timestamp` defaults to the records' highest; with LOG_APPEND_TIME it is
    the time of the append.
    """
    # The horizon has no field of its own in the header. Readers see the flag, and deltas count from here like from any base.
    base_timestamp = NO_TIMESTAMP if delete_horizon_ms is None else delete_horizon_ms
    # Compressed while it is put together, so that a large batch does not exist twice. The records may come one by one.
    area = Compressing(compression, compression_level)
    latest, offset_delta, count = NO_TIMESTAMP, -1, 0
    for index, record in enumerate(records):
        timestamp = record.timestamp
        if index == 0:
            base_timestamp = timestamp if delete_horizon_ms is None else base_timestamp
            latest = timestamp
        offset_delta = record.offset - base_offset if keep_offsets else index
        # As in a Java long; a reader's sum wraps back to the same time.
        timestamp_delta = wrap_int64(timestamp - base_timestamp)
        area.add(_record_parts(offset_delta, timestamp_delta, record.key, record.value, record.headers))
        latest = max(latest, timestamp)
        count = index + 1
    if max_timestamp is None:
        max_timestamp = latest
    if last_offset_delta is None:
        last_offset_delta = offset_delta
    attributes = (
        (LOG_APPEND_TIME_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC_V2, 0, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    return _assembled(area.finish(), header, compression)


def encode_pairs(pairs: Iterable[tuple[bytes, bytes | None]], timestamp_ms: int) -> bytes:
    """Encode keys and values as an uncompressed batch with one timestamp.

    Coordinators write such batches. `encode_batch` gives the same bytes, but also handles headers and other features.
    """
    parts: list[bytes] = []
    count = 0
    for key, value in pairs:
        size_and_value = (_NULL,) if value is None else (encode_varint(len(value)), value)
        # Attributes and the time's delta are 0, and there are no headers.
        body = b"".join((b"\0\0", encode_varint(count), encode_varint(len(key)), key, *size_and_value, b"\0"))
        parts += (encode_varint(len(body)), body)
        count += 1
    assert count, "a batch has records"
    header = BatchHeader(
        0, 0, NO_PARTITION_LEADER_EPOCH, MAGIC_V2, 0, 0, count - 1, timestamp_ms, timestamp_ms,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip
    return _assembled(b"".join(parts), header, Compression.NONE)


def build_batch(area: Buffer, header: BatchHeader, codec: Compression, level: int | None = None) -> bytes:
    """Build a batch from an uncompressed records area, which is compressed by `codec`, and from the fields of `header`.

    Length, checksum and codec in the header are set anew.
    """
    return _assembled(area if codec == Compression.NONE else compress(codec, area, level), header, codec)


def _assembled(area: Buffer, header: BatchHeader, codec: Compression) -> bytes:
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    checked = _CHECKED_HEADER.pack(attributes, *header[6:])
    front = _UNCHECKED_HEADER.pack(
        header.base_offset,
        RECORDS_OFFSET - LOG_OVERHEAD + len(area),
        header.partition_leader_epoch,
        MAGIC_V2,
        # In two steps, so that header and records need not be joined for it.
        crc32c(area, crc32c(checked)),
    )
    return b"".join((front, checked, area))
