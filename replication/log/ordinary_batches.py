"""The batch that nearly all producers send, checked in one go: what a small request costs is mostly its checks.

This says yes or nothing. Everything here is checked by `validator.py` as well, step by step and in Kafka's order, which
says what is wrong with a batch, changes it as its topic wants it, and has the last word wherever anything is out of the ordinary.
The tests of the validator hold both to the same verdicts. `wire/_one_batch.h` has the look at the header in C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.replication.log.validator import FAR, INLINE_BYTES_MAX, INLINE_RECORDS_MAX, CheckedRecords, ValidationRules
from ottla.wire.checksum import crc32c
from ottla.wire.native import native
from ottla.wire.record_walk import walk_records
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    unpack_header,
)

SMALL_BYTES = 4096
new_tuple = tuple.__new__  # past NamedTuple's keyword handling


def ordinary_fields_python(records: memoryview, flags: int, records_max: int, bytes_max: int) -> tuple[int, ...] | None:
    """The twin of `ordinary_header` in C: the fields of the header, for `ordinary_header` below."""
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


def ordinary_header(
    records: memoryview, flags: int = TRANSACTIONAL_FLAG, bytes_max: int | None = None
) -> BatchHeader | None:
    """The header of what nearly all producers send: one whole batch, its counts in order.

    It has no other flags than these: as they stand, it may be transactional, and is not compressed.
    """
    # What would hold the event loop is for a thread, and `is_expensive` decides that.
    fields = ordinary_fields(records, flags, INLINE_RECORDS_MAX, INLINE_BYTES_MAX if bytes_max is None else bytes_max)
    return None if fields is None else new_tuple(BatchHeader, fields)


def is_intact_python(records: memoryview, earliest: int, latest: int) -> bool:
    """Whether the header of an uncompressed batch has its checksum, the count of its good records, and the greatest of their
    timestamps, which are in this range.
    """
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
"""The same by a plainer checksum: for small batches, where calls cost more than bytes."""


def check_own(records: memoryview, rules: ValidationRules) -> CheckedRecords | None:
    """`check_produced` of a batch that this broker has just made itself: its sum and its records need no look.

    None where the topic refuses or changes batches.
    """
    if rules.compression or rules.timestamp_type or len(records) > rules.max_message_bytes:
        return None
    header = new_tuple(BatchHeader, unpack_header(records))
    return new_tuple(CheckedRecords, (records, header, header[8], NO_TIMESTAMP))


def check_ordinary(
    records: memoryview, header: BatchHeader, rules: ValidationRules, *, now_ms: int
) -> CheckedRecords | None:
    """`check_produced` of what `ordinary_header` found; None wherever something is to be refused or changed."""
    if (
        # The topic wants something of the records themselves, or wants them changed: the long way. What reads all bytes
        # comes last.
        rules.compacted
        or rules.compression
        or rules.timestamp_type
        or records.readonly
        or (size := len(records)) > rules.max_message_bytes
    ):
        return None
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if not (is_intact if size <= SMALL_BYTES else is_intact_python)(records, earliest, latest):
        return None
    return new_tuple(CheckedRecords, (records, header, header[8], NO_TIMESTAMP))


def times_are_ordinary(header: Sequence[int], minimum: int, maximum: int, earliest: int, latest: int) -> bool:
    """Whether records of these least and greatest timestamp deltas are in the range, and the header tells the greatest."""
    base_timestamp, max_timestamp = header[7], header[8]
    min_timestamp = base_timestamp + minimum
    # The long way corrects a wrong maximum and says which records are out of range. Times below NO_TIMESTAMP, and sums that
    # may leave 64 bits, go that way, too. Comparisons, because `min` and `max` cost more and every append asks.
    return (
        base_timestamp + maximum == max_timestamp
        and min_timestamp >= NO_TIMESTAMP
        and min_timestamp >= earliest
        and max_timestamp <= FAR
        and max_timestamp <= latest
    )
