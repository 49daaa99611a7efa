"""When a log goes on in a new segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.segment import Segment


def should_roll(
    segment: Segment, config: LogConfig, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
) -> bool:
    """Whether an append of this size, time and offset begins a new segment. This may read the first batch."""
    if (
        segment.size > config.segment_bytes - size_bytes
        # segment.index.bytes bounds the indexes, as in Kafka. They store offsets relative to the segment, in 31 bits.
        or segment.indexes_are_full
        or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    ):
        return True
    # An empty segment cannot be too old: rolling it would only make another empty one.
    if not segment.size:
        return False
    # Measured in the records' own time where they have one, so that replicas roll alike.
    first = segment.known_first_timestamp
    if first is None:
        first = segment.first_batch_timestamp()
    waited_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    # Every append asks. Only here and there is it near enough to the limit that the limit has to be known exactly.
    may_be = waited_ms > config.segment_ms or waited_ms > config.max_compaction_lag_ms or config.segment_jitter_ms > 0
    return may_be and waited_ms > _age_max_ms(segment, config)


def _age_max_ms(segment: Segment, config: LogConfig) -> int:
    age_ms = config.segment_ms
    if config.is_compacted:  # nothing is compacted before its segment is rolled
        age_ms = min(age_ms, config.max_compaction_lag_ms)
    # Taken from the path and not from a random number: it is the same after a restart, and spreads the rolls of many
    # partitions.
    if config.segment_jitter_ms:
        age_ms -= crc32c(segment.log_file.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)
    return age_ms
