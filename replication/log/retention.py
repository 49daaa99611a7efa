"""Retention: the rule by which old segments of a log go (Kafka's UnifiedLog.deleteOldSegments). Sans-IO.

    below the log start offset    always, whatever cleanup.policy is: DeleteRecords
    beyond retention.bytes        cleanup.policy=delete
    older than retention.ms       cleanup.policy=delete

`SegmentedLog.delete_old_segments` gives them up. `replication/replica_manager/housekeeping.py` decides when each log is looked at. What
compaction removes is decided in `compaction.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.replication.log.log_reader import base_offset_of

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.segment import Segment


def expired_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    limit: int,
) -> int:
    """Count the oldest segments that are below the log's start, beyond its size or older than its age, up to `limit`.

    Segments go from the oldest on, whole, and never above the high watermark. The last one may go too, unless it is empty;
    the log then goes on in a new one.

    A log may have very many segments, so only the sum of their sizes, where it is needed, looks at all of them.
    """
    others = len(segments) - 1  # than the last one
    # Step 1: how far retention may go. Only what is committed goes: the followers may not have the rest yet.
    if log_end_offset <= high_watermark and segments[-1].size:
        eligible = len(segments)
    else:
        eligible = min(others, max(0, bisect_right(segments, high_watermark, key=base_offset_of) - 1))
    eligible = min(eligible, limit)
    # Step 2: segments below the start of the log go whatever the policy is.
    # The last one has none after it, whose beginning would tell where it ends.
    count = 0
    while count < min(eligible, others) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    # A topic that is only compacted keeps its records however old and many they are.
    if not config.is_deleting:
        return count
    # Step 3: by size. As in Kafka, a segment goes only if what is left is not less than the limit.
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while count < eligible and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    # Step 4: by age, last of all: it reads the times of segments, and step 3 may have settled the oldest ones.
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        while count < eligible and segments[count].largest_timestamp() < oldest_ms:
            count += 1
    return count
