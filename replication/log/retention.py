"""Which segments a log need not keep: below its start, beyond its size, older than its age.

Segments go from the oldest on, whole, and never above the high watermark. The last one may go too, unless it is empty; the
log then goes on in a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.replication.log.segment import Segment

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig


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
    """How many of the oldest segments are to go, as far as `limit`: looking at each costs something."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    eligible = sum(end <= high_watermark for end in ends)
    if not segments[-1].size:
        eligible = min(eligible, len(segments) - 1)
    eligible = min(eligible, limit)
    count = 0
    while count < min(eligible, len(segments) - 1) and ends[count] <= log_start_offset:
        count += 1
    if not config.is_deleting:
        return count
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while count < eligible and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        while count < eligible and segments[count].largest_timestamp() < oldest_ms:
            count += 1
    return count
