"""Searching a log for a timestamp, as ListOffsets asks for it.

Theory
    The first segment is wanted whose largest timestamp is late enough; in it the first batch, found by the indexes and the
    headers of a few kilobytes; in that the first record. What is small is read at once. The rest is read in a thread:

    * segments whose largest timestamp was not yet read since the start, because their indexes have to be opened,
    * indexes that have to be rebuilt,
    * batches that are compressed or large, and long stretches without an index entry.

        search.advance()     on the loop: True when it is over (`found`), else there is something for a thread to do
        search.run()         in a thread: reads snapshots of segments, and nothing else
        search.advance()     on the loop: goes on, or restarts if the log was truncated meanwhile

    As in Kafka no search finds a record of a compressed batch that is longer than max.decompressed.message.bytes, or behind such
    a one: the setting may have become smaller since.

    A search never changes the log, except that segments learn what the thread found out about them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader, translated
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segment_snapshots import SURVEYED_AT_ONCE, SnapshotJob, Survey
from ottla.replication.log.storage import NotCached, only_cached
from ottla.wire.record_decoding import decode_records, first_record, iter_records, records_area
from ottla.wire.record_walk import Buffer, read_varint
from ottla.wire.records import MAGIC_V2, BatchHeader, invalid, read_header
from ottla.wire.settings import INT_MAX

MAX_TIMESTAMP = -3
UNLIMITED = INT_MAX - 8  # the largest that the setting can be
# A batch beyond these, or a compressed one, is decoded in a thread.
SMALL_BATCH_BYTES = 16 * 1024
SMALL_BATCH_RECORDS = 250


class TimestampedOffset(NamedTuple):
    """Timestamp, offset and leader epoch of a record, as in a ListOffsets response."""

    timestamp: int
    offset: int
    leader_epoch: int


class TooLarge(Exception):
    """Error raised if a search has to read more than the event loop has time for."""


class TimestampSearch:
    """Search for the first record at or after a timestamp, or for the record with the highest timestamp."""

    def __init__(self, log: LogReader, timestamp: int, record_bytes_max: int = UNLIMITED) -> None:
        self.log = log
        self._record_bytes_max = record_bytes_max
        self.found: TimestampedOffset | None = None
        self._timestamp = timestamp
        self._passed: set[int] = set()  # base offsets of segments in which nothing was found
        self._layout = log.layout
        self._job: SnapshotJob | None = None

    def advance(self) -> bool:
        """Continue the search as long as that is quick; return True if the search is complete.

        If it returns False, a thread must call `run` before the next call.
        """
        log = self.log
        log.log_directory.check_online()
        if self._job is not None and not self._job.has_run:
            return False
        try:
            self._use_job()
            self._job = self._next_job()
        except (OSError, CorruptSegment, CorruptIndex) as error:
            raise translated(log, error) from error
        return self._job is None

    def run(self) -> None:
        """Run the job that `advance` has prepared; called in a thread."""
        if self._job is not None:
            self._job.run()

    def _use_job(self) -> None:
        job, self._job = self._job, None
        # Segments were cut or removed. The thread may have found what is not there any more, so the search begins
        # again.
        if self._layout != self.log.layout:
            self._layout = self.log.layout
            self._passed.clear()
        elif job is not None:
            job.finish()
            if isinstance(job, _Find):
                self._note(job.segment, job.found)

    def _note(self, segment: Segment, found: TimestampedOffset | None) -> None:
        self.found = found
        self._passed.add(segment.base_offset)

    def _next_job(self) -> SnapshotJob | None:
        while self.found is None:
            try:
                with only_cached:
                    segment = self._next_segment()
            except DamagedIndexes as damaged:
                return Survey(self.log, [damaged.segment])
            except NotCached:  # raised by the first segment, in order, whose times are unknown
                return Survey(self.log, [next(each for each in self.log.segments if not each.knows_its_times)])
            if segment is None or isinstance(segment, SnapshotJob):
                return segment
            try:
                with only_cached:
                    found = find_in(
                        segment, self._timestamp, self.log.log_start_offset, self._record_bytes_max, is_at_once=True
                    )
                self._note(segment, found)
            except (TooLarge, DamagedIndexes, NotCached):
                # The thread repeats the look at this segment without a limit.
                return _Find(self.log, segment, self._timestamp, self._record_bytes_max)
        return None

    def _next_segment(self) -> Segment | SnapshotJob | None:
        """Return the next segment to search, or a job that must run first; None if no segment is left."""
        segments = [segment for segment in self.log.segments if segment.size]
        strange = [segment for segment in segments if not segment.knows_its_times]
        has_to_survey = len(strange) > SURVEYED_AT_ONCE
        if self._timestamp == MAX_TIMESTAMP:
            if has_to_survey and not self._passed:
                return Survey(self.log, strange)
            # The segment with the largest time of all is looked at once. If nothing is found there, it is nowhere
            # else.
            return None if self._passed else max(segments, key=attrgetter("max_timestamp"), default=None)
        for segment in segments:
            if segment.base_offset not in self._passed:
                # Only when the search gets here: a segment before it may have the answer, and then no other one has
                # to be opened.
                if has_to_survey and not segment.knows_its_times:
                    return Survey(self.log, strange)
                if segment.largest_timestamp() >= self._timestamp:
                    return segment
        return None


class _Find(SnapshotJob):
    """Job that searches one segment for the wanted record in a thread; `found` is the record, or None."""

    def __init__(self, log: LogReader, segment: Segment, timestamp: int, record_bytes_max: int) -> None:
        super().__init__(log, [segment])
        self.segment = segment
        self._record_bytes_max = record_bytes_max
        self.found: TimestampedOffset | None = None
        self._timestamp = timestamp
        self._start_offset = log.log_start_offset

    def work(self, snapshot: Segment) -> None:
        self.found = find_in(snapshot, self._timestamp, self._start_offset, self._record_bytes_max)


def find_in(
    segment: Segment, timestamp: int, start_offset: int, record_bytes_max: int = UNLIMITED, *, is_at_once: bool = False
) -> TimestampedOffset | None:
    """Find the record for `timestamp` in a segment; None if there is none.

    With `is_at_once` raises TooLarge if the search would take long.
    """
    # An index that contradicts the log is made again, and the search done again, once. A second contradiction is
    # damage of the log itself.
    for is_repaired in (False, True):
        try:
            if timestamp == MAX_TIMESTAMP:
                return _find_latest(segment, record_bytes_max, is_at_once)
            return _find_not_older(segment, timestamp, start_offset, record_bytes_max, is_at_once)
        except (CorruptIndex, CorruptSegment) as error:
            if is_repaired:
                raise
            segment.repair(error)
    return None


def _find_latest(segment: Segment, record_bytes_max: int, is_at_once: bool) -> TimestampedOffset | None:
    timestamp, offset = segment.max_timestamp, segment.offset_of_max_timestamp
    wanted = _Wanted(timestamp, 0, offset, record_bytes_max, is_exact=True)
    return wanted.look(segment, segment.offset_index.floor(offset), is_at_once)


def _find_not_older(
    segment: Segment, timestamp: int, start_offset: int, record_bytes_max: int, is_at_once: bool
) -> TimestampedOffset | None:
    # Kafka reads on from the last older entry of the time index, which may be at the very beginning if one record
    # there has a time ahead of all others. But the batch of the first entry that is late enough was the first of its
    # kind when that entry was made, so the entry of the offset index before it knew of none.
    reached = segment.time_index.first_reaching(timestamp)
    start = segment.end_of_known_times() if reached is None else segment.offset_index.floor(reached - 1)
    wanted = _Wanted(timestamp, start_offset, reached, record_bytes_max, is_exact=False)
    return wanted.look(segment, max(start, segment.offset_index.floor(start_offset)), is_at_once)


class _Wanted(NamedTuple):
    """Target of a search; `promised` is the offset of a batch that is late enough according to the time index."""

    timestamp: int
    start_offset: int
    promised: int | None
    record_bytes_max: int
    is_exact: bool

    def look(self, segment: Segment, start: int, is_at_once: bool) -> TimestampedOffset | None:
        """Search from file position `start`. Raises CorruptIndex if the batch at `promised` is not late enough."""
        file = segment.log_file.open()
        for header, position in scan_batches(file, start, segment.size, SCAN_BYTES if is_at_once else LARGE_SCAN_BYTES):
            # Headers of a few kilobytes are the most that the event loop reads here.
            if is_at_once and position - start > SCAN_BYTES:
                raise TooLarge
            if not self._is_late_enough(header.max_timestamp):
                # The time index named this batch, and it is older. With such an index a search could pass the right
                # record over.
                if self.promised is not None and header.base_offset <= self.promised <= header.last_offset:
                    raise CorruptIndex(f"{segment!r} has no timestamp of {self.timestamp} at offset {self.promised}")
            # Records below the log start are deleted, though their batch may still be there.
            elif header.last_offset >= self.start_offset:
                if is_at_once and _is_large(header):
                    raise TooLarge
                data = file.read_at(position, header.size_in_bytes)
                found = first_record(data, self.timestamp, self.start_offset, is_exact=self.is_exact)
                if found is not None:
                    if self.record_bytes_max < UNLIMITED:
                        check_sizes_until(data, found[1], self.record_bytes_max)
                    return TimestampedOffset(*found, header.partition_leader_epoch)
        return None

    def _is_late_enough(self, timestamp: int) -> bool:
        return timestamp == self.timestamp if self.is_exact else timestamp >= self.timestamp


def _is_large(header: BatchHeader) -> bool:
    is_small = header.size_in_bytes <= SMALL_BATCH_BYTES and header.records_count <= SMALL_BATCH_RECORDS
    return header.is_compressed or not is_small


_MESSAGE_FRONTS = (14, 22)  # bytes of a message of magic 0 and 1 behind its size, without key and value


def check_sizes_until(batch: Buffer, offset: int, limit: int) -> None:
    """Raise INVALID_RECORD if a record up to `offset`, in a valid compressed batch, is longer than `limit` bytes."""
    header = read_header(batch)
    if not header.is_compressed:
        return
    if header.magic != MAGIC_V2:
        # Kafka looks at all messages of a wrapper before it looks at one.
        front = _MESSAGE_FRONTS[header.magic]
        for record in decode_records(batch):
            _check_size(front + len(record.key or b"") + len(record.value or b""), limit)
        return
    area, position = records_area(batch, header), 0
    for record in iter_records(area, header, headers_max=0):
        length, position = read_varint(area, position)
        _check_size(length, limit)
        if record.offset >= offset:
            return
        position += length


def _check_size(length: int, limit: int) -> None:
    if length > limit:
        raise invalid(f"A record of {length} bytes exceeds the maximum of {limit}")
