"""Record batches (magic 2) by their headers: checksum, offset assignment, and the check of the records.

A batch is a header of 61 bytes and a records area, which the codec named in the attributes may have compressed:

    base_offset i64 @0 | batch_length i32 @8 (bytes after itself) | partition_leader_epoch i32 @12 | magic i8 @16 |
    crc u32 @17 | attributes i16 @21 | last_offset_delta i32 @23 | base_timestamp i64 @27 | max_timestamp i64 @35 |
    producer_id i64 @43 | producer_epoch i16 @51 | base_sequence i32 @53 | records_count i32 @57 | records @61

The checksum (CRC-32C) covers everything from the attributes on, so a leader puts its offsets and its epoch into a
received batch in place and leaves the checksum alone.

A broker touches batches, not records: it reads the header with one `unpack_from`, sums the bytes where they lie and
walks the records area once to see that it holds exactly the records the header promises (`check_records`). The walk
is `ottla.wire.record_walk`'s. Records become objects only for coordinators, compaction, conversion and tests
(`record_decoding.py`, `record_encoding.py`).

Message sets of magic 0 and 1 are the business of `ottla.wire.legacy_records`; `iter_batches` and `read_header` show
each of their messages as a batch of one, so that old segments can be walked like new ones.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_walk import Buffer, walk_records

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

_HEADER = struct.Struct(">qiibIhiqqqhii")
# Bound once: the hot path calls it for every batch.
unpack_header = _HEADER.unpack_from
_CRC = struct.Struct(">I")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LENGTH = struct.Struct(">i")


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """Header of a batch: the 61 bytes before the records, with the fields as encoded."""

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
        """Codec of the records; raises ValueError for the unassigned numbers 5 to 7."""
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
        """Time in ms after which compaction may drop the batch's tombstones and markers (KIP-534); None if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


_new_tuple = tuple.__new__  # past NamedTuple's keyword handling


def increment_sequence(sequence: int, increment: int) -> int:
    """Add `increment` to a sequence number. After 2147483647 comes 0."""
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
    """Return the size of the batch at `position`; 0 if incomplete. Raises CORRUPT_MESSAGE for an impossible size."""
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
    """Yield (header, start, end) of each complete batch. As in Kafka, an incomplete batch at the end is left out."""
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
    """Set a batch's base offset and leader epoch in place. Its checksum does not cover these."""
    _BASE_OFFSET.pack_into(buffer, start, base_offset)
    _LEADER_EPOCH.pack_into(buffer, start + 12, leader_epoch)


def assign_timestamps(buffer: WritableBuffer, start: int, end: int, attributes: int, max_timestamp: int) -> None:
    """Set a batch's attributes, maximum timestamp and checksum in place."""
    struct.pack_into(">h", buffer, start + ATTRIBUTES_OFFSET, attributes)
    _BASE_OFFSET.pack_into(buffer, start + MAX_TIMESTAMP_OFFSET, max_timestamp)
    # Last, over what was just written.
    _CRC.pack_into(buffer, start + CRC_OFFSET, crc32c(memoryview(buffer)[start + ATTRIBUTES_OFFSET : end]))


def corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


# --- the records ---------------------------------------------------------------------------------------------------------


class RecordsSummary(NamedTuple):
    """Summary of a batch's records, for its validation. Deltas are as stored, and may be out of range."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    max_timestamp_offset_delta: int  # of the first record with the maximum timestamp; -1 without records
    has_null_key: bool
    offsets_are_consecutive: bool  # 0, 1, 2 ... count - 1


def check_records(area: Buffer, count: int, start: int = 0, end: int | None = None) -> RecordsSummary:
    """Check that the uncompressed `area[start:end]` is exactly `count` valid records. Raises INVALID_RECORD.

    The rules are those of Kafka's DefaultRecord: lengths stay within the record, each record has the size that it
    states, and nothing follows the last record.
    """
    try:
        return _new_tuple(RecordsSummary, walk_records(area, start, len(area) if end is None else end, count))
    except ValueError as error:
        raise invalid(str(error)) from None


class Record(NamedTuple):
    """Record with absolute offset and timestamp. Header keys stay bytes, so that they are returned unchanged."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def wrap_int64(value: int) -> int:
    """Wrap a number to the range of Java's long: the sum of a client's base and delta may be outside."""
    return value if -(1 << 63) <= value < 1 << 63 else ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
