"""A compressed batch of ordinary length, checked in one go: `ordinary_batches.py` with a codec.

This says yes or nothing, too. `validator.py` has the last word wherever anything is out of the ordinary, takes long or is to be
changed. The tests hold both to the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.replication.log.ordinary_batches import new_tuple, ordinary_header, times_are_ordinary
from ottla.replication.log.validator import CheckedRecords, ValidationRules, is_long_gzip
from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import Found, is_for_native_alone, walk_gzip, walk_in_pieces, walk_stored
from ottla.wire.compression import Compression
from ottla.wire.decompression import decompressed_bound
from ottla.wire.errors import KafkaError
from ottla.wire.record_walk import IS_NATIVE
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

Walk = Callable[[int, memoryview, int, int], Found | None]

DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024 if IS_NATIVE else 64 * 1024
"""More takes longer than the event loop has time for."""


def check_ordinary_compressed(
    records: memoryview, rules: ValidationRules, *, now_ms: int, by_library: bool = True
) -> CheckedRecords | None:
    """`check_produced` of a batch that is compressed in a plain way and can be appended as it is, in some milliseconds at most.

    None wherever something is to be refused or changed, or may take longer. Without `by_library` nothing is decompressed: whoever
    has done that in vain already does not do it again here.
    """
    header = ordinary_header(records, TRANSACTIONAL_FLAG | COMPRESSION_MASK, rules.max_message_bytes)
    return None if header is None else check_compressed(records, header, rules, now_ms=now_ms, by_library=by_library)


def check_compressed(
    records: memoryview,
    header: BatchHeader,
    rules: ValidationRules,
    *,
    now_ms: int,
    by_library: bool = True,
    walk: Walk = walk_stored,
) -> CheckedRecords | None:
    """The same of what `ordinary_header` found. `walk`: does what `walk_stored` does, and may raise what the caller knows."""
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
    area = records[RECORDS_OFFSET:]
    limit = min(DECOMPRESSED_BYTES_MAX, rules.decompressed_bytes_max)
    is_decompressed = is_for_native_alone(codec, area)
    found = walk(codec, area, limit, header[12]) if by_library or not is_decompressed else None
    if found is None and by_library and not is_decompressed:
        found = _walked_by_library(codec, area, limit, header[12])
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


def _walked_by_library(codec: int, area: memoryview, limit: int, count: int) -> Found | None:
    # Asked first, so that what is too long costs no more than a look at its blocks.
    if codec == Compression.GZIP:
        # Where it says nothing at once, it is unusual.
        return None if is_long_gzip(area) else walk_gzip(area, limit, count)
    kind = Compression(codec)
    if decompressed_bound(kind, area) > limit:
        return None
    try:
        return walk_in_pieces(kind, area, limit, count)
    except KafkaError:
        return None
