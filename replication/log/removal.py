"""Account of the records that leave a log: how many, why, and of which time.

Times come from the headers of two batches and from the segments' times in memory. To find a batch in a large segment takes up
to twenty small reads, which the event loop does not wait for: `warm` lets threads bring the pages into memory before records are
removed. A file that cannot be read, or a page that is still missing, leaves a time unknown; it never keeps records from being removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.replication.log.batch_scan import CorruptSegment, scan_batches
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader, base_offset_of
from ottla.replication.log.storage import NotCached, only_cached
from ottla.wire.errors import KafkaError
from ottla.wire.records import MAGIC_V2, NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.wire.records import BatchHeader


class Removal:
    """Records that left one log, or several logs of a topic, for the reasons in `causes`.

    `oldest_ms` and `newest_ms` are NO_TIMESTAMP while no time is known. `segments` is the number of deleted segments.
    `has_gaps` is True if a log was compacted: then it held fewer records than offsets.
    """

    __slots__ = (
        "causes",
        "end_offset",
        "first_offset",
        "has_gaps",
        "logs",
        "newest_ms",
        "oldest_ms",
        "reads_times",
        "records",
        "segments",
    )

    def __init__(self, *, reads_times: bool = True) -> None:
        """Begin an empty account. Without `reads_times` it reads no file, and knows only the times in memory."""
        self.reads_times = reads_times
        self.causes: list[str] = []
        self.records = self.segments = self.logs = 0
        self.first_offset = self.end_offset = -1
        self.oldest_ms = self.newest_ms = NO_TIMESTAMP
        self.has_gaps = False

    def add(self, cause: str, log: LogReader, first_offset: int, end_offset: int, *, is_compacted: bool) -> None:
        """Account for the offsets [first_offset, end_offset) of a log. Call this before they are gone."""
        if end_offset <= first_offset:
            return
        if cause not in self.causes:
            self.causes.append(cause)
        if not self.records:
            self.first_offset = first_offset
        self.records += end_offset - first_offset
        self.end_offset = end_offset
        self.has_gaps = self.has_gaps or is_compacted
        oldest_ms = NO_TIMESTAMP
        newest_ms, is_complete = _known_newest(log, first_offset, end_offset)
        if self.reads_times:
            with suppress(NotCached), only_cached:
                oldest_ms = time_of_first(log, first_offset)
                newest_ms = newest_ms if is_complete else max(newest_ms, time_of_last(log, end_offset))
        self.oldest_ms = older(self.oldest_ms, oldest_ms)
        self.newest_ms = max(self.newest_ms, newest_ms)


WARM_TRIES_MAX = 100
"""Limit of the pages that `warm` has read: two batches are found by some twenty each, in a few segments."""


async def warm(look: Callable[[], None], run_in_thread: Callable[..., Awaitable[Any]]) -> None:
    """Have threads read the pages that `look` needs and that are not in memory; `look` must change nothing.

    Errors of files are ignored: whoever removes the records will meet them.
    """
    for _ in range(WARM_TRIES_MAX):
        try:
            with only_cached:
                look()
            return
        except NotCached as cold:
            await run_in_thread(cold.warm)
        except (OSError, KafkaError, CorruptSegment, CorruptIndex):
            return


def look_at_times(log: LogReader, first_offset: int, end_offset: int) -> None:
    """Read what `Removal.add` reads for the offsets [first_offset, end_offset). Raises NotCached within `only_cached`."""
    if end_offset > first_offset:
        time_of_first(log, first_offset)
        if not _known_newest(log, first_offset, end_offset)[1]:
            time_of_last(log, end_offset)


def older(one_ms: int, other_ms: int) -> int:
    """Return the smaller of two times in ms, or the only known one. A negative time is unknown; if both are: NO_TIMESTAMP."""
    return max(one_ms, other_ms, NO_TIMESTAMP) if one_ms < 0 or other_ms < 0 else min(one_ms, other_ms)


def time_of_first(log: LogReader, offset: int) -> int:
    """Return the time of the first record of the batch at `offset`; NO_TIMESTAMP if unknown."""
    header = _header_at(log, offset)
    return NO_TIMESTAMP if header is None else _oldest_in(header)


def time_of_last(log: LogReader, end_offset: int) -> int:
    """Return the largest time in the last batch below `end_offset`; NO_TIMESTAMP if unknown."""
    header = _header_at(log, end_offset - 1)
    return NO_TIMESTAMP if header is None else header.max_timestamp


def _header_at(log: LogReader, offset: int) -> BatchHeader | None:
    index = max(0, bisect_right(log.segments, offset, key=base_offset_of) - 1)
    try:
        for segment in log.segments[index : index + 2]:  # compaction may have left a gap at the end of the first one
            position = segment.locate(offset)
            if position is not None:
                found = next(scan_batches(segment.log_file.open(), position, segment.size), None)
                return None if found is None else found[0]
    except (OSError, KafkaError, CorruptSegment, CorruptIndex):
        pass  # the records are removed all the same, and the time stays unknown
    return None


def _oldest_in(header: BatchHeader) -> int:
    """Return the time of a batch's first record, or its largest time if the header has only that."""
    has_base = header.magic >= MAGIC_V2 and header.delete_horizon_ms is None and not header.is_log_append_time
    return min(header.base_timestamp, header.max_timestamp) if has_base else header.max_timestamp


SEGMENTS_ASKED = 100


def _known_newest(log: LogReader, first_offset: int, end_offset: int) -> tuple[int, bool]:
    """Return the largest time in memory of the segments that lie wholly in [first_offset, end_offset).

    The second value is True if the last of these ends at `end_offset` and has its time in memory.
    """
    newest_ms, is_complete, segments = NO_TIMESTAMP, False, log.segments
    begin = max(0, bisect_right(segments, first_offset, key=base_offset_of) - 1)
    end = bisect_right(segments, end_offset, key=base_offset_of)
    for index in range(max(begin, end - SEGMENTS_ASKED), end):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset
        if following <= end_offset and segments[index].size:
            is_complete = following == end_offset and segments[index].knows_its_times
            if segments[index].knows_its_times:
                newest_ms = max(newest_ms, segments[index].max_timestamp)
    return newest_ms, is_complete
