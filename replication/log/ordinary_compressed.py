"""A batch whose codec has stored the records, or gzip of ordinary length, checked in one go: `ordinary_batches.py` with a codec.

This says yes or nothing, too. `validator.py` has the last word wherever anything is out of the ordinary, takes long or is to be
changed. The tests hold both to the same verdicts.
"""

from __future__ import annotations

from ottla.replication.log.ordinary_batches import new_tuple
from ottla.replication.log.validator import FAR, INLINE_RECORDS_MAX, CheckedRecords, ValidationRules, is_long_gzip
from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import walk_plain
from ottla.wire.compression import Compression
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    unpack_header,
)

DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024
"""More takes longer than the event loop has time for."""

_OTHER_ATTRIBUTES = ~(TRANSACTIONAL_FLAG | COMPRESSION_MASK)


def check_ordinary_compressed(records: memoryview, rules: ValidationRules, *, now_ms: int) -> CheckedRecords | None:
    """`check_produced` of a batch that is compressed in a plain way and can be appended as it is, in a millisecond at most.

    None wherever something is to be refused or changed, or may take longer.
    """
    size = len(records)
    if size < RECORDS_OFFSET:
        return None
    header = unpack_header(records)
    _, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp, *_, count = header
    codec = attributes & COMPRESSION_MASK
    if (
        # Exactly one batch with a codec and no other flag, as `ordinary_header` has it.
        not codec
        or length != size - LOG_OVERHEAD
        or magic != MAGIC_V2
        or attributes & _OTHER_ATTRIBUTES
        or header[0]
        or not 0 < count == last_offset_delta + 1
        or count > INLINE_RECORDS_MAX
        or (header[11] < 0 and header[9] != NO_PRODUCER_ID)
        # The topic takes it as it is, and sets no limit to single records that may matter here.
        or (rules.compression is not None and rules.compression != codec)
        or rules.timestamp_type
        or rules.record_bytes_max < DECOMPRESSED_BYTES_MAX
        or records.readonly
        or size > rules.max_message_bytes
    ):
        return None
    area = records[RECORDS_OFFSET:]
    if codec == Compression.GZIP and is_long_gzip(area):
        return None
    found = walk_plain(codec, area, min(DECOMPRESSED_BYTES_MAX, rules.decompressed_bytes_max), count)
    if found is None:
        return None
    minimum, maximum, _, has_null_key, are_consecutive = found
    if (
        not are_consecutive
        or (has_null_key and rules.compacted)
        # As in `check_ordinary`.
        or base_timestamp + maximum != max_timestamp
        or base_timestamp + minimum < max(now_ms - rules.timestamp_before_max_ms, NO_TIMESTAMP)
        or max_timestamp > min(now_ms + rules.timestamp_after_max_ms, FAR)
        # Last, because it reads all bytes.
        or crc32c(records[ATTRIBUTES_OFFSET:]) != crc
    ):
        return None
    return new_tuple(CheckedRecords, (records, new_tuple(BatchHeader, header), max_timestamp, NO_TIMESTAMP))
