"""Message sets of magic 0 and 1: what Kafka's clients wrote before 0.11, and both ways to and from batches.

A message is

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1 only) | key | value

with i32-length key and value, -1 meaning null, and zlib's CRC-32 over everything from the magic on. A message set is
messages one behind the other. A compressed set is one message, the wrapper, whose value is the compressed set:

* its offset is that of its last inner message. Inner offsets count from 0 in magic 1 (so the broker assigns offsets by
  writing the wrapper's alone) and are absolute in magic 0. A magic 1 wrapper offset of 0 stands for "count from 0": old
  versions of librdkafka produced such sets.
* its timestamp is the highest inner one or, with the log-append-time bit, the one that holds for all inner messages.

Neither magic knows headers, producers or transactions; down-conversion drops them, as Kafka did until 4.0.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.compression import Compressing, Compression
from ottla.wire.decompression import decompress
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_walk import Buffer
from ottla.wire.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    LOG_APPEND_TIME_FLAG,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    TimestampType,
    batch_size,
    corrupt,
    invalid,
    iter_batches,
    wrap_int64,
)

_ENTRY = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_FRONT = struct.Struct(">qiI")  # offset, size, crc
_NULL = _LENGTH.pack(-1)


class Message(NamedTuple):
    """Message of magic 0 or 1: a plain one, a wrapper, or one inside a wrapper. Offsets are absolute."""

    offset: int
    magic: int
    attributes: int
    timestamp: int  # -1 in magic 0
    key: bytes | None
    value: bytes | None
    crc_is_valid: bool

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME_FLAG != 0

    def as_record(self) -> Record:
        return Record(self.offset, self.timestamp, self.key, self.value)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_message_as_header(buffer: Buffer, position: int) -> BatchHeader:
    """Read a message's header as a `BatchHeader`. For a wrapper of compressed messages `records_count` is -1."""
    try:
        offset, size, crc, magic, attributes = _ENTRY.unpack_from(buffer, position)
        timestamp = _TIMESTAMP.unpack_from(buffer, position + _ENTRY.size)[0] if magic == 1 else NO_TIMESTAMP
    except struct.error:
        raise corrupt("Record is shorter than its header") from None
    if magic not in (0, 1):
        raise corrupt(f"Invalid magic found in record: {magic}")
    attributes &= COMPRESSION_MASK | (LOG_APPEND_TIME_FLAG if magic else 0)
    return BatchHeader(
        offset, size, NO_PARTITION_LEADER_EPOCH, magic, crc, attributes, 0, timestamp, timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, -1 if attributes & COMPRESSION_MASK else 1,
    )  # fmt: skip


def message_crc_is_valid(buffer: Buffer, start: int, end: int) -> bool:
    stored: int = _ENTRY.unpack_from(buffer, start)[2]
    return stored == zlib.crc32(memoryview(buffer)[start + MAGIC_OFFSET : end])


def read_message(buffer: Buffer, start: int, end: int, *, in_place: bool = False) -> Message:
    """Read the message in `buffer[start:end]`. With `in_place`, a very long key or value becomes a view."""
    try:
        offset, _, _, magic, attributes = _ENTRY.unpack_from(buffer, start)
        position = start + _ENTRY.size
        timestamp = NO_TIMESTAMP
        if magic == 1:
            timestamp = _TIMESTAMP.unpack_from(buffer, position)[0]
            position += _TIMESTAMP.size
        key, position = _read_bytes(buffer, position, end, in_place)
        value, _ = _read_bytes(buffer, position, end, in_place)
    except struct.error:
        raise invalid("Found invalid record structure") from None
    return Message(offset, magic, attributes, timestamp, key, value, message_crc_is_valid(buffer, start, end))


def _read_bytes(buffer: Buffer, position: int, end: int, in_place: bool) -> tuple[Any, int]:
    if position + _LENGTH.size > end:
        raise invalid("Found invalid record structure")
    length: int = _LENGTH.unpack_from(buffer, position)[0]
    position += _LENGTH.size
    if length < 0:
        return None, position
    if position + length > end:
        raise invalid("Found invalid record structure")
    found = memoryview(buffer)[position : position + length]
    return found if in_place and length > COPIED_BYTES_MAX else bytes(found), position + length


def read_inner_messages(
    buffer: Buffer, start: int, end: int, limit: int = DECOMPRESSED_BYTES_MAX, *, in_place: bool = False
) -> list[Message]:
    """Return the messages inside the wrapper at `start`, with absolute offsets; a plain message as it is."""
    outer = read_message(buffer, start, end, in_place=in_place)
    if not outer.codec:
        return [outer]
    messages = list(_unwrap(outer, limit, in_place))
    if not messages:
        raise invalid("Found invalid compressed record set with no inner records")
    if outer.magic == 1:
        messages = _with_absolute_offsets(outer, messages)
    if any(message.codec for message in messages):
        raise invalid("Inner messages must not be compressed")
    return messages


def _unwrap(outer: Message, limit: int, in_place: bool) -> Iterator[Message]:
    if outer.codec not in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
        raise invalid(f"Invalid compression type {outer.codec} found in magic {outer.magic} wrapper")
    if outer.value is None:
        raise invalid(f"Found invalid compressed record set with null value (magic = {outer.magic})")
    area = decompress(Compression(outer.codec), outer.value, limit, broken_lz4_checksum=outer.magic == 0)
    position = 0
    while size := _inner_size(area, position):
        message = read_message(area, position, position + size, in_place=in_place)
        if message.magic == 1 and outer.is_log_append_time:
            message = message._replace(timestamp=outer.timestamp, attributes=message.attributes | LOG_APPEND_TIME_FLAG)
        yield message
        position += size


def _inner_size(area: Buffer, position: int) -> int:
    size = batch_size(area, position, len(area))
    if size and area[position + MAGIC_OFFSET] == MAGIC_V2:
        raise invalid("Record of magic 2 inside a message set")
    return size


def _with_absolute_offsets(outer: Message, messages: list[Message]) -> list[Message]:
    last_inner_offset = messages[-1].offset
    if outer.offset == 0:
        base_offset = 0
    elif outer.offset < last_inner_offset:
        raise invalid(
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{outer.offset}' is less than "
            f"the last inner message offset '{last_inner_offset}' and it is not zero."
        )
    else:
        base_offset = outer.offset - last_inner_offset
    return [message._replace(offset=wrap_int64(base_offset + message.offset)) for message in messages]


def decode_message(
    buffer: Buffer, start: int, limit: int = DECOMPRESSED_BYTES_MAX, *, in_place: bool = False
) -> list[Record]:
    """Decode the records of the message at `start`, which may be a plain message or a wrapper."""
    size = batch_size(buffer, start, len(buffer))
    if not size:
        raise corrupt("Record is cut off")
    return [
        message.as_record() for message in read_inner_messages(buffer, start, start + size, limit, in_place=in_place)
    ]


# --- writing ----------------------------------------------------------------------------------------------------------


def _message(
    offset: int, magic: int, flags: int, timestamp: int, key: Buffer | None, value: Buffer | None
) -> list[Buffer]:
    """Encode a message in parts. Joining them would copy the value, which may be very long."""
    checked: list[Buffer] = [bytes((magic, flags)), _TIMESTAMP.pack(timestamp) if magic else b""]
    for field in (key, value):
        checked += (_NULL,) if field is None else (_LENGTH.pack(len(field)), field)
    crc = 0
    for part in checked:
        crc = zlib.crc32(part, crc)
    return [_FRONT.pack(offset, sum(map(len, checked)) + 4, crc), *checked]


def encode_message_set(
    records: Iterable[Record],
    magic: int,
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode records as a message set. The records keep their offsets; their headers are dropped."""
    wrapped = compression != Compression.NONE
    flags = LOG_APPEND_TIME_FLAG if magic and timestamp_type == TimestampType.LOG_APPEND_TIME else 0
    message_set = Compressing(compression, level, broken_lz4_checksum=magic == 0)
    first_offset: int | None = None
    last_offset, latest = 0, NO_TIMESTAMP
    for record in records:
        if first_offset is None:
            first_offset, latest = record.offset if wrapped and magic else 0, record.timestamp
        offset = wrap_int64(record.offset - first_offset)
        message_set.add(_message(offset, magic, flags, record.timestamp, record.key, record.value))
        last_offset, latest = record.offset, max(latest, record.timestamp)
    if first_offset is None:
        return b""
    if compression == Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Message sets cannot be compressed with zstd")
    value = message_set.finish()
    return b"".join(_message(last_offset, magic, flags | compression, latest, None, value)) if wrapped else bytes(value)


# --- conversion -------------------------------------------------------------------------------------------------------


def down_convert(batches: Buffer, magic: int, *, first_offset: int = 0, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Convert batches to a message set of `magic` 0 or 1, for clients that know no newer format (Fetch v0-3).

    Control batches are left out, and so are records below `first_offset` in uncompressed batches: old clients expect to
    get the offset that they fetch first. A zstd batch ends the set; as the first batch it raises
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    return b"".join(_down_converted(batches, magic, first_offset, limit))


def _down_converted(batches: Buffer, magic: int, first_offset: int, limit: int) -> Iterator[bytes]:
    is_first = True
    for header, start, end in iter_batches(batches):
        if header.is_control:
            continue
        if header.magic <= magic:
            yield bytes(batches[start:end])
            is_first = False
            continue
        if header.attributes & COMPRESSION_MASK == Compression.ZSTD:
            if not is_first:
                return
            message = "Down-conversion of zstandard-compressed batches is not supported"
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
        records = decode_records(batches, start, limit, in_place=True, headers_max=0)  # which old messages have not
        is_first = False
        yield encode_message_set(
            (record for record in records if header.is_compressed or record.offset >= first_offset),
            magic,
            compression=header.compression,
            timestamp_type=TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME,
        )
