"""One segment of a log: a `.log` file of batches back to back, and its indexes (`segment_files.py` has their names).

Only the last segment of a log is appended to. Batches are written exactly as they go over the wire, so a read is a slice
of the file (`FileRegion`) and never looks at records.

Finding a place in the file takes one of three ways, cheapest first: a *cursor* left by an earlier read that ended there
(a consumer that reads on), the *recent* list of the last batches appended (consumers and watermarks at the tail), or the
offset index and then the headers of the few batches between two index entries, read in one piece.

Plan, then write: what an append or a cut needs to read is read, and the files it needs are opened, before the first byte
changes. Then comes the one system call that decides, and after it nothing but memory: indexes are written later. A write
that fails is cut off again through the file that is open already; if even that fails, the error is `Irreparable`.
"""

from __future__ import annotations

import contextlib
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.faults import Irreparable, insist
from ottla.replication.log.index import INDEX_INTERVAL_MAX, CorruptIndex, OffsetIndex, TimeIndex
from ottla.replication.log.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from ottla.replication.log.segment_files import SegmentCut, SegmentFiles, check_indexes, remove_unfinished
from ottla.replication.log.storage import Buffer, FileCache, FileRegion, LazyFile, StorageFile
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import LOG_OVERHEAD, BatchHeader

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

logger = logging.getLogger(__name__)

# Bounds for what each segment keeps in memory: a broker may have tens of thousands of them.
RECENT_MAX = 128
CURSORS_MAX = 16
REPAIR_INTERVAL_BYTES = 4096
REPAIR_AT_ONCE_BYTES = 256 * 1024


class DamagedIndexes(KafkaError):
    """Error raised if a thread must first read a large segment, to rebuild indexes or find the highest timestamp."""

    def __init__(self, segment: Segment, error: Exception) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment!r} has to be read through: {error}")
        self.segment = segment


class Segment(SegmentFiles):
    """Part of a log from `base_offset` on; the first `size` bytes of the file are valid."""

    __slots__ = (
        "_cursors",
        "_is_snapshot",
        "_max_timestamp",
        "_recent_last_offsets",
        "_recent_positions",
        "_was_rebuilt",
        "bytes_since_last_index_entry",
        "created_ms",
        "defers_repair",
        "indexes_are_full",
        "known_first_timestamp",
        "offset_of_max_timestamp",
        "size",
    )

    def __init__(
        self, files: FileCache, directory: str, base_offset: int, *, size: int, created_ms: int, suffix: str = ""
    ) -> None:
        super().__init__(files, directory, base_offset, suffix=suffix)
        self.size = size
        self.created_ms = created_ms
        self.bytes_since_last_index_entry = 0
        self.indexes_are_full = False
        self.defers_repair = False  # because the event loop reads it
        self._is_snapshot = False
        self._was_rebuilt = False
        self._forget_contents()

    def _forget_contents(self) -> None:
        self._max_timestamp: int | None = None
        self.offset_of_max_timestamp = self.base_offset
        self.known_first_timestamp: int | None = None
        # None until the first append or read: most segments are only kept, and empty arrays would take memory for
        # nothing.
        self._recent_last_offsets: array[int] | None = None
        self._recent_positions: array[int] | None = None
        self._cursors: dict[int, int] | None = None

    @classmethod
    def create(
        cls, files: FileCache, directory: str, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> Segment:
        """Create an empty segment; truncate existing files of its names. After an OSError no new file remains."""
        segment = cls(files, directory, base_offset, size=0, created_ms=created_ms, suffix=suffix)
        storage, path = files.storage, segment._log.path
        try:
            # A `.txnindex` of an earlier file would name aborted transactions that this segment does not have.
            storage.remove(segment.path(TXN_INDEX_SUFFIX))
            storage.write(segment.path(INDEX_SUFFIX), b"")
            storage.write(segment.path(TIME_INDEX_SUFFIX), b"")
            file = storage.open(path, create=True)  # last, because a segment is there when its `.log` is
            if file.size():  # a file that was ever cut to nothing is written to the disk when it is closed (ext4)
                file.truncate(0)
        except OSError:
            remove_unfinished(storage, segment.paths())
            raise
        segment._log = LazyFile(files, path, file)
        return segment

    def __repr__(self) -> str:
        return f"Segment({self._log.path}, size={self.size})"

    # --- indexes ------------------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """Offset index (`.index`), opened on first use."""
        index = self._offset_index
        return self._open_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        """Time index (`.timeindex`), opened on first use."""
        index = self._time_index
        return self._open_indexes()[1] if index is None else index

    def _open_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        size_of, base_offset = self._files.storage.size, self.base_offset
        offset_path, time_path = self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        try:
            with contextlib.ExitStack() as opened:  # and closed again if one cannot be read, or not yet
                offset_index = OffsetIndex(self._files, offset_path, base_offset, size_bytes=size_of(offset_path))
                opened.callback(offset_index.forget)
                time_index = TimeIndex(self._files, time_path, base_offset, size_bytes=size_of(time_path))
                opened.callback(time_index.forget)
                # A crash may leave zeros, or indexes of other batches. The last entry shows that, and reading it is
                # cheap.
                check_indexes(offset_index, time_index, self._log, self.size)
                opened.pop_all()
        except (CorruptIndex, CorruptSegment, FileNotFoundError) as error:
            return self.repair(error)
        return self._set_indexes(offset_index, time_index)

    def repair(self, error: Exception) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuild the indexes because of `error`. Raises DamagedIndexes if a thread has to do it."""
        # The event loop uses this segment, and reading all of it would hold everybody up.
        if self.defers_repair and self.size > REPAIR_AT_ONCE_BYTES:
            raise DamagedIndexes(self, error) from error
        logger.warning("Rebuilding the indexes of %s: %s", self._log.path, error)
        return self.rebuild_indexes()

    def _set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> tuple[OffsetIndex, TimeIndex]:
        # A thread has this snapshot. It must not write to the files of the segment.
        if self._is_snapshot:
            offset_index = offset_index.copied(self._files, is_snapshot=True)
            time_index = time_index.copied(self._files, is_snapshot=True)
        # Look-ups by time rely on it that the time index on the disk is never behind the offset index.
        offset_index.saved_first = time_index
        self._offset_index, self._time_index = offset_index, time_index
        return offset_index, time_index

    def reset_indexes(self) -> None:
        """Empty the indexes, even if their files are damaged; `seal_anew` writes the files."""
        files, base_offset = self._files, self.base_offset
        self.bytes_since_last_index_entry = 0
        self.indexes_are_full = False
        self._forget_contents()
        self._set_indexes(
            OffsetIndex(files, self.path(INDEX_SUFFIX), base_offset, is_stale=True),
            TimeIndex(files, self.path(TIME_INDEX_SUFFIX), base_offset, is_stale=True),
        )
        # No batch is indexed yet. Without this value the first one would make `index_batch` read the file.
        self._max_timestamp = -1

    def rebuild_indexes(self, index_interval_bytes: int = REPAIR_INTERVAL_BYTES) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuild both indexes from the batches; return them. After an OSError the next use rebuilds them."""
        # Made beside this one, which keeps no half of an index if a read fails on the way.
        made = Segment(
            self._files, self._directory, self.base_offset, size=self.size, created_ms=0, suffix=self._suffix
        )
        made._is_snapshot = self._is_snapshot
        made.reset_indexes()
        self._offset_index = self._time_index = None  # the files change under them
        self._forget_contents()
        for header, position in scan_batches(self._log.open(), 0, self.size, LARGE_SCAN_BYTES):
            made.index_batch(header, position, index_interval_bytes)
        self._was_rebuilt = True
        return self._adopt(made)

    def _adopt(self, made: Segment) -> tuple[OffsetIndex, TimeIndex]:
        """Adopt the indexes of `made`, a rebuilt copy of this segment; write their files and return the indexes."""
        # Copied, because the open files of `made` may belong to another cache.
        indexes = self._set_indexes(made.offset_index.copied(self._files), made.time_index.copied(self._files))
        self._max_timestamp, self.offset_of_max_timestamp = made._max_timestamp, made.offset_of_max_timestamp
        self.bytes_since_last_index_entry = made.bytes_since_last_index_entry
        self.indexes_are_full = False
        with contextlib.suppress(OSError):
            self.seal_anew()
        return indexes

    def seal_anew(self) -> None:
        """Complete and write indexes that were built since `reset_indexes`."""
        self._note_max_timestamp()
        # The time index first; see `saved_first`.
        self.time_index.save_anew(self._files.storage)
        self.offset_index.save_anew(self._files.storage)

    def seal(self) -> None:
        """Complete the indexes of a finished segment; after an OSError they are complete only in memory."""
        # Kafka completes the time index with the true maximum when it rolls or closes a segment.
        self._note_max_timestamp()
        self.save_indexes()

    def _note_max_timestamp(self) -> None:
        if self._time_index is not None and self._max_timestamp is not None and self._max_timestamp >= 0:
            self._time_index.maybe_append(self._max_timestamp, self.offset_of_max_timestamp)

    # --- appending ----------------------------------------------------------------------------------------------------

    def first_batch_timestamp(self) -> int:
        """Return the highest timestamp of the first batch, or -1; the segment's age is measured from it."""
        if not self.size:
            return -1
        # Read once: each append asks whether the segment is too old.
        if self.known_first_timestamp is None:
            header = next(scan_batches(self._log.open(), 0, self.size), None)
            if header is None:
                return -1
            self.known_first_timestamp = header[0].max_timestamp
        return self.known_first_timestamp

    def append(self, buffer: Buffer, batches: Sequence[BatchHeader], config: LogConfig) -> None:
        """Append batches. After CorruptSegment or an OSError other than `Irreparable` nothing is appended."""
        if self._max_timestamp is None:
            # Plan: after the write nothing may be read any more, as a failure then could not be undone.
            self._make_ready(batches[0].base_offset)
        log = self._log
        # The clock algorithm of the file cache keeps the file open a while longer.
        log.used = True
        # Opened before the write, so that a lack of descriptors leaves no half of an append. The attribute saves a call
        # where the file is open.
        file = log.file or log.open()
        # Write: one system call, whatever the number of batches. Readers look no further than `size`, which moves after
        # it.
        position = self.size
        try:
            file.append(buffer)
        except OSError:
            # A part of the batches may be in the file. The next append would go behind it, where `size` does not expect
            # it.
            self._undo_append(file)
            raise
        self.size = position + len(buffer)
        # The records are there, so nothing from here on may fail.
        for batch in batches:
            if self.index_batch(batch, position, config.index_interval_bytes):
                self.indexes_are_full = not self._has_index_room(config)
            # Not `last_offset` and `size_in_bytes`: these are properties, and every append asks for both.
            self._note_recent(batch[0] + batch[6], position)
            position += batch[1] + LOG_OVERHEAD

    def _make_ready(self, next_offset: int) -> None:
        """Load the state needed to add index entries from `next_offset` on."""
        offset_index, time_index = self.offset_index, self.time_index
        # Such an entry is of batches that are gone, and the next ones would not fit in behind it.
        if any(index.entries and index.last_offset >= next_offset for index in (offset_index, time_index)):
            logger.warning("Rebuilding the indexes of %s, which are ahead of it", self._log.path)
            self.rebuild_indexes()
        if self._max_timestamp is None:
            self._load_max_timestamp()

    def _undo_append(self, file: StorageFile) -> None:
        try:
            # Through the file that is open: this needs neither room nor a descriptor.
            insist(file.truncate, self.size)
        except OSError as error:
            raise Irreparable(
                f"What a failed append left at the end of {self._log.path} cannot be cut off", error
            ) from error

    def _has_index_room(self, config: LogConfig) -> bool:
        size = config.segment_index_bytes
        # One entry of times less, because sealing may add a last one.
        offsets, times = size // OffsetIndex.ENTRY.size, size // TimeIndex.ENTRY.size - 1
        return self.offset_index.entries < offsets and self.time_index.entries < times

    def index_batch(self, batch: BatchHeader, position: int, index_interval_bytes: int) -> bool:
        """Take a batch into account for the indexes; return True if it got an index entry."""
        max_timestamp = self._max_timestamp
        if max_timestamp is None:
            max_timestamp = self.max_timestamp
        # `last_offset` and `size_in_bytes` of the batch, which are properties: every append asks for both.
        last_offset, size = batch[0] + batch[6], batch[1] + LOG_OVERHEAD
        # Only a later time counts: the first batch with the largest time stays the one that the index names.
        if batch[8] > max_timestamp:
            self._max_timestamp = max_timestamp = batch[8]
            self.offset_of_max_timestamp = last_offset
        waited = self.bytes_since_last_index_entry
        # INDEX_INTERVAL_MAX bounds a setting that is too large: a look-up reads so many bytes on the event loop.
        if waited > index_interval_bytes or waited > INDEX_INTERVAL_MAX:
            # The time index gets its entry first: it is complete up to the last entry of the offset index; see
            # `end_of_known_times`.
            if max_timestamp >= 0:
                self.time_index.maybe_append(max_timestamp, self.offset_of_max_timestamp)
            self.offset_index.append(last_offset, position)
            self.bytes_since_last_index_entry = size
            return True
        self.bytes_since_last_index_entry = waited + size
        return False

    def _note_recent(self, last_offset: int, position: int) -> None:
        last_offsets, positions = self._recent_last_offsets, self._recent_positions
        if last_offsets is None or positions is None:
            self._recent_last_offsets, self._recent_positions = array("q", (last_offset,)), array("q", (position,))
            return
        # Half of it at once, so that not every append moves the whole array.
        if len(positions) >= RECENT_MAX:
            del last_offsets[: RECENT_MAX // 2], positions[: RECENT_MAX // 2]
        last_offsets.append(last_offset)
        positions.append(position)

    # --- reading ------------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> int | None:
        """Return the position of the first batch that ends at or after `offset`; None if there is none."""
        if self._cursors is not None:
            # Way 1: a reader that goes on asks for the offset at which its last read ended.
            position = self._cursors.get(offset)
            if position is not None:
                return position if position < self.size else None
        # The first batch, which a reader that comes from the segment before wants.
        if offset == self.base_offset:
            return 0 if self.size else None
        recent = self._recent_last_offsets
        if recent is not None and self._recent_positions is not None:
            # Way 2: the tail, where most consumers and all followers that keep pace are.
            slot = bisect_left(recent, offset)
            # The last batch is always in the list, so nothing of the segment reaches this offset.
            if slot == len(recent):
                return None
            if slot > 0:  # before the first of the list there may be another batch that holds the offset
                return self._recent_positions[slot]
        # Way 3: the index and the headers behind its entry.
        try:
            return self._locate_on_disk(offset)
        except (CorruptIndex, CorruptSegment) as error:
            self.repair(error)
            return self._locate_on_disk(offset)

    def _locate_on_disk(self, offset: int) -> int | None:
        start = self.offset_index.floor(offset)
        for header, position in scan_batches(self._log.open(), start, self.size):
            # The index led to bytes that are no batch of this segment.
            if header.base_offset < self.base_offset:
                raise CorruptSegment(position, f"offset {header.base_offset} is below the segment's")
            if header.last_offset >= offset:
                return position
        return None

    def read(
        self, position: int, max_bytes: int, end: int, *, at_least_one_batch: bool
    ) -> tuple[FileRegion | None, int | None]:
        """Return a region of complete batches from `position` on, and the offset of the next batch.

        The region ends at most at `end`, a batch border; it is None if no batch fits. The offset is None if the read
        was limited by `end` and not by `max_bytes`.
        """
        next_offset = None
        # Most reads at the tail want all there is, and need no header for that.
        if end - position > max_bytes:
            end, next_offset = self._border(position, position + max_bytes, at_least_one_batch)
        if end <= position:
            return None, next_offset
        # Opened here, so that the region holds its descriptor even if the segment is deleted before the answer is sent.
        log = self._log
        log.used = True
        return FileRegion(log.file or log.open(), position, end - position, self._files), next_offset

    def _border(self, start: int, limit: int, at_least_one_batch: bool) -> tuple[int, int | None]:
        # The last batch border in [start, limit], or the end of the first batch. The batch beyond it is where a reader
        # that goes on will ask next, so its place is kept.
        border = max(start, self._floor_position(limit))
        for header, position in scan_batches(self._log.open(), border, self.size):
            end = position + header.size_in_bytes
            if end <= limit:
                continue
            # A batch larger than the limit is given all the same, or its reader would never get past it.
            if position == start and at_least_one_batch:
                return end, header.next_offset
            self._note_cursor(header.base_offset, position)
            return position, header.base_offset
        return self.size, None

    def _floor_position(self, limit: int) -> int:
        positions = self._recent_positions
        # In memory for the last batches; only below them the index is asked.
        if positions and positions[0] <= limit:
            return positions[bisect_right(positions, limit) - 1]
        return self.offset_index.floor_position(limit)

    def _note_cursor(self, offset: int, position: int) -> None:
        cursors = self._cursors
        if cursors is None:
            cursors = self._cursors = {}
        # The oldest goes, since its reader has probably read on from elsewhere.
        elif len(cursors) >= CURSORS_MAX:
            del cursors[next(iter(cursors))]
        cursors[offset] = position

    def read_next_offset(self) -> int:
        """Return the offset after the last batch; reads from the last index entry on."""
        next_offset = self.base_offset
        if not self.size:
            return next_offset
        _, start = self.offset_index.last_entry()
        for header, _ in scan_batches(self._log.open(), start, self.size):
            next_offset = header.next_offset
        return next_offset

    # --- timestamps ---------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """Highest timestamp in the segment, or -1."""
        if self._max_timestamp is None:
            if not self.size:
                return -1
            self._load_max_timestamp()
            assert self._max_timestamp is not None
        return self._max_timestamp

    def _load_max_timestamp(self) -> None:
        index = self.time_index
        if self._max_timestamp is not None:  # opening the index found it broken and made it again
            return
        timestamp, offset, start = index.last_timestamp, index.last_offset, self.end_of_known_times()
        # The indexes may be good, but lack the times of so many batches that reading them would hold the event loop up.
        if self.defers_repair and self.size - start > REPAIR_AT_ONCE_BYTES:
            raise DamagedIndexes(self, CorruptIndex("its largest timestamp is not known"))
        for header, _ in scan_batches(self._log.open(), start, self.size):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self.offset_of_max_timestamp = timestamp, offset

    @property
    def knows_its_times(self) -> bool:
        """True if `max_timestamp` is known without reading the file."""
        return self._max_timestamp is not None or not self.size

    def end_of_known_times(self) -> int:
        """Return the position after which timestamps may be higher than those in the time index."""
        # Whenever the offset index gets an entry, the time index gets the maximum up to there, if it is news. Without
        # any time nothing is certain: the file may be a lost one.
        return self.offset_index.last_entry()[1] if self.time_index.entries else 0

    def modified_ms(self) -> int:
        """Return the time at which the file of the records was last written. Raises OSError."""
        return self._files.storage.modified_ms(self._log.path)

    def largest_timestamp(self) -> int:
        """Return the highest timestamp, or the file's modification time if records have none; for retention."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.modified_ms()

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self, files: FileCache) -> Segment:
        """Return a copy of this segment for a thread to read; it opens its own files and never writes."""
        snapshot = Segment(
            files, self._directory, self.base_offset, size=self.size, created_ms=self.created_ms, suffix=self._suffix
        )
        if self._offset_index is not None and self._time_index is not None:
            # Copies, because the event loop adds entries to its own while the thread reads.
            snapshot._offset_index = self._offset_index.copied(files, is_snapshot=True)
            snapshot._time_index = self._time_index.copied(files, is_snapshot=True)
        snapshot._is_snapshot = True
        snapshot._max_timestamp = self._max_timestamp
        snapshot.offset_of_max_timestamp = self.offset_of_max_timestamp
        snapshot.known_first_timestamp = self.known_first_timestamp
        return snapshot

    def learn(self, snapshot: Segment) -> None:
        """Adopt the indexes and timestamps of `snapshot`, a copy of this segment that may lack later appends."""
        if snapshot._was_rebuilt:
            self._learn_indexes(snapshot)
        elif self._offset_index is None and snapshot._offset_index is not None and snapshot._time_index is not None:
            self._set_indexes(snapshot._offset_index.copied(self._files), snapshot._time_index.copied(self._files))
        if self._max_timestamp is None:
            self._max_timestamp = snapshot._max_timestamp
            self.offset_of_max_timestamp = snapshot.offset_of_max_timestamp
        if self.known_first_timestamp is None:
            self.known_first_timestamp = snapshot.known_first_timestamp

    def _learn_indexes(self, snapshot: Segment) -> None:
        # What was appended while the thread worked is added here: that is little.
        for header, position in scan_batches(self._log.open(), snapshot.size, self.size, LARGE_SCAN_BYTES):
            snapshot.index_batch(header, position, REPAIR_INTERVAL_BYTES)
        self._adopt(snapshot)

    # --- cutting, closing ---------------------------------------------------------------------------------------------

    def plan_cut(self, offset: int) -> SegmentCut:
        """Plan a truncation: the segment will end before the batch that contains `offset`. Changes nothing."""
        # Everything is looked up in the indexes before any of them is cut.
        position = self.locate(offset)
        transactions = 0 if self.txn_index is None else self.txn_index.cut_at(offset)
        offset_index, time_index = self.offset_index.cut_at(offset), self.time_index.cut_at(offset)
        return SegmentCut(self._log.open(), position, offset_index, time_index, transactions)

    def cut(self, cut: SegmentCut, now_ms: int) -> None:
        """Truncate the segment as planned by `plan_cut`; after an OSError it is unchanged."""
        if cut.position is not None:
            # The call that decides comes first. If it fails, no index has changed; those follow in memory.
            insist(cut.file.truncate, cut.position)
            self.size = cut.position
        if self._offset_index is not None and self._time_index is not None:
            self._offset_index.cut(cut.offset_index)
            self._time_index.cut(cut.time_index)
        if self.txn_index is not None:
            self.txn_index.cut(cut.transactions)
        if not self.size:
            self.created_ms = now_ms
        # Nobody knows how far the last entry is now. To count from 0 makes the next one later than it might be, which
        # is allowed.
        self.bytes_since_last_index_entry = 0
        self.indexes_are_full = False
        self._forget_contents()
        with contextlib.suppress(OSError):  # the files follow later
            self.save_indexes()

    def use_files(self, files: FileCache) -> None:
        """Open files through another cache from now on; all index entries must be saved."""
        super().use_files(files)
        self._forget_contents()

    def close(self) -> None:
        """Complete the indexes and close the files; the segment stays usable."""
        self.seal()
        self.release_files()
