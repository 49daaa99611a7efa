"""First offsets of a log's segments by the times of their files, as ListOffsets v0 asks for them.

Kafka's UnifiedLog.legacyFetchOffsetsBefore: the log end counts as one more segment of this moment, unless the last segment is
empty. The result has at most the requested number of offsets, in descending order. It begins with the newest segment whose file
was written at or before the timestamp. Consumers get the high watermark in place of all offsets beyond it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.replication.log.log_reader import base_offset_of
from ottla.replication.partition.reading import EARLIEST_TIMESTAMP

if TYPE_CHECKING:
    from ottla.replication.log.log_reader import LogReader
    from ottla.replication.log.segment import Segment


def file_times(segments: Iterable[Segment]) -> list[tuple[int, int]]:
    """Return each segment's first offset and the time in ms of its file, in a thread. Deleted segments are omitted."""
    times = []
    for segment in segments:
        with suppress(OSError):
            times.append((segment.base_offset, segment.modified_ms()))
    return times


def newest_at(times: Sequence[tuple[int, int]], timestamp: int) -> int:
    """Return the first offset of the newest segment whose file was written at or before `timestamp`; -1 if none was.

    `times`: result of `file_times`.
    """
    return next((base_offset for base_offset, time_ms in reversed(times) if time_ms <= timestamp), -1)


def needs_file_times(timestamp: int, now_ms: int) -> bool:
    """Tell whether a look-up needs the times of files. Special timestamps and times in the future do not."""
    return 0 <= timestamp < now_ms


def offsets_before(
    log: LogReader, timestamp: int, count: int, *, newest: int | None, high_watermark: int | None = None
) -> list[int]:
    """Return up to `count` first offsets, in descending order.

    `timestamp`: -1 (latest), -2 (earliest) or a time in ms. `newest`: result of `newest_at`; None: no file times are
    needed. If offsets lie beyond `high_watermark`, it stands for all of them; None: no limit.
    """
    segments = log.segments
    if newest is not None:
        end = bisect_right(segments, newest, key=base_offset_of)
    elif timestamp == EARLIEST_TIMESTAMP:
        end = 1
    else:
        end = len(segments) + (segments[-1].size > 0)
    found = [_offset_at(log, position) for position in range(end - 1, max(end - count, 0) - 1, -1)]
    if high_watermark is not None and found and found[0] > high_watermark:
        return [high_watermark, *(each for each in found if each <= high_watermark)]
    return found


def _offset_at(log: LogReader, position: int) -> int:
    segments = log.segments
    return (
        log.log_end_offset if position == len(segments) else max(segments[position].base_offset, log.log_start_offset)
    )
