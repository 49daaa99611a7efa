"""The quick half of the verdict about a produced batch, and what both halves share: the rules and the checked batch.

Nearly all batches are ordinary: one whole batch of magic 2 whose counts agree, that is appended as it is. `check_quickly` finds
them good in one go, because what a small request costs is mostly its checks. It says yes or nothing: `validator.py`, the thorough
half, checks the same step by step and in Kafka's order, says what is wrong with a batch, changes it as its topic wants it, and
decides about every batch that the quick half does not accept. A thread should look at batches that `is_expensive` names, and at
those that were read through in vain (DOUBTFUL).

The tests hold both halves to the same verdicts. `wire/_one_batch.h` has `ordinary_fields` and `is_intact` in C.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression
from ottla.wire.decompression import decompressed_bound, has_libdeflate, told_gzip_size, unstored_gzip_bytes
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.native import native
from ottla.wire.record_walk import IS_NATIVE, Buffer, walk_records
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    batch_size,
    invalid,
    unpack_header,
)

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
FAR = 1 << 62  # beyond this, sums of timestamps and times may leave 64 bits

# What may be done on the event loop: some milliseconds' worth.
INLINE_DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024
# A record may have a header in each two of its bytes, over which Python walks a hundred times slower than C.
INLINE_WALKED_BYTES_MAX = INLINE_DECOMPRESSED_BYTES_MAX if IS_NATIVE else 64 * 1024
INLINE_GZIP_BYTES_MAX = min(1024 * 1024, INLINE_WALKED_BYTES_MAX)
# Gzip takes 4 ms for each MiB of input, whatever becomes of it, and lets others run meanwhile. A thread costs 0.1 ms. Where all
# blocks are empty it is 80 ms by libdeflate, and 500 ms piece by piece.
_INLINE_GZIP_INPUT_BYTES_MAX = 96 * 1024
_INLINE_GZIP_PIECES_BYTES_MAX = 16 * 1024  # without libdeflate
_INLINE_RECOMPRESSED_BYTES_MAX = 32 * 1024
_INLINE_MESSAGE_SET_BYTES_MAX = 32 * 1024
INLINE_BYTES_MAX = 16 * 1024 * 1024 if IS_NATIVE else INLINE_WALKED_BYTES_MAX
INLINE_RECORDS_MAX = 20_000 if IS_NATIVE else 3_000

QUICK_DECOMPRESSED_BYTES_MAX = INLINE_WALKED_BYTES_MAX
"""More takes longer than the event loop has time for."""
SMALL_BYTES = 4096  # a second look at so much costs less than a thread

_COUNT = struct.Struct(">i")
new_tuple = tuple.__new__  # past NamedTuple's keyword handling


class AppendOrigin(Enum):
    """Origin of a batch; batches of clients are checked more strictly than batches of coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class TooManyForTheLoop(Exception):
    """Error raised if a batch has too many records to be checked on the event loop; the batch is unchanged.

    A thread must repeat the check.
    """


class ValidationRules(NamedTuple):
    """A topic's requirements for produced batches."""

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
        """Return the rules for a configuration; all logs with the same configuration share one object."""
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


class CheckedRecords(NamedTuple):
    """A valid batch before `PartitionLog` assigns its offsets."""

    buffer: memoryview | bytearray
    header: BatchHeader
    max_timestamp: int
    log_append_time_ms: int


DOUBTFUL = CheckedRecords(memoryview(b""), BatchHeader(*[0] * len(BatchHeader._fields)), NO_TIMESTAMP, NO_TIMESTAMP)
"""Verdict of `check_quickly`: all bytes were read, and the batch is not good as it is. A second look is for a thread."""


def check_produce_request_records(records: Buffer | None, api_version: int) -> None:
    """Check the number, magic and codec of a Produce request's batches against the request's version.

    Raises KafkaError.
    """
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
    """Tell whether checking these records would block the event loop, so that a thread must do it. Never raises."""
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
        if bound > INLINE_DECOMPRESSED_BYTES_MAX:
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
    """Guess whether checking gzip data takes long, by the sizes stated in the data.

    If the guess is too low, `check_thoroughly` gives up.
    """
    # Stored data are hardly longer than what they become, or else they are mostly empty blocks, which take time as well.
    if told_gzip_size(area) > INLINE_GZIP_BYTES_MAX or len(area) > INLINE_GZIP_BYTES_MAX * 9 // 8:
        return True
    bytes_max = _INLINE_GZIP_INPUT_BYTES_MAX if has_libdeflate() else _INLINE_GZIP_PIECES_BYTES_MAX
    return len(area) > bytes_max and unstored_gzip_bytes(area) > bytes_max


# --- the quick half ---------------------------------------------------------------------------------------------------


def ordinary_fields_python(records: memoryview, flags: int, records_max: int, bytes_max: int) -> tuple[int, ...] | None:
    """Return the header fields of a batch as `ordinary_header` requires it, else None; Python version of the C code."""
    if len(records) < RECORDS_OFFSET:
        return None
    # All fields at once: one call for the header costs less than a look at each field.
    header = unpack_header(records)
    base_offset, length, _, magic, _, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count = header
    is_ordinary = (
        # Exactly one batch and nothing behind it, so the log can write the view as it is.
        length == len(records) - LOG_OVERHEAD
        and magic == MAGIC_V2
        # No other flag: no control record, no claim of LogAppendTime.
        and not attributes & ~flags
        # A client counts from 0; the leader puts the offset in.
        and not base_offset
        and 0 < count == last_offset_delta + 1
        and count <= records_max
        and length <= bytes_max
        # A producer with an id has to number its records.
        and (base_sequence >= 0 or producer_id == NO_PRODUCER_ID)
    )
    return header if is_ordinary else None


ordinary_fields: Callable[[memoryview, int, int, int], tuple[int, ...] | None] = native(
    "ordinary_header", ordinary_fields_python
)


def ordinary_header(records: memoryview, flags: int = TRANSACTIONAL_FLAG | COMPRESSION_MASK) -> BatchHeader | None:
    """Return the header of one complete batch with consistent counts and no flags outside `flags`, else None."""
    # What would hold the event loop is for a thread, and `is_expensive` decides that.
    fields = ordinary_fields(records, flags, INLINE_RECORDS_MAX, INLINE_BYTES_MAX)
    return None if fields is None else new_tuple(BatchHeader, fields)


def is_intact_python(records: memoryview, earliest: int, latest: int) -> bool:
    """Tell whether an uncompressed batch has a valid checksum, record count and timestamps (within the bounds)."""
    if len(records) < RECORDS_OFFSET:
        return False
    header = unpack_header(records)
    if crc32c(records[ATTRIBUTES_OFFSET:]) != header[4] or header[12] < 1:
        return False
    try:
        minimum, maximum, *_ = walk_records(records, RECORDS_OFFSET, len(records), header[12])
    except ValueError:
        return False
    return times_are_ordinary(header, minimum, maximum, earliest, latest)


is_intact: Callable[[memoryview, int, int], bool] = native("is_intact", is_intact_python)


def check_quickly(
    records: memoryview, header: BatchHeader, rules: ValidationRules, *, now_ms: int
) -> CheckedRecords | None:
    """Check a batch that has an `ordinary_header`; return it as checked if it is valid.

    Returns None if it must be checked thoroughly, and DOUBTFUL if a thread must do that.
    """
    codec = header[5] & COMPRESSION_MASK
    # The topic wants something of the batch, or wants it changed. What reads all bytes comes last.
    if rules.timestamp_type or records.readonly or len(records) > rules.max_message_bytes:
        return None
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if codec:
        if _may_be_long(records, codec, rules):
            return None
        is_small, is_good = False, _is_good_compressed(records, header, codec, rules, earliest, latest)
    elif rules.compacted or rules.compression:
        return None
    else:
        is_small, is_good = len(records) <= SMALL_BYTES, is_intact(records, earliest, latest)
    if is_good:
        return new_tuple(CheckedRecords, (records, header, header[8], NO_TIMESTAMP))
    return None if is_small else DOUBTFUL


def _may_be_long(records: memoryview, codec: int, rules: ValidationRules) -> bool:
    """Tell whether a compressed batch needs the thorough check, because of its length or of the topic's rules."""
    if (
        codec > Compression.ZSTD
        # The topic takes it as it is, and sets no limit to single records that may matter here.
        or (rules.compression is not None and rules.compression != codec)
        or rules.record_bytes_max < QUICK_DECOMPRESSED_BYTES_MAX
    ):
        return True
    area = records[RECORDS_OFFSET:]
    # So what is too long costs no more than a look at its blocks.
    if codec == Compression.GZIP:
        return is_long_gzip(area)
    return decompressed_bound(Compression(codec), area) > _quick_limit(rules)


def _quick_limit(rules: ValidationRules) -> int:
    return min(QUICK_DECOMPRESSED_BYTES_MAX, rules.decompressed_bytes_max)


def _is_good_compressed(
    records: memoryview,
    header: BatchHeader,
    codec: int,
    rules: ValidationRules,
    earliest: int,
    latest: int,
) -> bool:
    try:
        found = walk_compressed(
            Compression(codec), records[RECORDS_OFFSET:], _quick_limit(rules), header[12], is_once=True
        )
    except KafkaError:
        return False
    if found is None:
        return False
    minimum, maximum, _, has_null_key, are_consecutive = found
    return (
        are_consecutive
        and not (has_null_key and rules.compacted)
        and times_are_ordinary(header, minimum, maximum, earliest, latest)
        # Last, because it reads all bytes.
        and crc32c(records[ATTRIBUTES_OFFSET:]) == header[4]
    )


def times_are_ordinary(header: Sequence[int], minimum: int, maximum: int, earliest: int, latest: int) -> bool:
    """Tell whether the timestamps are within the range and the header states the highest one correctly."""
    base_timestamp, max_timestamp = header[7], header[8]
    min_timestamp = base_timestamp + minimum
    # The thorough half corrects a wrong maximum and says which records are out of range. Times below NO_TIMESTAMP, and sums that
    # may leave 64 bits, are left to it, too. Comparisons, because `min` and `max` cost more and every append asks.
    return (
        base_timestamp + maximum == max_timestamp
        and min_timestamp >= NO_TIMESTAMP
        and min_timestamp >= earliest
        and max_timestamp <= FAR
        and max_timestamp <= latest
    )
