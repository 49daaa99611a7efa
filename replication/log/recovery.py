"""Log recovery: load a log from its directory, after an orderly shutdown or a crash.

What a crash can leave, and what is done about it, in this order:

1. `.deleted` files were on their way out: removed. `.cleaned` files are unfinished work of the cleaner: removed. `.swap`
   files are finished work that was about to take its place: segments they cover are removed, then they are renamed.
2. Index files without their `.log` are removed. A `.log` without `.index` is read through and gets new indexes.
3. Without the marker of an orderly shutdown everything from the recovery point on is checked. Every batch of those segments
   is read and checked (size, checksum, offsets in order), and indexes, leader epochs and producer state are rebuilt on the way.
   At the first bad byte the segment is cut and later segments are given up. A segment that lost its end at a batch
   border shows as a gap before the next one (see below). After a power cut, batches truncated for another leader may be
   back, and later ones lost. Then the batches' epochs count, not those of the leader epoch checkpoint; otherwise this
   replica would not notice that its leader has other batches at these offsets.
4. Segments that end below the log start offset mean that files were lost: the log begins empty at that offset.
5. Producer state is the newest good snapshot plus the batches after it (`producer_snapshots.py`).

Gaps
    A gap between two batches of one file is never damage, whatever the topic's policy says today: compaction leaves gaps,
    and replicas copy them. A gap between two files is where the first lost its end, if
    * it is above the recovery point, and that is known: compaction works below it, and appends begin a new segment where
      the last one ends. Without a recovery point everything is read, and no gap proves anything.
    * it is above what was compacted: Kafka notes that at once, but its recovery point only once a minute.
    * there is no gap within any file above the recovery point: other brokers let a segment begin with its first batch, so in
      a log that was compacted once a gap may lie between two files as anywhere else.
    Apache Kafka has no such check; it serves the log with the hole.

Other indexes are opened when they are first used and rebuilt then if they contradict the log (`segment.py`).
Recovery may take long and runs in a thread; no other task uses the log yet.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches, valid_batches
from ottla.replication.log.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
)
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.leader_epochs import LeaderEpochs
from ottla.replication.log.log_reader import base_offset_of
from ottla.replication.log.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    path_in,
)
from ottla.replication.log.producer_snapshots import ProducerSnapshots, marker_of, producers_at
from ottla.replication.log.producers import ProducerStateManager
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.wire.records import (
    MAGIC_V2,
)

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """Contents of a loaded and, if necessary, repaired log."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStateManager | None
    snapshots: ProducerSnapshots
    topic_id: bytes | None


class LoadOptions(NamedTuple):
    """Checkpointed offsets, clean-shutdown mark and time for loading a log.

    The log is compacted below `first_dirty_offset` (-1: never or unknown). `topic_id` is None if not read beforehand.
    """

    log_start_offset: int = 0
    recovery_point: int = 0
    had_clean_shutdown: bool = False
    now_ms: int = 0
    producer_id_expiration_ms: int = 86_400_000
    is_recovery_point_known: bool = True
    first_dirty_offset: int = -1
    topic_id: bytes | None = None


def load_log(log_directory: LogDirectory, directory: str, config: LogConfig, options: LoadOptions) -> LoadedLog:
    """Load a partition's directory. Raises OSError if the disk fails."""
    return _Loader(log_directory, directory, config, options).load()


class _Loader:
    def __init__(self, log_directory: LogDirectory, directory: str, config: LogConfig, options: LoadOptions) -> None:
        self._files = log_directory.files
        self._storage = log_directory.storage
        self._directory = directory
        self._config = config
        self._options = options
        self._names: set[str] = set()
        self._segments: list[Segment] = []
        self._has_gaps = False  # within the files that were read through
        self._epochs = LeaderEpochs()
        self._snapshots = ProducerSnapshots(self._storage, directory)

    def load(self) -> LoadedLog:
        options = self._options
        self._names = set(self._storage.names(self._directory))
        # Before anything else: it decides which files there are.
        self._finish_interrupted_work()
        # Before the segments are read, because their batches correct these.
        self._epochs = self._read_epochs()
        self._open_segments()
        if not options.had_clean_shutdown:
            self._recover_from(options.recovery_point)
        log_end_offset = self._end_or_begin_anew()
        log_start_offset = max(options.log_start_offset, self._segments[0].base_offset)
        # The checkpoint may be ahead of a log that lost its end, or behind one whose start has moved.
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._snapshots.remove_strays(segment.base_offset for segment in self._segments)
        return LoadedLog(
            self._segments,
            log_start_offset,
            log_end_offset,
            # An orderly shutdown has synced everything. What was recovered is in the files, but nobody knows whether
            # on the disk.
            log_end_offset if options.had_clean_shutdown else min(options.recovery_point, log_end_offset),
            self._epochs,
            self._load_producers(log_start_offset, log_end_offset),
            self._snapshots,
            self._read_topic_id(),
        )

    def _path(self, name: str) -> str:
        return path_in(self._directory, name)

    def _remove(self, name: str) -> None:
        self._storage.remove(self._path(name))
        self._names.discard(name)

    # --- 1: files on their way in or out ------------------------------------------------------------------------------

    def _segment_files(self) -> list[tuple[SegmentFile, str]]:
        return [(file, name) for name in sorted(self._names) if (file := parse_segment_file(name)) is not None]

    def _finish_interrupted_work(self) -> None:
        # Nearly always there are none, and only this look at the names is needed.
        if not any(name.endswith(SUFFIXES) for name in self._names):
            return
        files = [(file, name) for file, name in self._segment_files() if file.suffix]
        if not files:
            return
        first_cleaned = min((file.offset for file, _ in files if file.suffix == CLEANED_SUFFIX), default=None)
        swaps = []
        for file, name in files:
            # A swap file at or above an unfinished cleaned one is half of a split that did not get far enough.
            if file.suffix == SWAP_SUFFIX and (first_cleaned is None or file.offset < first_cleaned):
                swaps.append((file, name))
            else:
                self._remove(name)
        self._swap_in(swaps)

    def _swap_in(self, swaps: list[tuple[SegmentFile, str]]) -> None:
        # The offsets that the new segments cover. Any plain segment in there is one that they replace.
        start, end = 2**63, -1
        for file, name in swaps:
            if file.kind == LOG_SUFFIX:
                size = self._storage.size(self._path(name))
                segment = Segment(
                    self._files, self._directory, file.offset, size=size, created_ms=0, suffix=SWAP_SUFFIX
                )
                start, end = min(start, file.offset), max(end, segment.read_next_offset())
                segment.release_files()
        for file, name in self._segment_files():
            # The old segments go first. If a crash comes here, the swap files are still there, and the next start
            # goes on.
            if not file.suffix and start <= file.offset < end:
                self._remove(name)
        for _, name in swaps:
            plain = name.removesuffix(SWAP_SUFFIX)
            self._storage.rename(self._path(name), self._path(plain))
            self._names.discard(name)
            self._names.add(plain)

    # --- 2: segments as they are --------------------------------------------------------------------------------------

    def _open_segments(self) -> None:
        names = self._names
        damaged = []
        for file, name in self._segment_files():
            stem = name.removesuffix(file.kind)
            if file.kind == SNAPSHOT_SUFFIX:
                self._snapshots.offsets.append(file.offset)
            elif file.kind == LOG_SUFFIX:
                segment = self._open_segment(file.offset, name)
                self._segments.append(segment)
                if stem + INDEX_SUFFIX not in names or not self._open_txn_index(segment, stem):
                    damaged.append(segment)
            elif stem + LOG_SUFFIX not in names:
                self._remove(name)
        self._snapshots.offsets.sort()
        self._remove_unused_segments()
        # What is read through anyway in the next step must not be looked at before.
        trusted = len(self._segments)
        if not self._options.had_clean_shutdown:
            trusted = self._first_to_recover(self._options.recovery_point)
        # A set, because a log may have very many segments.
        believed = set(self._segments[:trusted])
        for segment in damaged:
            if segment not in believed:
                continue
            logger.warning("Rebuilding the indexes of %r", segment)
            self._recover_segment(segment, self._producers_at(segment.base_offset))

    def _remove_unused_segments(self) -> None:
        # What is left of a roll that failed, where its removal did not reach the disk: the segment before went on.
        # From the end, because segments are taken out on the way.
        for index in range(len(self._segments) - 1, 0, -1):
            segment, before = self._segments[index], self._segments[index - 1]
            # A snapshot, so that this look does not repair indexes that are made again later.
            if not segment.size and _end_of(before.snapshot(self._files)) > segment.base_offset:
                logger.warning("%r was never used", segment)
                self._give_up([segment])
                del self._segments[index]

    def _open_segment(self, base_offset: int, name: str) -> Segment:
        size = self._storage.size(self._path(name))
        return Segment(self._files, self._directory, base_offset, size=size, created_ms=self._options.now_ms)

    def _open_txn_index(self, segment: Segment, stem: str) -> bool:
        if stem + TXN_INDEX_SUFFIX not in self._names:
            return True
        segment.open_txn_index()
        try:
            if segment.txn_index is not None:
                segment.txn_index.sanity_check(segment.base_offset)
        except CorruptIndex:
            return False
        return True

    # --- 3: what was written since the recovery point -----------------------------------------------------------------

    def _recover_from(self, recovery_point: int) -> None:
        first = self._first_to_recover(recovery_point)
        if first == len(self._segments):
            return
        # The state before the first unbelieved batch. All that follows is added batch by batch.
        producers = self._producers_at(self._segments[first].base_offset)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if index > first and self._is_damage(producers.map_end_offset, index):
                logger.warning("Records before %r are missing; giving up later ones", segment)
                self._give_up_from(index)
                return
            if not self._recover_segment(segment, producers, gives_up_later_ones=True):
                return

    def _is_damage(self, end_offset: int, index: int) -> bool:
        base_offset = self._segments[index].base_offset
        # Segments that overlap would hold two batches for one offset.
        if end_offset >= base_offset:
            return end_offset > base_offset
        if base_offset <= self._options.first_dirty_offset:
            return False
        return self._options.is_recovery_point_known and not (
            self._has_gaps or any(_has_gaps(segment) for segment in self._segments[index:])
        )

    def _give_up_from(self, index: int) -> None:
        self._give_up(self._segments[index:])
        del self._segments[index:]

    def _first_to_recover(self, recovery_point: int) -> int:
        """Return the index of the segment with the recovery point; if the segment is empty, that of an earlier one."""
        first = bisect_right(self._segments, recovery_point, key=base_offset_of) - 1
        while first > 0 and not self._segments[first].size:
            first -= 1
        return max(0, first)

    def _recover_segment(
        self, segment: Segment, producers: ProducerStateManager, *, gives_up_later_ones: bool = False
    ) -> bool:
        """Rebuild all files of a segment from its batches; return True if all batches were valid.

        Truncates the segment at the first invalid batch; `gives_up_later_ones`: then give up all later segments, too.
        """
        file = segment.log_file.open()
        size = file.size()
        segment.size = size
        segment.reset_indexes()
        aborted: list[AbortedTransaction] = []
        valid_bytes = 0
        interval = self._config.index_interval_bytes
        # A gap before this segment has been judged. From here on it counts gaps within the file.
        producers.map_end_offset = segment.base_offset
        for header, batch, position in valid_batches(file, segment.base_offset, size, self._limit_of(segment)):
            if header.magic == MAGIC_V2 and header.base_offset != producers.map_end_offset:
                self._has_gaps = True  # a message set of old says its first offset only inside
            segment.index_batch(header, position, interval)
            if header.partition_leader_epoch >= 0:
                self._epochs.confirm(header.partition_leader_epoch, header.base_offset)
            aborted += producers.apply(producers.note(header, marker_of(header, batch)))
            producers.map_end_offset = header.next_offset
            valid_bytes = position + len(batch)
        if valid_bytes < size:
            logger.warning("Cutting %d bytes off %r", size - valid_bytes, segment)
            if gives_up_later_ones:  # before the cut: if this breaks off, the next recovery finds the damage again
                self._give_up_from(self._index_after(segment))
            file.truncate(valid_bytes)
        segment.size = valid_bytes
        # Only now is it known which batches stay. An index must not name what was cut off.
        segment.replace_transactions(aborted)
        segment.seal_anew()
        return valid_bytes == size

    def _limit_of(self, segment: Segment) -> int:
        following = self._index_after(segment)
        return self._segments[following].base_offset if following < len(self._segments) else 2**63

    def _index_after(self, segment: Segment) -> int:
        return bisect_right(self._segments, segment.base_offset, key=base_offset_of)

    def _give_up(self, segments: Sequence[Segment]) -> None:
        # The last one first: if this breaks off, what is left is still the beginning of the log.
        for segment in reversed(segments):
            segment.release_files()
            for path in segment.paths():
                self._storage.remove(path)
            self._snapshots.remove(segment.base_offset)

    # --- 4: the bounds ------------------------------------------------------------------------------------------------

    def _end_or_begin_anew(self) -> int:
        start = self._options.log_start_offset
        if self._segments:
            try:
                log_end_offset = self._segments[-1].read_next_offset()
            except CorruptSegment as error:
                logger.warning("Recovering %r after all: %s", self._segments[-1], error)
                # The mark of an orderly shutdown was wrong about this segment. It is treated as after a crash.
                self._recover_from(self._segments[-1].base_offset)
                log_end_offset = self._segments[-1].read_next_offset()
            if log_end_offset >= start:
                last = self._segments[-1]
                if last.size and not last.time_index.entries:  # then the whole segment has to be read, and not later
                    _ = last.max_timestamp
                # The first append needs this. The event loop would have to read it from the disk.
                with contextlib.suppress(CorruptSegment):  # a read or an append there will raise it again
                    last.first_batch_timestamp()
                return log_end_offset
            logger.warning("The log in %s ends at %d, below its start %d", self._directory, log_end_offset, start)
            # The log goes on at its start offset. Nothing below that may be read, and it would leave a gap.
            self._give_up(self._segments)
            self._segments.clear()
            self._epochs.clear()
        created_ms = self._options.now_ms
        self._segments.append(Segment.create(self._files, self._directory, start, created_ms=created_ms))
        return start

    # --- 5: producers -------------------------------------------------------------------------------------------------

    def _load_producers(self, log_start_offset: int, log_end_offset: int) -> ProducerStateManager | None:
        if not self._snapshots.offsets and self._options.had_clean_shutdown:
            return None  # an orderly shutdown leaves a snapshot if there is anything to say
        # A snapshot beyond the end speaks of records that are lost. Sent again, they would be taken for duplicates.
        self._snapshots.remove_outside(log_start_offset, log_end_offset)
        producers = self._producers_at(log_end_offset, log_start_offset)
        return None if producers.is_empty else producers

    def _producers_at(self, offset: int, log_start_offset: int | None = None) -> ProducerStateManager:
        options = self._options
        return producers_at(
            offset,
            self._segments,
            self._snapshots,
            log_start_offset=options.log_start_offset if log_start_offset is None else log_start_offset,
            now_ms=options.now_ms,
            expiration_ms=options.producer_id_expiration_ms,
        )

    # --- small files --------------------------------------------------------------------------------------------------

    def _read_epochs(self) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            return LeaderEpochs()
        try:
            return LeaderEpochs(decode_epochs(self._storage.read(self._path(LEADER_EPOCH_CHECKPOINT))))
        except CorruptCheckpoint as error:
            logger.warning("Forgetting %s in %s: %s", LEADER_EPOCH_CHECKPOINT, self._directory, error)
            return LeaderEpochs()

    def _read_topic_id(self) -> bytes | None:
        if self._options.topic_id is not None:
            return self._options.topic_id
        if PARTITION_METADATA not in self._names:
            return None
        try:
            return decode_partition_metadata(self._storage.read(self._path(PARTITION_METADATA)))
        except CorruptCheckpoint as error:
            logger.warning("Forgetting %s in %s: %s", PARTITION_METADATA, self._directory, error)
            return None


def _end_of(segment: Segment) -> int:
    """Return the offset after the segment's last valid batch."""
    try:
        return segment.read_next_offset()
    except CorruptSegment:
        batches = valid_batches(segment.log_file.open(), segment.base_offset, segment.size)
        return max((header.next_offset for header, _, _ in batches), default=segment.base_offset)


def _has_gaps(segment: Segment) -> bool:
    """Tell whether offsets are missing between a segment's readable batches."""
    next_offset = segment.base_offset
    with contextlib.suppress(CorruptSegment):
        for header, _ in scan_batches(segment.log_file.open(), 0, segment.size, LARGE_SCAN_BYTES):
            if header.magic == MAGIC_V2 and header.base_offset != next_offset:
                return True
            next_offset = header.next_offset
    return False
