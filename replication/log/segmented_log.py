"""Changes of a log's segments: new ones, old ones that retention deletes, cuts at the end, compacted ones in between.

Every change plans, then writes. It first reads and opens whatever it needs, and what fails there has changed nothing. Then
follow the calls that decide, in an order in which files and memory agree after each. What is known of the records that
went (leader epochs, producers) is forgotten behind them, in memory. Where a call fails that can be neither undone nor left
at that, the change is `Irreparable` and the whole log directory goes offline.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.durable_log import DurableLog
from ottla.replication.log.faults import Irreparable
from ottla.replication.log.log_reader import base_offset_of, guarded
from ottla.replication.log.names import FRESH_SUFFIX, SWAP_SUFFIX
from ottla.replication.log.producer_snapshots import producers_at
from ottla.replication.log.producers import ProducerStateManager
from ottla.replication.log.recovery import LoadedLog
from ottla.replication.log.removal import Removal, look_at_times
from ottla.replication.log.segment import Segment
from ottla.replication.log.segment_files import remove_files, remove_unfinished
from ottla.replication.log.segment_snapshots import DAY_MS, Truncation
from ottla.replication.log.storage import LogDirectory

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.compaction import Source

SEGMENTS_MAX = 2**31


class SegmentedLog(DurableLog):
    """Log whose segments are added, truncated, deleted and compacted, with its leader epochs and producers."""

    __slots__ = ("_config", "_producers", "first_dirty_offset", "has_rolled")

    def __init__(
        self, log_directory: LogDirectory, directory: str, name: str, config: LogConfig, parts: LoadedLog
    ) -> None:
        super().__init__(
            log_directory,
            directory,
            name,
            parts.segments,
            log_start_offset=parts.log_start_offset,
            log_end_offset=parts.log_end_offset,
            recovery_point=parts.recovery_point,
            epochs=parts.epochs,
            snapshots=parts.snapshots,
        )
        self._config = config
        self._producers = parts.producers
        self.first_dirty_offset = -1  # below it the log is compacted; -1: unknown
        self.has_rolled = False
        """True if a segment was finished and its flush is not requested yet. Kept here, because the append may fail after that."""

    # --- a new one ----------------------------------------------------------------------------------------------------

    @guarded
    def roll(self, now_ms: int) -> bool:
        """Begin a new segment unless the last one is empty; return True if one was begun."""
        return self._roll(now_ms, self.log_end_offset)

    def _roll(self, now_ms: int, base_offset: int) -> bool:
        """Begin a new segment at `base_offset` unless the last one begins there; return True if one was begun.

        After an OSError the last segment stays active.
        """
        active = self._segments[-1]
        if base_offset == active.base_offset:
            return False
        assert base_offset > active.base_offset, f"roll at {base_offset} below {active.base_offset}"
        # First all that can fail. If the disk is full here, the log goes on in the old segment. The snapshot may wait
        # for a flush, because the append that rolls waits for this.
        self._snapshots.take(base_offset, self._producers, may_wait=True)
        fresh = Segment.create(self.log_directory.files, self.directory, base_offset, created_ms=now_ms)
        fresh.defers_repair = active.defers_repair
        with contextlib.suppress(OSError):  # all is in memory; the flush of the segment saves it again
            active.seal()
        self._segments.append(fresh)
        self._name_changes += 1
        # The next flush has to sync the indexes of the old segment as well.
        self._has_sealed = self.has_rolled = True
        return True

    # --- at the beginning ---------------------------------------------------------------------------------------------

    def increase_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset; return True if it has changed."""
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset, f"log start offset {offset} beyond {self.log_end_offset}"
        self.log_start_offset = offset
        # A reader that asks for an epoch below the start would be sent to records that are gone.
        self._epochs.truncate_from_start(offset)
        if self._producers is not None:
            self._producers.on_log_start_offset(offset)
        return True

    @guarded
    def delete_old_segments(
        self,
        now_ms: int,
        high_watermark: int,
        *,
        limit: int = SEGMENTS_MAX,
        is_enough: Callable[[], bool] = lambda: False,
        removal: Removal | None = None,
    ) -> int:
        """Mark at most `limit` segments beyond retention as deleted, until `is_enough()`; return their number.

        `removal` gets an account of their records.
        """
        expired = self._expired(now_ms, high_watermark, limit)
        count = expired.total
        if not count:
            return 0
        # A log always has a segment to write to, so a new one comes before the last old one goes.
        if count == len(self._segments):
            self._roll(now_ms, self.log_end_offset)
        if removal is not None:
            self._account(removal, expired)
        # The start moves first: no reader may get a segment whose files are being removed.
        self.increase_log_start_offset(self._segments[count].base_offset)
        # The oldest first: where this breaks off the log is whole, and the next time goes on.
        for gone in range(1, count + 1):
            self._give_up(self._segments[0], now_ms)
            del self._segments[0]
            if removal is not None:
                removal.segments += 1
            if is_enough():
                return gone
        return count

    def _account(self, removal: Removal, expired: Expired) -> None:
        """Add the records of expired segments to `removal`; those below the log start offset went before."""
        config = self._config
        causes = f"retention.bytes={config.retention_bytes}", f"retention.ms={config.retention_ms}"
        for cause, (begin, end) in zip(causes, self._offsets_of(expired), strict=True):
            removal.add(cause, self, begin, end, is_compacted=config.is_compacted)

    def _offsets_of(self, expired: Expired) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) of offsets that go by size and by age; an empty one begins at its end or behind it."""
        by_size = expired.below_start + expired.by_size
        counts = expired.below_start, by_size, by_size + expired.by_age
        starts = [
            self._segments[each].base_offset if each < len(self._segments) else self.log_end_offset for each in counts
        ]
        return [(max(begin, self.log_start_offset), end) for begin, end in pairwise(starts)]

    def look_at_expired(self, now_ms: int, high_watermark: int, *, limit: int) -> None:
        """Read what `delete_old_segments` reads for the account of its records. Raises NotCached within `only_cached`."""
        for begin, end in self._offsets_of(self._expired(now_ms, high_watermark, limit)):
            look_at_times(self, begin, end)

    def _expired(self, now_ms: int, high_watermark: int, limit: int) -> Expired:
        """Return how many of the oldest segments are beyond retention, `limit` at most."""
        return expired_segments(
            self._segments,
            self._config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
            limit=limit,
        )

    # --- at the end ---------------------------------------------------------------------------------------------------

    def prepare_truncation(self, offset: int, *, now_ms: int) -> Truncation | None:
        """Return a truncation for a thread to prepare; None if so little has to be read that none is needed."""
        # Without producers nothing has to be read; outside of the segments there is nothing to read.
        if self._producers is None or not self._segments[0].base_offset <= offset < self.log_end_offset:
            return None
        return Truncation.of(self, self._snapshots, len(self._producers.producers), offset, now_ms)

    @guarded
    def truncate_to(self, offset: int, *, now_ms: int, truncation: Truncation | None = None) -> bool:
        """Remove all records from `offset` on; return True if there were any."""
        assert offset >= 0
        # The leader's log is no shorter, but an epoch without records may be one that the leader never had.
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        keep = bisect_right(self._segments, offset, key=base_offset_of)
        # Plan first: the place of the cut, and what is known of producers there. These reads may fail while all records
        # are still there.
        cut = self._segments[keep - 1].plan_cut(offset)
        log_start_offset = min(self.log_start_offset, offset)
        producers = None if truncation is None else truncation.producers_at(offset)
        # First: the snapshots that are left hold for the records that are left.
        self._snapshots.remove_outside(log_start_offset, offset)
        if self._producers is not None and producers is None:
            producers = self._producers_at(offset, log_start_offset, now_ms)
        # Carry out: later segments first, so that the log never has a gap. A failure after the first of them leaves a
        # log that is cut only in part, which nobody can undo.
        is_cut = self._drop_segments(keep, now_ms)
        try:
            self._segments[-1].cut(cut, now_ms)
        except OSError as error:
            if not is_cut:
                raise
            raise Irreparable(f"{self.name} is cut only in part", error) from error
        # Only memory from here on.
        self._note_cut(offset, first_dirty_offset=self._segments[-1].base_offset)
        self.log_start_offset = log_start_offset
        self._epochs.truncate_from_end(offset)
        self._producers = producers
        return True

    def _drop_segments(self, keep: int, now_ms: int) -> bool:
        """Remove all segments after the first `keep`, the last one first; return True if any were removed."""
        is_cut = False
        while len(self._segments) > keep:
            try:
                self._give_up(self._segments[-1], now_ms)
            except OSError as error:
                if not is_cut:
                    raise
                raise Irreparable(f"{self.name} is cut only in part", error) from error
            del self._segments[-1]
            is_cut = True
        return is_cut

    def _note_cut(self, offset: int, *, first_dirty_offset: int) -> None:
        # A flush that is under way has synced records that are gone. It sees by this count that it must not move the
        # recovery point.
        self._cuts += 1
        self.layout += 1
        self.log_end_offset = offset
        # The checkpoints on the disk still have the old offsets. After a crash they would vouch for records that were
        # written later and never synced, or never compacted: a deletion marker among those would go before the value.
        if offset < self.recovery_point or first_dirty_offset < self.first_dirty_offset:
            self.recovery_point = min(self.recovery_point, offset)
            self.first_dirty_offset = min(self.first_dirty_offset, first_dirty_offset)
            if self.log_directory.on_cut is not None:
                self.log_directory.on_cut()

    @guarded
    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None, now_ms: int) -> None:
        """Remove all records; restart as an empty log at `offset`.

        Records below `log_start_offset` (None: `offset`) will be unreadable.
        """
        # An old segment may have the new one's name, so that is made beside it. What is called so does not count at a
        # start, and no thread knows the name.
        files = self.log_directory.files
        fresh = Segment.create(files, self.directory, offset, created_ms=now_ms, suffix=FRESH_SUFFIX)
        try:
            # All of them: none says anything about a log that begins at another offset.
            self._snapshots.remove_outside(1, 0)
            self._give_up(self._segments[-1], now_ms)
        except OSError:
            remove_unfinished(files.storage, fresh.paths())
            raise
        try:
            # The last one first, as in any cut. From here on there is no way back.
            for segment in reversed(self._segments[:-1]):
                self._give_up(segment, now_ms)
            fresh.change_suffix("")
        except OSError as error:
            raise Irreparable(f"{self.name} cannot begin anew at {offset}", error) from error
        fresh.defers_repair = self._segments[-1].defers_repair
        self._segments = [fresh]
        self._note_cut(offset, first_dirty_offset=offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._epochs.clear()
        self._producers = None

    def _producers_at(self, offset: int, log_start_offset: int, now_ms: int) -> ProducerStateManager:
        bounds = {"log_start_offset": log_start_offset, "now_ms": now_ms, "expiration_ms": DAY_MS}
        return producers_at(offset, self._segments, self._snapshots, **bounds)

    # --- in between ---------------------------------------------------------------------------------------------------

    @guarded
    def replace_segments(self, sources: Sequence[Source], cleaned: Segment, *, now_ms: int) -> bool:
        """Replace the source segments by a compacted one; return False if the sources have changed meanwhile."""
        bases = [segment.base_offset for segment in self._segments[:-1]]
        # The cleaner worked in a thread meanwhile. Retention or a cut may have taken what it read, and then its work is
        # void.
        if sources[0].base_offset not in bases:
            return False
        first = bases.index(sources[0].base_offset)
        old = self._segments[first : first + len(sources)]
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        # From here on a restart takes the compacted segment, so the old ones may go. If the process ends in between,
        # the next start finishes the exchange.
        if not self._announce(cleaned):
            return False
        try:
            for segment in old[1:]:
                self._give_up(segment, now_ms)
            # The compacted segment begins at the same offset, so this snapshot is true for it as well.
            self._give_up(old[0], now_ms, keep_snapshot=True)
            cleaned.change_suffix("")
        except OSError as error:
            raise Irreparable(f"A compacted segment of {self.name} cannot take its place", error) from error
        # The cleaner had its own open files. Those of a log are counted and bounded together.
        cleaned.use_files(self.log_directory.files)
        cleaned.defers_repair = old[0].defers_repair
        self._segments[first : first + len(sources)] = [cleaned]
        return True

    def _announce(self, cleaned: Segment) -> bool:
        """Rename a compacted segment, so that from now on a restart completes the replacement.

        Returns False if the segment's files are gone.
        """
        try:
            cleaned.change_suffix(SWAP_SUFFIX)
        except FileNotFoundError:
            return False
        except OSError:
            # Files of these names would take the place of whatever is there at the next start.
            remove_files(self.log_directory.storage, [*cleaned.paths(SWAP_SUFFIX), *cleaned.paths()])
            raise
        return True

    # --- files that go ------------------------------------------------------------------------------------------------

    def _give_up(self, segment: Segment, now_ms: int, *, keep_snapshot: bool = False) -> None:
        """Mark a segment's files as deleted; after an OSError the segment is unchanged."""
        self.layout += 1
        due_ms = now_ms + self._config.file_delete_delay_ms
        paths = segment.give_up()
        self._name_changes += 1
        snapshot = None if keep_snapshot else self._snapshots.mark_deleted(segment.base_offset)
        for path in paths if snapshot is None else (*paths, snapshot):
            self.log_directory.remove_later(path, due_ms)


class Expired(NamedTuple):
    """Numbers of a log's oldest segments to delete, by reason. Segments of the first reason are the oldest."""

    below_start: int
    by_size: int = 0
    by_age: int = 0

    @property
    def total(self) -> int:
        return self.below_start + self.by_size + self.by_age


def expired_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    limit: int,
) -> Expired:
    """Return how many of the oldest segments to delete, at most `limit`, like Kafka's UnifiedLog.deleteOldSegments.

        below the log start offset    always, whatever cleanup.policy is: DeleteRecords
        beyond retention.bytes        cleanup.policy=delete
        older than retention.ms       cleanup.policy=delete

    Whole segments are deleted, oldest first, and never above the high watermark. The last segment may be deleted, too,
    unless it is empty; the log then continues in a new segment.

    A log may have very many segments, so they are not all examined, except to add up their sizes where necessary.
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
    below_start = count
    # A topic that is only compacted keeps its records however old and many they are.
    if not config.is_deleting:
        return Expired(below_start)
    # Step 3: by size. As in Kafka, a segment goes only if what is left is not less than the limit.
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while count < eligible and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    by_size = count - below_start
    # Step 4: by age, last of all: it reads the times of segments, and step 3 may have settled the oldest ones.
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        while count < eligible and segments[count].largest_timestamp() < oldest_ms:
            count += 1
    return Expired(below_start, by_size, count - below_start - by_size)
