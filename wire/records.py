"""Record batches (magic 2): header, checksum, offset assignment, the walk over the records, encoding and decoding.

A batch is a header of 61 bytes and a records area, which the codec named in the attributes may have compressed:

    base_offset i64 @0 | batch_length i32 @8 (bytes after itself) | partition_leader_epoch i32 @12 | magic i8 @16 |
    crc u32 @17 | attributes i16 @21 | last_offset_delta i32 @23 | base_timestamp i64 @27 | max_timestamp i64 @35 |
    producer_id i64 @43 | producer_epoch i16 @51 | base_sequence i32 @53 | records_count i32 @57 | records @61

The checksum (CRC-32C) covers everything from the attributes on, so a leader puts its offsets and its epoch into a
received batch in place and leaves the checksum alone.

A broker touches batches, not records: it reads the header with one `unpack_from`, sums the bytes where they lie and
walks the records area once to see that it holds exactly the records the header promises (`check_records`). The walk
is `ottla.wire.record_walk`'s. Records become objects only for coordinators, compaction, conversion and tests.

Message sets of magic 0 and 1 are the business of `ottla.wire.legacy_records`; `iter_batches` and `read_header` show
each of their messages as a batch of one, so that old segments can be walked like new ones.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compressing, Compression, compress
from ottla.wire.decompression import decompress, decompressed
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_walk import Buffer, RawHeaders, read_varint, read_varlong, walk_records

WritableBuffer = bytearray | memoryview

MAGIC_V2 = 2
LOG_OVERHEAD = 12  # base offset and length come before what the length counts
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35
RECORDS_OFFSET = 61
SMALLEST_BATCH_LENGTH = 14  # a magic 0 message without key and value

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

# Decompressed records beyond this are refused: it is what the largest request could have carried uncompressed.
DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024
HEADERS_MAX = (1 << 31) - 1  # of one record, as Kafka counts them

_HEADER = struct.Struct(">qiibIhiqqqhii")
# Bound once: the hot path calls it for every batch.
unpack_header = _HEADER.unpack_from
_CRC = struct.Struct(">I")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LENGTH = struct.Struct(">i")
_CHECKED_HEADER = struct.Struct(">hiqqqhii")  # the part of the header that the checksum covers
_UNCHECKED_HEADER = struct.Struct(">qiibI")


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as they stand in the buffer."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def compression(self) -> Compression:
        """ValueError for the codec numbers 5, 6 and 7, which mean nothing."""
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this compacted batch may go (KIP-534); then kept in place of the base time."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


_new_tuple = tuple.__new__  # past NamedTuple's keyword handling


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers run from 0 to 2147483647 and start again at 0."""
    return (sequence + increment) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    try:
        # A message of magic 0 or 1 may be shorter than this header, and then there is too little to unpack.
        fields = unpack_header(buffer, position)
    except struct.error:
        fields = ()
    if fields and fields[3] == MAGIC_V2:
        return _new_tuple(BatchHeader, fields)
    # Imported here: `legacy_records` needs this module, and most brokers never see an old message.
    from ottla.wire.legacy_records import read_message_as_header

    return read_message_as_header(buffer, position)


def batch_size(buffer: Buffer, position: int, end: int) -> int:
    """Bytes of the batch that starts at position; 0 if it is not wholly there. CORRUPT_MESSAGE for impossible ones."""
    if end - position < LOG_OVERHEAD:
        return 0
    length: int = _LENGTH.unpack_from(buffer, position + 8)[0]
    # Also a negative length, which would let a walk over batches stand still or go back.
    if length < SMALLEST_BATCH_LENGTH:
        raise corrupt(f"Record size {length} is less than the minimum record overhead ({SMALLEST_BATCH_LENGTH})")
    if end - position <= MAGIC_OFFSET:
        return 0
    # Before the rest is there: a wrong magic is an error, whereas a batch that is cut off is none.
    magic = buffer[position + MAGIC_OFFSET]
    if magic > MAGIC_V2:
        raise corrupt(f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}")
    return length + LOG_OVERHEAD if length + LOG_OVERHEAD <= end - position else 0


def iter_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[BatchHeader, int, int]]:
    """(header, start, end) of every whole batch; a cut-off batch at the end is left out, as Kafka leaves it out."""
    if end is None:
        end = len(buffer)
    while size := batch_size(buffer, start, end):
        # `batch_size` knows the smallest message of any magic; a header of this magic takes more.
        if buffer[start + MAGIC_OFFSET] == MAGIC_V2 and size < RECORDS_OFFSET:
            raise corrupt(f"Record batch of {size} bytes is smaller than its header")
        yield read_header(buffer, start), start, start + size
        start += size


def crc_is_valid(buffer: Buffer, start: int, end: int) -> bool:
    if buffer[start + MAGIC_OFFSET] != MAGIC_V2:
        from ottla.wire.legacy_records import message_crc_is_valid

        return message_crc_is_valid(buffer, start, end)
    stored: int = _CRC.unpack_from(buffer, start + CRC_OFFSET)[0]
    return stored == crc32c(memoryview(buffer)[start + ATTRIBUTES_OFFSET : end])


def assign_offsets(buffer: WritableBuffer, start: int, base_offset: int, leader_epoch: int) -> None:
    """The leader's part of a batch, in place; the checksum does not cover it."""
    _BASE_OFFSET.pack_into(buffer, start, base_offset)
    _LEADER_EPOCH.pack_into(buffer, start + 12, leader_epoch)


def assign_timestamps(buffer: WritableBuffer, start: int, end: int, attributes: int, max_timestamp: int) -> None:
    """New attributes and maximum timestamp, in place, with the checksum this needs."""
    struct.pack_into(">h", buffer, start + ATTRIBUTES_OFFSET, attributes)
    _BASE_OFFSET.pack_into(buffer, start + MAX_TIMESTAMP_OFFSET, max_timestamp)
    # Last, over what was just written.
    _CRC.pack_into(buffer, start + CRC_OFFSET, crc32c(memoryview(buffer)[start + ATTRIBUTES_OFFSET : end]))


def corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


# --- the walk ---------------------------------------------------------------------------------------------------------


class RecordsSummary(NamedTuple):
    """Summary of a batch's records for validation, made in one walk. Deltas are as stored, unchecked."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    max_timestamp_offset_delta: int  # of the first record with the maximum timestamp; -1 without records
    has_null_key: bool
    offsets_are_consecutive: bool  # 0, 1, 2 ... count - 1


def check_records(area: Buffer, count: int, start: int = 0, end: int | None = None) -> RecordsSummary:
    """Check that area[start:end], uncompressed, is exactly `count` good records; INVALID_RECORD where it is not.

    Good is what Kafka's DefaultRecord reads without complaint: every length inside the record, every record exactly as
    long as it says, nothing after the last.
    """
    try:
        return _new_tuple(RecordsSummary, walk_records(area, start, len(area) if end is None else end, count))
    except ValueError as error:
        raise invalid(str(error)) from None


# --- records as objects -----------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """One record, with absolute offset and timestamp. Header keys stay bytes: what a client sent goes back unchanged."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def records_area(buffer: Buffer, header: BatchHeader, start: int = 0, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the records of the batch at `start`, decompressed if need be, up to `limit` bytes."""
    area = memoryview(buffer)[start + RECORDS_OFFSET : start + header.size_in_bytes]
    # An uncompressed area stays a view; nothing is copied.
    return decompress(_codec_of(header), area, limit) if header.attributes & COMPRESSION_MASK else area


@contextmanager
def lent_records_area(
    buffer: Buffer, header: BatchHeader, start: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[memoryview]:
    """Lend the records of a batch for a `with` block, decompressed into scratch memory if need be."""
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
    """The records of the one batch at start. The whole batch is checked before the first record comes.

    With `in_place` keys, values and headers are views if the batch is very long. `header`: where that is read already.
    `headers_max`, `raw_headers`: see `iter_records`.
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
    """Decode the records of an uncompressed area."""
    # A batch of many megabytes is not copied in one step, which would keep other threads waiting.
    area = memoryview(area) if in_place and len(area) > COPIED_BYTES_MAX else bytes(area)
    if header.records_count == 0:  # compaction removed the records, and the header still matters
        return iter(())
    check_records(area, header.records_count)
    return iter_records(area, header, headers_max, raw_headers=raw_headers)


def first_record(
    batch: Buffer, timestamp: int, start_offset: int = 0, *, is_exact: bool = False
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record of a batch that is not before `timestamp` and `start_offset`.

    With `is_exact` its timestamp has to be `timestamp`. The whole batch is checked, but keys, values and headers are mostly
    not read.
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
        # The walk has told where the largest timestamp is, so no record has to be read.
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
    """The area in a form that is quick to walk. A view is copied unless it is long; slices of a long area are views."""
    if len(area) > COPIED_BYTES_MAX:
        return memoryview(area)
    return bytes(area) if isinstance(area, memoryview) else area


def iter_records(
    area: Buffer, header: BatchHeader, headers_max: int = HEADERS_MAX, *, raw_headers: bool = False
) -> Iterator[Record]:
    """The records of an uncompressed area that check_records has accepted for this header.

    Keys and values are slices of the area: whoever keeps them wants an area of bytes. A header of two bytes becomes objects of
    eighty, so whoever does not need all headers of a record says how many, or takes them as `RawHeaders` for `encode_batch`.
    """
    position = 0
    # With this flag all records have the time of the append, and the producer's deltas are void.
    log_append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for _ in range(header.records_count):
        begin = position
        # Nearly all of these numbers fit one byte. A call for each would double the time of a small record.
        position = (
            position + 2 if area[position] < 128 else read_varint(area, position)[1] + 1
        )  # length, and attributes
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


def wrap_int64(value: int) -> int:
    """Wrap to a Java long: a foreign base and delta may add up to more."""
    return value if -(1 << 63) <= value < 1 << 63 else ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


def _read_bytes(area: Any, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(area, position)
    if length < 0:
        return None, position
    return area[position : position + length], position + length


def _read_headers(area: Any, position: int, count: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    headers = []
    for _ in range(count):
        key, position = _read_bytes(area, position)
        value, position = _read_bytes(area, position)
        headers.append((key or b"", value))
    return tuple(headers), position


def encode_varint(value: int) -> bytes:
    """Zig-zag, for both widths."""
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
    """One batch of these records.

    They are numbered from base_offset on, whatever their own offsets say, unless keep_offsets is set (compaction, which
    also keeps the last_offset_delta of the batch it thins out). max_timestamp is the highest of the records unless
    given: with LOG_APPEND_TIME it is the time of the append.
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
    """One uncompressed batch of keys and values of the same time: what coordinators write, many times a second and mostly
    one by one. `encode_batch` makes the same of them, with a look at much that they do not have.
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
    """A batch of an uncompressed records area and a header, whose length, checksum and codec are made here."""
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
