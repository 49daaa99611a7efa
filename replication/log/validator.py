"""What a leader checks before it appends: the record part of Kafka's UnifiedLog.append, and its LogValidator.

In Kafka's order, with Kafka's codes (each was asked of a real broker):

1. The request (`check_produce_request_records`): exactly one batch of magic 2 from Produce v3 on, zstd only from v7 on.
2. The batch: base offset 0, no larger than max.message.bytes, a valid checksum, a known codec; offset range and count
   agree; no control batch and no producer id without sequence from a client.
3. Its records, decompressed within a limit: exactly as many as the header says and not a byte more, and in a compressed
   batch none larger than max.decompressed.message.bytes, else INVALID_RECORD.
4. Each record: a key where the topic is compacted, a timestamp in range. These are the only refusals that say which
   records they mean (`InvalidRecords`); one bad record refuses the batch.
5. What the topic wants changed: the maximum timestamp and its type are corrected in place, another codec means a new
   batch, which must fit max.message.bytes as well.

The records of a compressed batch that stays as it is are walked while they are decompressed; whatever that finds is decompressed
as a whole, to say what it is. All of this is `check_produced`. It may take long, needs no lock and knows no offsets: it can run in a
thread where `is_expensive` says so. `ordinary_batches.py` and `ordinary_compressed.py` have shorter ways for nearly all batches.
`CheckedRecords.assign` then gives offsets and a leader epoch, in a microsecond, to the buffer that the client sent or to the one
made from it.

Where Kafka has accidents, clients see the same codes: a codec that fails or does not exist, and compressed records with
offset deltas other than 0..n-1 are UNKNOWN_SERVER_ERROR; uncompressed ones with such deltas are accepted as they are.
Where Kafka is careless, this is not: a record in a compressed batch must be as long as it says, although Kafka skips
over most lengths there, because such a batch would stop every consumer that reads it; and what decompresses to more than the
limit is refused.

Message sets of magic 0 and 1 (Produce v0-2) become one batch with the codec the topic wants.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.record_errors import RecordErrors
from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression
from ottla.wire.decompression import TooLargeDecompressed, decompressed_bound, told_gzip_size, unstored_gzip_bytes
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_walk import IS_NATIVE, Buffer, read_varint, read_varlong
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    RecordsSummary,
    TimestampType,
    assign_timestamps,
    batch_size,
    build_batch,
    check_records,
    corrupt,
    crc_is_valid,
    encode_batch,
    invalid,
    iter_batches,
    iter_records,
    lent_records_area,
    read_header,
    walkable,
)

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
FAR = 1 << 62  # beyond this, sums of timestamps and times may leave 64 bits

# What may be done on the event loop: some milliseconds' worth.
_INLINE_DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024
# A record may have a header in each two of its bytes, over which Python walks a hundred times slower than C.
_INLINE_WALKED_BYTES_MAX = _INLINE_DECOMPRESSED_BYTES_MAX if IS_NATIVE else 64 * 1024
_INLINE_GZIP_BYTES_MAX = min(1024 * 1024, _INLINE_WALKED_BYTES_MAX)
# Gzip takes 4 ms for each MiB of input, whatever becomes of it, and lets others run meanwhile. A thread costs 0.1 ms. Where all
# blocks are empty it is 80 ms by libdeflate, and 500 ms piece by piece.
_INLINE_GZIP_INPUT_BYTES_MAX = 96 * 1024
_INLINE_GZIP_PIECES_BYTES_MAX = 16 * 1024
SAVED_BY_COUNTING_ANEW = (
    17  # bytes of a record at most: its length, timestamp and offset may have taken more than they need
)
_INLINE_RECOMPRESSED_BYTES_MAX = 32 * 1024
_INLINE_MESSAGE_SET_BYTES_MAX = 32 * 1024
INLINE_BYTES_MAX = 16 * 1024 * 1024 if IS_NATIVE else _INLINE_WALKED_BYTES_MAX
ONE_BY_ONE_INLINE_MAX = 1_000
INLINE_RECORDS_MAX = 20_000 if IS_NATIVE else 3_000

_COUNT = struct.Struct(">i")
_FRONT = struct.Struct(">qii")  # base offset, length, leader epoch
# All but the timestamp type, which the topic decides, and the bits that mean nothing.
_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_new_tuple = tuple.__new__


class AppendOrigin(Enum):
    """Who appends, which decides how far the batch is trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class TooManyForTheLoop(Exception):
    """So many records have to be looked at one by one that a thread has to do it; nothing has happened yet."""


class ValidationRules(NamedTuple):
    """What a topic's configuration asks of produced batches."""

    max_message_bytes: int = 1_048_588
    compacted: bool = False
    compression: Compression | None = None  # None: as the producer chose
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    origin: AppendOrigin = AppendOrigin.CLIENT
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    record_bytes_max: int = INT_MAX - 8  # of a compressed batch

    @classmethod
    @lru_cache(maxsize=256)
    def from_config(cls, config: LogConfig, origin: AppendOrigin = AppendOrigin.CLIENT) -> ValidationRules:
        """One object for all the logs that share a configuration."""
        name = config.compression_type
        codec = {"producer": None, "uncompressed": Compression.NONE}.get(
            name, Compression.__members__.get(name.upper())
        )
        levels = {
            Compression.GZIP: config.compression_gzip_level,
            Compression.LZ4: config.compression_lz4_level,
            Compression.ZSTD: config.compression_zstd_level,
        }
        is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        return cls(
            max_message_bytes=config.max_message_bytes,
            compacted="compact" in config.cleanup_policy,
            compression=codec,
            compression_level=None if codec is None else levels.get(codec),
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            origin=origin,
            # A topic with larger messages may expand further. Ten times is still a bound.
            decompressed_bytes_max=max(DECOMPRESSED_BYTES_MAX, 10 * config.max_message_bytes),
            record_bytes_max=config.max_decompressed_message_bytes,
        )


class ValidatedBatches(NamedTuple):
    """Ready to be written: buffer holds exactly the batches, whose headers are as they stand in it."""

    buffer: memoryview | bytes | bytearray
    batches: list[BatchHeader]
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int  # the batch's last offset, as Kafka's time index has it
    log_append_time_ms: int  # -1 unless the topic's timestamps are of that type


class CheckedRecords(NamedTuple):
    """One good batch that still needs its offsets."""

    buffer: memoryview | bytearray
    header: BatchHeader
    max_timestamp: int
    log_append_time_ms: int

    def assign(self, next_offset: int, leader_epoch: int) -> ValidatedBatches:
        buffer, header, max_timestamp, log_append_time_ms = self
        _FRONT.pack_into(buffer, 0, next_offset, header[1], leader_epoch)  # none of it under the checksum
        # Put together by hand: `_replace` would cost every batch more.
        header = _new_tuple(BatchHeader, (next_offset, header[1], leader_epoch) + header[3:])
        last_offset = next_offset + header[6]
        return _new_tuple(
            ValidatedBatches,
            (buffer, [header], next_offset, last_offset, max_timestamp, last_offset, log_append_time_ms),
        )

    def take_back(self) -> None:
        """After `assign`: the batch is not appended, and stands in its buffer as it came."""
        _FRONT.pack_into(self.buffer, 0, *self.header[:3])


def check_produce_request_records(records: Buffer | None, api_version: int) -> None:
    """What a Produce request of this version may hold per partition, before its partition is asked."""
    # Older requests carry message sets, of which there may be many.
    if api_version < 3:
        return
    size = batch_size(records, 0, len(records)) if records is not None else 0
    if records is None or not size:
        raise invalid(f"Produce requests with version {api_version} must have at least one record batch per partition")
    if records[MAGIC_OFFSET] != MAGIC_V2:
        raise invalid(
            f"Produce requests with version {api_version} are only allowed to contain record batches with magic version 2"
        )
    # zstd came with v7 (KIP-110). Kafka refuses it in older requests.
    if api_version < 7 and records[22] & 7 == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {api_version} are not allowed to use ZStandard compression",
        )
    if size != len(records) and batch_size(records, size, len(records)):
        raise invalid(
            f"Produce requests with version {api_version} are only allowed to contain exactly one record batch per partition"
        )


def is_expensive(records: Buffer, rules: ValidationRules | None = None) -> bool:
    """Whether to check these records in a thread, because the event loop would feel it. Never raises."""
    size = len(records)
    # Refused at once in any case, and too short for the reads below.
    if size < RECORDS_OFFSET:
        return False
    # Message sets are taken apart into single messages in Python, and a wrapper hides how many there are.
    if records[MAGIC_OFFSET] != MAGIC_V2:
        return size > _INLINE_MESSAGE_SET_BYTES_MAX or records[17] & 7 != 0
    codec = records[22] & 7
    target = None if rules is None else rules.compression
    if codec == Compression.GZIP and target in (None, codec):
        area = memoryview(records)[RECORDS_OFFSET:]
        if is_long_gzip(area):
            return True
        bound = told_gzip_size(area)
    elif codec:
        bound = decompressed_bound(Compression(codec), memoryview(records)[RECORDS_OFFSET:]) if codec <= 4 else 0
        if bound > _INLINE_DECOMPRESSED_BYTES_MAX:
            return True
    else:
        bound = size
        if size > INLINE_BYTES_MAX:
            return True
    # To compress takes far longer than to check, so much less of it is done at once.
    if target and target != codec:
        return bound > _INLINE_RECOMPRESSED_BYTES_MAX
    # The count is the client's word, and that is enough: a batch with another count is refused when the walk ends.
    return int(_COUNT.unpack_from(records, 57)[0]) > INLINE_RECORDS_MAX


def is_long_gzip(area: memoryview) -> bool:
    """A guess by what the data say of themselves: `check_produced` gives up at once if it is wrong."""
    # Stored data are hardly longer than what they become, or else they are mostly empty blocks, which take time as well.
    if told_gzip_size(area) > _INLINE_GZIP_BYTES_MAX or len(area) > _INLINE_GZIP_BYTES_MAX * 9 // 8:
        return True
    return len(area) > _INLINE_GZIP_INPUT_BYTES_MAX and unstored_gzip_bytes(area) > _INLINE_GZIP_INPUT_BYTES_MAX


def check_produced(
    records: memoryview, rules: ValidationRules, *, now_ms: int, topic_partition: str = "", at_once: bool = False
) -> CheckedRecords:
    """Everything but the offsets. A writable buffer is changed in place; a read-only one is copied.

    `TooManyForTheLoop` if it should be done `at_once`, and very many records have to be looked at one by one.
    """
    size = batch_size(records, 0, len(records))
    if not size:
        raise invalid("Record batch has no batches at all")
    if records[MAGIC_OFFSET] != MAGIC_V2:
        return _check_message_set(records, rules, now_ms, topic_partition)
    # The order of the steps below is Kafka's. It decides which error a client sees for a batch with several faults.
    header = _check_batch(records, size, rules)
    source = header.attributes & COMPRESSION_MASK
    if source:
        max_timestamp = _checked_while_decompressed(records, size, header, rules, now_ms, at_once)
        if max_timestamp is not None:
            return _in_place(records, size, header, rules, now_ms if rules.timestamp_type else max_timestamp)
    with lent_records_area(records[:size], header, 0, rules.decompressed_bytes_max) as area:
        return _check_area(area, records, size, header, rules, now_ms, topic_partition, at_once)


def _checked_while_decompressed(
    records: memoryview, size: int, header: BatchHeader, rules: ValidationRules, now_ms: int, at_once: bool
) -> int | None:
    """The highest timestamp of a compressed batch that can be appended as it is.

    None wherever something is wrong, or to be changed: `_check_area` says what. What may be short is given up `at_once` if it
    is not.
    """
    codec, area = Compression(header.attributes & COMPRESSION_MASK), records[RECORDS_OFFSET:size]
    limit = rules.decompressed_bytes_max
    inline_bytes_max = _INLINE_GZIP_BYTES_MAX if codec is Compression.GZIP else _INLINE_WALKED_BYTES_MAX
    # Good gzip needs no pieces where libdeflate is installed.
    is_long_in_pieces = codec is Compression.GZIP and len(area) > _INLINE_GZIP_PIECES_BYTES_MAX
    is_guess = (
        at_once
        and inline_bytes_max < _INLINE_DECOMPRESSED_BYTES_MAX  # `is_expensive` knows the others
        and rules.origin is AppendOrigin.CLIENT
        and (is_long_in_pieces or min(limit, decompressed_bound(codec, area)) > inline_bytes_max)
    )
    summary = None
    if rules.compression in (None, codec) and rules.record_bytes_max >= limit:
        try:
            walked_bytes_max = min(inline_bytes_max, limit) if is_guess else limit
            in_pieces = not (is_guess and is_long_in_pieces)
            walked = walk_compressed(codec, area, walked_bytes_max, header.records_count, in_pieces=in_pieces)
        except TooLargeDecompressed:
            if is_guess:
                raise TooManyForTheLoop from None
            raise
        summary = None if walked is None else _new_tuple(RecordsSummary, walked)
    if summary is not None and summary.offsets_are_consecutive:
        return _highest_timestamp(header, summary, rules, now_ms)
    # Nobody knows how long it is.
    if is_guess:
        raise TooManyForTheLoop
    return None


def _check_area(
    area: Buffer,
    records: memoryview,
    size: int,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    topic_partition: str,
    at_once: bool,
) -> CheckedRecords:
    # Step 1: the records are whole and as many as the header says.
    summary = check_records(area, header.records_count)
    source = header.attributes & COMPRESSION_MASK
    if source:
        _check_record_sizes(area, rules)
    # Control records keep their form: whoever reads them must not need a codec.
    target = source if rules.compression is None or header.attributes & CONTROL_FLAG else rules.compression
    stays = source == target
    # Step 2: keys and timestamps. The walk knows the smallest and the largest time and whether a key is missing, so
    # single records are looked at only if something is wrong, or may be.
    max_timestamp = _highest_timestamp(header, summary, rules, now_ms)
    if max_timestamp is None:
        # Produce hands such a batch to a thread. Coordinators append at once, and never hear of this.
        if at_once and rules.origin is AppendOrigin.CLIENT and header.records_count > ONE_BY_ONE_INLINE_MAX:
            raise TooManyForTheLoop
        max_timestamp = _check_each_record(area, header, rules, now_ms, topic_partition, bool(source) and stays)
    # Step 3: what the topic wants changed. LogAppendTime replaces the producer's times by the time of the append.
    if rules.timestamp_type:
        max_timestamp = now_ms
    if not stays:
        rebuilt = _rebuilt(area, header, summary, rules, Compression(target), max_timestamp)
        return _checked(rebuilt, rules, max_timestamp)
    # Kafka refuses this only where the batch keeps its codec; one that is built anew is numbered anew.
    if source and not summary.offsets_are_consecutive:
        raise _unexpected("Offsets of compressed records do not count from 0")
    return _in_place(records, size, header, rules, max_timestamp)


def _unexpected(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


# --- the batch --------------------------------------------------------------------------------------------------------


def _check_batch(records: memoryview, size: int, rules: ValidationRules) -> BatchHeader:
    is_client = rules.origin is AppendOrigin.CLIENT
    if size < RECORDS_OFFSET:
        raise corrupt(f"Record batch is corrupt (the size {size} is smaller than the overhead {RECORDS_OFFSET})")
    header = read_header(records)
    if is_client and header.base_offset != 0:
        raise invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    _check_size(size, rules)
    # Only after the size: summing up an oversized batch would be work for nothing.
    if crc32c(records[ATTRIBUTES_OFFSET:size]) != header.crc:
        raise corrupt(f"Record is corrupt (stored crc = {header.crc})")
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise _unexpected(f"Unknown compression type id: {header.attributes & COMPRESSION_MASK}")
    if size != len(records) and batch_size(records, size, len(records)):
        raise invalid("There is more than one batch")
    # Coordinators may write control batches, which clients may not.
    if is_client:
        _check_client_batch(header)
    return header


def _check_client_batch(header: BatchHeader) -> None:
    count = header.records_count
    if header.last_offset_delta < 0:
        raise invalid(f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]")
    if count <= 0:
        raise invalid(f"Invalid reported count for record batch: {count}")
    # The log takes the next offset from the delta, and consumers count on it.
    if header.last_offset_delta + 1 != count:
        raise invalid(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records {count}"
        )
    if header.attributes & CONTROL_FLAG:
        raise invalid("Clients are not allowed to write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        )


def _check_size(size: int, rules: ValidationRules) -> None:
    if size > rules.max_message_bytes:
        limit = f"the maximum configured value of {rules.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes exceeds {limit}")


# --- its records ------------------------------------------------------------------------------------------------------


def _check_record_sizes(area: Buffer, rules: ValidationRules) -> None:
    """Of good records."""
    limit, position = rules.record_bytes_max, 0
    # Nearly never: by default the limit is beyond what is decompressed at all.
    while position + limit < len(area):
        length, position = read_varint(area, position)
        if length > limit:
            raise invalid(f"A record of {length} bytes exceeds the maximum of {limit}")
        position += length


def _highest_timestamp(header: BatchHeader, summary: RecordsSummary, rules: ValidationRules, now_ms: int) -> int | None:
    """The highest timestamp if the summary alone tells that all is well, else None: each record has to be looked at."""
    is_log_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    if is_log_append_time:
        # With this flag the header's time is that of all records, whatever their deltas say.
        lowest = highest = header.max_timestamp
    else:
        lowest = header.base_timestamp + summary.min_timestamp_delta
        highest = header.base_timestamp + summary.max_timestamp_delta
    if rules.timestamp_type:
        is_suspicious = is_log_append_time != 0
    else:
        is_suspicious = (
            # FAR keeps Python's unbounded numbers from differing with Java's, which wrap: near the ends each record is
            # looked at.
            lowest < max(now_ms - rules.timestamp_before_max_ms, -FAR)
            or highest > min(now_ms + rules.timestamp_after_max_ms, FAR)
            or (is_log_append_time != 0 and highest == NO_TIMESTAMP)
        )
    if not is_suspicious and not (rules.compacted and summary.has_null_key):
        # A producer may send times below -1, which mean no time either.
        return max(highest, NO_TIMESTAMP)
    return None


def _check_each_record(
    area: Buffer,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    topic_partition: str,
    is_partial: bool,
) -> int:
    """Keys and timestamps; returns the highest timestamp."""
    is_log_append_time = header.is_log_append_time
    errors = RecordErrors(rules, now_ms, topic_partition)
    highest = NO_TIMESTAMP
    # All records are looked at even after an error, because the answer names each of them.
    # Without their headers, of which a record of a few compressed bytes may have millions.
    for index, record in enumerate(iter_records(walkable(area), header, headers_max=0)):
        errors.check(index, record, is_log_append_time, is_partial)
        highest = max(highest, record.timestamp)
    errors.raise_if_any()
    return highest


# --- what the topic wants changed -------------------------------------------------------------------------------------


def _in_place(
    records: memoryview, size: int, header: BatchHeader, rules: ValidationRules, max_timestamp: int
) -> CheckedRecords:
    buffer: memoryview | bytearray = records
    # The offsets are written into the buffer, and this one does not allow that.
    if records.readonly:
        buffer = bytearray(records[:size])
    # What is cut off behind the batch must not get into the log.
    elif size != len(records):
        buffer = records[:size]
    flag = LOG_APPEND_TIME_FLAG if rules.timestamp_type else 0
    # Most batches are right as they are. A change costs another checksum over the whole batch.
    if header.attributes & LOG_APPEND_TIME_FLAG != flag or header.max_timestamp != max_timestamp:
        assign_timestamps(buffer, 0, size, header.attributes & _KEPT_ATTRIBUTES | flag, max_timestamp)
        header = read_header(buffer)
    return _new_tuple(CheckedRecords, (buffer, header, max_timestamp, max_timestamp if flag else NO_TIMESTAMP))


def _rebuilt(
    area: Buffer,
    header: BatchHeader,
    summary: RecordsSummary,
    rules: ValidationRules,
    codec: Compression,
    max_timestamp: int,
) -> bytes:
    """The batch with another codec. Its records keep their bytes, unless their offsets or timestamps are wrong."""
    _check_producer(header)
    is_log_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    _check_buildable_timestamps(area, header, summary)
    # Refused before it is built: the batch would take as much memory again as its records.
    if codec == Compression.NONE:
        _check_size(RECORDS_OFFSET + len(area) - SAVED_BY_COUNTING_ANEW * header.records_count, rules)
    attributes = header.attributes & TRANSACTIONAL_FLAG | (LOG_APPEND_TIME_FLAG if rules.timestamp_type else 0)
    # Offsets and times count as those of a new batch do, so none of the records has to become an object.
    if summary.offsets_are_consecutive and not is_log_append_time and not _first_timestamp_delta(area):
        header = header._replace(base_offset=0, attributes=attributes, max_timestamp=max_timestamp)
        return build_batch(area, header, codec, rules.compression_level)
    return encode_batch(
        iter_records(walkable(area), header, raw_headers=True),
        compression=codec,
        compression_level=rules.compression_level,
        timestamp_type=rules.timestamp_type,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )


def _check_buildable_timestamps(area: Buffer, header: BatchHeader, summary: RecordsSummary) -> None:
    base = header.base_timestamp
    if header.attributes & LOG_APPEND_TIME_FLAG:
        is_good = header.max_timestamp >= NO_TIMESTAMP
    elif base + summary.min_timestamp_delta >= NO_TIMESTAMP and base + summary.max_timestamp_delta <= LONG_MAX:
        return
    else:
        # Only where a sum leaves 64 bits: as in Java it wraps, and may be good again.
        records = iter_records(walkable(area), header, headers_max=0)
        is_good = all(record.timestamp >= NO_TIMESTAMP for record in records)
    if not is_good:
        raise _unexpected("Invalid negative timestamp")


def _first_timestamp_delta(area: Buffer) -> int:
    """Not 0 where a client did not count from its first record, as a batch that is built anew does."""
    _, position = read_varint(area, 0)
    return read_varlong(area, position + 1)[0]


def _check_producer(header: BatchHeader) -> None:
    """What Kafka's builder, and only it, insists on."""
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise _unexpected("Cannot write transactional messages without a valid producer ID")
    elif header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0:
        raise _unexpected("Invalid negative producer epoch or sequence number")


def _checked(batch: bytes, rules: ValidationRules, max_timestamp: int) -> CheckedRecords:
    _check_size(len(batch), rules)
    return CheckedRecords(
        bytearray(batch), read_header(batch), max_timestamp, max_timestamp if rules.timestamp_type else NO_TIMESTAMP
    )


# --- message sets -----------------------------------------------------------------------------------------------------


def _check_message_set(
    records: memoryview, rules: ValidationRules, now_ms: int, topic_partition: str
) -> CheckedRecords:
    """The same for magic 0 and 1: one batch of all the messages."""
    found = list(iter_batches(records))
    # First what Kafka checks of all entries, then the messages in them.
    source = 0
    for header, start, end in found:
        _check_size(end - start, rules)
        if not crc_is_valid(records, start, end):
            raise corrupt(f"Record is corrupt (stored crc = {header.crc})")
        codec = header.attributes & COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise _unexpected(f"Unknown compression type id: {codec}")
        _check_key_and_value(records, start, end)
        source = codec or source
    if source and len(found) > 1:
        raise invalid("Compressed outer record has more than one batch")

    accepted: list[Record] = []
    for header, start, end in found:
        if header.magic != found[0][0].magic:
            raise invalid(f"Batch magic {header.magic} is not the same as the first batch's magic byte")
        accepted += _check_messages(records, header, start, end, RecordErrors(rules, now_ms, topic_partition), rules)
    if any(record.timestamp < NO_TIMESTAMP for record in accepted):
        raise _unexpected("Invalid negative timestamp")
    max_timestamp = now_ms if rules.timestamp_type else max(record.timestamp for record in accepted)
    codec = Compression(source) if rules.compression is None else rules.compression
    # A lower bound of the size, before anything is built.
    if codec == Compression.NONE:
        _check_size(sum([len(each.key or b"") + len(each.value or b"") for each in accepted]), rules)
    batch = encode_batch(
        accepted,
        compression=codec,
        compression_level=rules.compression_level,
        timestamp_type=rules.timestamp_type,
        max_timestamp=max_timestamp,
    )
    return _checked(batch, rules, max_timestamp)


def _check_key_and_value(records: memoryview, start: int, end: int) -> None:
    from ottla.wire.legacy_records import read_message

    try:
        read_message(records, start, end, in_place=True)
    except KafkaError as error:
        raise _unexpected("Found invalid record structure") from error


def _check_messages(
    records: memoryview,
    header: BatchHeader,
    start: int,
    end: int,
    errors: RecordErrors,
    rules: ValidationRules,
) -> list[Record]:
    """The messages of one entry; those of a wrapper have checksums of their own."""
    from ottla.wire.legacy_records import read_inner_messages

    messages = read_inner_messages(records, start, end, rules.decompressed_bytes_max, in_place=True)
    for index, message in enumerate(messages):
        if message.magic != header.magic:
            errors.add(index, f"A record's magic {message.magic} does not match outer magic {header.magic}")
        elif not message.crc_is_valid:
            raise corrupt("Record is corrupt")
        else:
            errors.check(index, message.as_record(), header.is_log_append_time)
    errors.raise_if_any()
    return [message.as_record() for message in messages]
