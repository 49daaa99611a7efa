"""A compressed batch of ordinary length, checked in one go: `ordinary_batches.py` with a codec.

This says yes or nothing, too. `validator.py` has the last word wherever anything is out of the ordinary, takes long or is to be
changed. The tests hold both to the same verdicts.
"""

from __future__ import annotations

from ottla.replication.log.ordinary_batches import new_tuple, ordinary_header, times_are_ordinary
from ottla.replication.log.validator import CheckedRecords, ValidationRules, is_long_gzip
from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression
from ottla.wire.decompression import decompressed_bound
from ottla.wire.errors import KafkaError
from ottla.wire.record_walk import IS_NATIVE, Found
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024 if IS_NATIVE else 64 * 1024
"""More takes longer than the event loop has time for."""


def check_ordinary_compressed(records: memoryview, rules: ValidationRules, *, now_ms: int) -> CheckedRecords | None:
    """`check_produced` of a batch that is compressed in a plain way and can be appended as it is, in some milliseconds at most.

    None wherever something is to be refused or changed, or may take longer.
    """
    header = ordinary_header(records, TRANSACTIONAL_FLAG | COMPRESSION_MASK, rules.max_message_bytes)
    return None if header is None else check_compressed(records, header, rules, now_ms=now_ms)


def check_compressed(
    records: memoryview, header: BatchHeader, rules: ValidationRules, *, now_ms: int
) -> CheckedRecords | None:
    """Check a compressed batch whose header `ordinary_header` found to be ordinary."""
    codec = header[5] & COMPRESSION_MASK
    if (
        not 0 < codec <= Compression.ZSTD
        # The topic takes it as it is, and sets no limit to single records that may matter here.
        or (rules.compression is not None and rules.compression != codec)
        or rules.timestamp_type
        or rules.record_bytes_max < DECOMPRESSED_BYTES_MAX
        or records.readonly
        or len(records) > rules.max_message_bytes
    ):
        return None
    limit = min(DECOMPRESSED_BYTES_MAX, rules.decompressed_bytes_max)
    found = _walked(Compression(codec), records[RECORDS_OFFSET:], limit, header[12])
    if found is None:
        return None
    minimum, maximum, _, has_null_key, are_consecutive = found
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if (
        not are_consecutive
        or (has_null_key and rules.compacted)
        or not times_are_ordinary(header, minimum, maximum, earliest, latest)
        # Last, because it reads all bytes.
        or crc32c(records[ATTRIBUTES_OFFSET:]) != header[4]
    ):
        return None
    return new_tuple(CheckedRecords, (records, header, header[8], NO_TIMESTAMP))


def _walked(codec: Compression, area: memoryview, limit: int, count: int) -> Found | None:
    # Asked first, so that what is too long costs no more than a look at its blocks.
    if codec is Compression.GZIP:
        # Where the quick way says nothing at once, the data are unusual.
        return None if is_long_gzip(area) else walk_compressed(codec, area, limit, count, in_pieces=False)
    if decompressed_bound(codec, area) > limit:
        return None
    try:
        return walk_compressed(codec, area, limit, count)
    except KafkaError:
        return None
