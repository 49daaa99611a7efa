"""Snapshots of a log's segments, for threads to read while the log itself goes on.

A snapshot is a segment as it was at one moment. What is below its size never changes while the log's `layout` is the
same, so a thread can read it without locks; the log uses the thread's result only if the layout is unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence

from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader, base_offset_of
from ottla.replication.log.producer_snapshots import ProducerSnapshots, producers_at
from ottla.replication.log.producers import ProducerStateManager
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import FileCache
from ottla.wire.errors import KafkaError, KeptError
from ottla.wire.time_slice import let_others_run

SURVEYED_AT_ONCE = 4  # segments whose indexes may be opened on the event loop, one request or one look
SURVEYED_PER_JOB = 256
OPEN_FILES_MAX = 3


class SnapshotJob(ABC):
    """Job that reads snapshots of segments in a thread; created and finished on the event loop."""

    def __init__(self, log: LogReader, segments: Sequence[Segment]) -> None:
        # A small cache of its own, so that the thread pushes no files out that the log has in use.
        files = FileCache(log.log_directory.storage, OPEN_FILES_MAX)
        self._log = log
        self._layout = log.layout
        self._pairs = [(segment, segment.snapshot(files)) for segment in segments[:SURVEYED_PER_JOB]]
        self.has_run = False
        self._failure = KeptError()

    def run(self) -> None:
        """Read the snapshots in a thread; `finish` raises errors that occur here."""
        try:
            for _, snapshot in self._pairs:
                try:
                    self.work(snapshot)
                finally:
                    # A job has hundreds of segments, and only the files of one are open at a time.
                    snapshot.release_files()
                # Else the event loop would wait for the interpreter lock.
                let_others_run()
        except (OSError, CorruptSegment, CorruptIndex, KafkaError) as error:
            self._failure.keep(error)
        self.has_run = True

    @abstractmethod
    def work(self, snapshot: Segment) -> None:
        """Read the snapshot of one segment."""

    def finish(self) -> bool:
        """Give the results to the log, or raise the thread's error; return False if the log has changed meanwhile."""
        # This comes before the failure: files that were removed meanwhile cannot be read, and that is no fault of the
        # disk.
        if self._log.layout != self._layout:
            return False
        self._failure.raise_it()
        for segment, snapshot in self._pairs:
            segment.learn(snapshot)
        return True


class Survey(SnapshotJob):
    """Job that opens or rebuilds segments' indexes and reads their timestamps.

    If there are many segments, it reads only the first ones.
    """

    def work(self, snapshot: Segment) -> None:
        _ = snapshot.offset_index, snapshot.max_timestamp, snapshot.first_batch_timestamp()


DAY_MS = 86_400_000
# A log of 37 MB took 430 ms to read on the event loop.
READ_AT_ONCE_BYTES = 256 * 1024
PRODUCERS_AT_ONCE = 1000


class Truncation:
    """Truncation of a log at `offset`, for which a thread reads the producer state; `segments` are the retained ones.

    The producer state at an offset results from the newest snapshot at or below it and the batches after the snapshot,
    which may fill a whole segment. So a thread reads them first, and the truncation itself takes little time:

        truncation = log.prepare_truncation(offset)     on the event loop; None: there is little to read, truncate now
        truncation.run()                                in a thread
        log.truncate_to(offset, truncation)             on the event loop; reads again if the log has changed meanwhile
    """

    def __init__(
        self, log: LogReader, segments: Sequence[Segment], snapshots: ProducerSnapshots, offset: int, now_ms: int
    ) -> None:
        files = FileCache(log.log_directory.storage, OPEN_FILES_MAX)
        self.offset = offset
        self._log = log
        self._layout = log.layout
        self._log_start_offset = min(log.log_start_offset, offset)
        # The log may append and roll while the thread reads. Snapshots stay as they are.
        self._segments = [segment.snapshot(files) for segment in segments]
        self._snapshots = snapshots
        self._now_ms = now_ms
        self._producers: ProducerStateManager | None = None
        self._failure = KeptError()

    @classmethod
    def of(
        cls, log: LogReader, snapshots: ProducerSnapshots, producer_count: int, offset: int, now_ms: int
    ) -> Truncation | None:
        """Return a truncation for a thread to prepare; None if so little has to be read that none is needed."""
        kept = log.segments[: bisect_right(log.segments, offset, key=base_offset_of)]
        start = max(snapshots.latest_before(offset), log.log_start_offset)
        # What lies before the newest usable snapshot is in that snapshot.
        first = max(0, bisect_right(kept, start, key=base_offset_of) - 1)
        size = sum(segment.size for segment in kept[first:])
        # A snapshot of many producers takes long to decode, too.
        if size <= READ_AT_ONCE_BYTES and producer_count <= PRODUCERS_AT_ONCE:
            return None
        return cls(log, kept, snapshots.copied(), offset, now_ms)

    def run(self) -> None:
        """Read the producer state in a thread."""
        try:
            self._producers = producers_at(
                self.offset,
                self._segments,
                self._snapshots,
                log_start_offset=self._log_start_offset,
                now_ms=self._now_ms,
                expiration_ms=DAY_MS,
            )
        except OSError as error:
            self._failure.keep(error)

    @property
    def is_current(self) -> bool:
        """True while the log's files are the same as when the truncation was created."""
        return self._log.layout == self._layout

    def producers_at(self, offset: int) -> ProducerStateManager | None:
        """Return the producer state that the thread has read; None if `offset` differs or the log has changed.

        Raises OSError if the state could not be read.
        """
        # A state of another moment must not get into the log: with it the log would refuse records, or take them twice.
        if offset != self.offset or not self.is_current:
            return None
        self._failure.raise_it()
        return self._producers
