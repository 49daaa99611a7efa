"""The `.snapshot` files of a log: producer state as it was when the log ended at the offset in the file's name.

One is taken when a segment is rolled and one when the log is closed. The flush of the finished segment syncs it: a torn one
fails its checksum, and the one before it, plus the log since, takes its place as long as retention has left them.

Where many producers are known, a roll only remembers what there is to write (`PendingSnapshot`), because the append that
rolls cannot wait for it. The next flush writes it in a thread, under a name that a restart removes; it counts, and gets its
name, when the log hears of it. Until then a restart has a segment more to read.

The producer state at an offset (`producers_at`) is the newest good snapshot, and the batches after it. A snapshot holds one batch of each
producer, but a producer may send again any of the last five. So the batches shortly before the snapshot are read as well.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from ottla.replication.log.atomic_files import IsStill, keeps_directory
from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_path
from ottla.replication.log.producers import (
    WINDOW,
    CorruptSnapshot,
    ProducerEntry,
    ProducerStateManager,
    decode_snapshot,
    encode_producers,
)
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.storage import Storage, StorageFile
from ottla.wire.control_batches import EndTxnMarker, end_txn_marker_in
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.storage import Buffer
    from ottla.wire.records import BatchHeader

logger = logging.getLogger(__name__)

_EMPTY = ProducerStateManager().encode_snapshot()
PRODUCERS_AT_ONCE = 1000
EARLIER_BYTES = 256 * 1024
EARLIER_RECORDS = (10_000, 1_000, 100, 10)
RETRIES_MS = 15 * 60_000  # longer than clients try by default


def encoded_producers(producers: ProducerStateManager | None) -> bytes:
    """Return the contents of a `.snapshot` file; None: there are no producers."""
    return _EMPTY if producers is None else producers.encode_snapshot()


# | state    | begins with                 | the producers | is left when                                     |
# |----------|-----------------------------|---------------|--------------------------------------------------|
# | wanted   | a roll with many producers  | are held      | `finish` hears of its flush, or it is given up   |
# | counts   | `finish`, if it was written | are free      | the log is cut, or its segment is removed        |
# | given up | the next snapshot, a cut, a | are free      | `finish` removes what a thread has written of it |
# |          | removal of its segment      |               |                                                  |
class PendingSnapshot:
    """A snapshot that a thread writes; its producer entries do not change until `release`."""

    def __init__(
        self, storage: Storage, offset: int, path: str, producers: ProducerStateManager, is_still: IsStill
    ) -> None:
        self.offset = offset
        self.path = path
        self.is_written = False
        self._storage = storage
        self._producers = producers
        self._is_still = is_still
        self._entries = producers.hold()

    @property
    def unfinished_path(self) -> str:
        """Temporary path until the snapshot is renamed."""
        return self.path + DELETED_SUFFIX

    def run(self) -> None:
        """Write the snapshot to its temporary path; called in a thread."""
        data = encode_producers(self._entries.values())
        # The directory was renamed or deleted. Another log may have its name by now, and a snapshot of the same offset: with
        # these producers that one would take records twice.
        with contextlib.suppress(FileNotFoundError):
            self._storage.write(self.unfinished_path, data, sync=True, is_still=self._is_still)
            self.is_written = True

    def release(self) -> None:
        """Allow changes to the producer entries again."""
        self._producers.release()


class ProducerSnapshots:
    """Producer snapshots of one log."""

    __slots__ = ("_is_copy", "_storage", "directory", "offsets", "pending")

    def __init__(self, storage: Storage, directory: str, offsets: Iterable[int] = (), *, is_copy: bool = False) -> None:
        self._storage = storage
        self._is_copy = is_copy
        self.directory = directory
        self.offsets = sorted(offsets)
        self.pending: PendingSnapshot | None = None

    def copied(self) -> ProducerSnapshots:
        """Return a copy for a thread. It never removes files, because the log may have replaced them meanwhile."""
        return ProducerSnapshots(self._storage, self.directory, self.offsets, is_copy=True)

    def up_to(self, end: int) -> ProducerSnapshots:
        """Return a copy without the snapshots above `end`."""
        offsets = self.offsets[: bisect_right(self.offsets, end)]
        return ProducerSnapshots(self._storage, self.directory, offsets, is_copy=self._is_copy)

    def latest_before(self, offset: int) -> int:
        """Return the offset of the newest snapshot at or below `offset`; -1 if there is none."""
        slot = bisect_right(self.offsets, offset)
        return self.offsets[slot - 1] if slot else -1

    @property
    def latest_offset(self) -> int:
        """Offset of the newest snapshot, or -1."""
        return self.offsets[-1] if self.offsets else -1

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def take(self, offset: int, producers: ProducerStateManager | None, *, may_wait: bool = False) -> None:
        """Write a snapshot of `producers` (None: no producers) for a log that ends at `offset`.

        With `may_wait` a large snapshot is left to the next flush.
        """
        # The newer one takes its place: at most one is pending.
        self._give_up_pending()
        if may_wait and producers is not None and len(producers.producers) > PRODUCERS_AT_ONCE:
            if offset > self.latest_offset:
                self.pending = self._pending(offset, producers)
        elif offset > self.latest_offset:
            data = encoded_producers(producers)
            # Known before it is there: if the write fails and its rest cannot be removed, a truncation must find it.
            insort(self.offsets, offset)
            try:
                self._storage.write(self.path(offset), data)
            except OSError:
                self.remove(offset)
                raise

    def _pending(self, offset: int, producers: ProducerStateManager) -> PendingSnapshot:
        return PendingSnapshot(self._storage, offset, self.path(offset), producers, keeps_directory(self))

    def _give_up_pending(self) -> None:
        if self.pending is not None:
            self.pending.release()
            self.pending = None

    def finish(self, written: PendingSnapshot) -> None:
        """Rename the snapshot that a thread has written, if it is still needed; otherwise remove it."""
        is_wanted = written is self.pending
        if is_wanted:
            self._give_up_pending()
        # The log may have moved to another directory meanwhile. Then a file of that path is another log's.
        if written.path != self.path(written.offset):
            return
        with contextlib.suppress(OSError):  # a restart removes what is left
            # It was given up while the thread wrote it: it may speak of records that were cut off.
            if not is_wanted:
                self._storage.remove(written.unfinished_path)
            elif written.is_written:
                self._storage.rename(written.unfinished_path, written.path)
                insort(self.offsets, written.offset)

    def load_latest(self, *, now_ms: int, expiration_ms: int) -> tuple[int, list[ProducerEntry]] | None:
        """Return offset and producers of the newest valid snapshot, or None; remove invalid snapshots."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                data = self._storage.read(self.path(offset))
                return offset, decode_snapshot(data, now_ms=now_ms, expiration_ms=expiration_ms)
            except (CorruptSnapshot, FileNotFoundError):
                self.remove(offset)
        return None

    def forget(self, offsets: Iterable[int]) -> None:
        """Forget snapshots whose files were deleted."""
        gone = frozenset(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in gone]

    def remove(self, offset: int) -> None:
        """Delete the snapshot at `offset`, if it exists."""
        if offset in self.offsets:
            if not self._is_copy:
                self._storage.remove(self.path(offset))
            self.offsets.remove(offset)

    def remove_outside(self, start: int, end: int) -> None:
        """Delete the snapshots outside [start, end]."""
        if self.pending is not None and not start <= self.pending.offset <= end:
            self._give_up_pending()
        for offset in [offset for offset in self.offsets if not start <= offset <= end]:
            self.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Delete snapshots at offsets where no segment begins, except the newest one, which the last shutdown wrote."""
        known = {*base_offsets, self.latest_offset}
        for offset in [offset for offset in self.offsets if offset not in known]:
            self.remove(offset)

    def file_to_sync(self, offset: int) -> StorageFile | None:
        """Open the snapshot at `offset` for a flush; None if there is none."""
        if offset in self.offsets:
            with contextlib.suppress(FileNotFoundError):
                return self._storage.open(self.path(offset))
        return None

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot at `offset` to a deleted name; return the path to remove later.

        Returns None if there is no snapshot or the rename failed, which is harmless.
        """
        if self.pending is not None and self.pending.offset == offset:
            self._give_up_pending()
        if offset not in self.offsets:
            return None
        try:
            self._storage.rename(self.path(offset), self.path(offset) + DELETED_SUFFIX)
        except OSError:
            return None
        self.offsets.remove(offset)
        return self.path(offset) + DELETED_SUFFIX


# --- producer state at an offset


def marker_of(header: BatchHeader, batch: Buffer) -> EndTxnMarker | None:
    """Return the transaction marker in a batch; None for other batches and for batches emptied by compaction."""
    if not header.is_control or header.producer_id < 0:
        return None
    return end_txn_marker_in(batch)


def producers_at(
    offset: int,
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerStateManager:
    """Return the producer state as it would be if the log ended at `offset`."""
    producers = ProducerStateManager()
    # A list of its own: snapshots beyond `offset` are of no use here, but still belong to the log.
    usable = snapshots.up_to(offset)
    loaded = usable.load_latest(now_ms=now_ms, expiration_ms=expiration_ms)
    # Damaged ones are gone. A later flush would otherwise rely on them and not write them again.
    snapshots.forget(o for o in snapshots.offsets if o <= offset and o not in usable.offsets)
    if loaded is None:
        # Without a snapshot everything that is left of the log is read.
        producers.map_end_offset = log_start_offset
    else:
        producers.load(loaded[1], loaded[0])
        _fill_windows(producers, segments, now_ms)
    start = max(producers.map_end_offset, log_start_offset)
    for segment, end in zip(segments, [*(s.base_offset for s in segments[1:]), 2**63], strict=True):
        if end > start and segment.base_offset < offset and segment.size:
            try:
                _replay(producers, segment, start, offset)
            # The log is in service. Its caller has a thread repair the segment, and comes again.
            except DamagedIndexes:
                raise
            except (CorruptSegment, KafkaError) as error:
                # A log whose records can be served is not refused because a producer may have to begin again.
                logger.error("Producers may be missing, as %r cannot be read: %s", segment, error)
    producers.map_end_offset = offset
    return producers


def _fill_windows(producers: ProducerStateManager, segments: Sequence[Segment], now_ms: int) -> None:
    """Restore each producer's batches from before the snapshot, so that resent ones are recognized.

    As in Kafka, batches that are not found count as unknown.
    """
    end, left = producers.map_end_offset, EARLIER_BYTES
    # With their default settings clients have given up by now, so a start need not read for them.
    if now_ms - max([each.last_timestamp for each in producers.producers.values()], default=0) > RETRIES_MS:
        return
    headers: list[BatchHeader] = []
    try:
        for segment in reversed([each for each in segments if each.size and each.base_offset < end]):
            start = _start_of_tail(segment, end, left)
            batches = scan_batches(segment.log_file.open(), start, segment.size, LARGE_SCAN_BYTES)
            # Segments come from the end to the beginning, and their batches have to be in the order of the log.
            headers[:0] = [header for header, _ in takewhile(lambda found: found[0].base_offset < end, batches)]
            left -= segment.size - start
            known = Counter([header.producer_id for header in headers])
            # Enough was read, or the rest of this segment was passed over, or the last batches of all producers are
            # known.
            if left <= 0 or start or all(known[producer_id] >= WINDOW for producer_id in producers.producers):
                break
    except (CorruptIndex, CorruptSegment, KafkaError) as error:
        logger.warning("Retries of producers may not be known, as the end of the log cannot be read: %s", error)
    else:
        producers.remember_earlier(headers)


def _start_of_tail(segment: Segment, end: int, size: int) -> int:
    """Return a position at most `size` bytes before the segment's end; the end itself if finding one is expensive."""
    if segment.size <= size:
        return 0
    # Batches cannot be read backwards. So a place is tried that is many offsets before the end, then nearer ones.
    for records in EARLIER_RECORDS:
        position = segment.locate(max(segment.base_offset, end - records))
        if position is not None and segment.size - position <= size:
            return position
    return segment.size


def _replay(producers: ProducerStateManager, segment: Segment, start: int, end: int) -> None:
    position = segment.locate(max(start, segment.base_offset))
    if position is None:
        return
    file = segment.log_file.open()
    for header, at in scan_batches(file, position, segment.size, LARGE_SCAN_BYTES):
        if header.last_offset >= end:  # what holds `end` is not part of a log that ends there
            return
        if header.producer_id >= 0 and header.base_offset >= start:
            marker = marker_of(header, file.read_at(at, header.size_in_bytes)) if header.is_control else None
            producers.apply(producers.note(header, marker))
