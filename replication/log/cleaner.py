"""The log cleaner: choose the log to compact next, and compact it in threads.

A compacted log is clean below `first_dirty_offset`, which the cleaner-offset-checkpoint keeps. It may be cleaned up to the
segment that holds the last stable offset or the recovery point, up to the last segment, and up to the first segment that has
records younger than min.compaction.lag.ms, whichever comes first. The log with the largest share of dirty bytes is taken
first, once the share is above min.cleanable.dirty.ratio or a record has waited longer than max.compaction.lag.ms.

The work alternates between a thread, which reads and writes files that no other code writes to (`compaction.py`), and the event
loop, which looks after each piece whether the work still makes sense, and swaps finished segments in. What happens to the
log meanwhile wins: the pass notices and stops.

| what stops a pass                              | what follows                                                        |
|------------------------------------------------|---------------------------------------------------------------------|
| the log is deleted, cut, moved, or not         | What was swapped in stays. The log is as dirty as before, and is    |
| compacted any more; retention took a segment   | looked at anew. What the thread has met since is no failure.        |
| no room, no descriptor, a file that is gone, a | The log is as it was. Other logs are cleaned, this one is tried     |
| record that cannot be read, a log given up     | again after a while that doubles from try to try.                   |
| a broken disk                                  | The log directory goes offline.                                     |
| no batch where there has to be one             | The log is uncleanable: it is left as it is until the broker starts |
|                                                | again, as with Kafka.                                               |
"""

from __future__ import annotations

import contextlib
import logging
import math
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.replication.log.atomic_files import keeps_directory
from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.compaction import OPEN_FILES_MAX, Compaction, LastBatch, Limits, Source, Task
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import base_offset_of
from ottla.replication.log.names import LOG_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segment_snapshots import SURVEYED_AT_ONCE, Survey
from ottla.replication.log.storage import FileCache
from ottla.replication.log.transaction_index import IndexOfSegment
from ottla.wire.errors import KafkaError
from ottla.wire.time_slice import TimeSlice, paced

logger = logging.getLogger(__name__)

RunInThread = Callable[..., Awaitable[Any]]

PAUSE_MS = 15_000
PAUSE_MAX_MS = 600_000


class Cleanable(NamedTuple):
    """Part of a log to compact, from `first_dirty_offset` to `uncleanable_offset`, where a segment ends.

    The object is invalid if the log's own `cuts` is another number: the log was truncated since.
    """

    log: PartitionLog
    first_dirty_offset: int
    uncleanable_offset: int
    high_watermark: int
    dirty_ratio: float
    cuts: int


def cleanable(log: PartitionLog, last_stable_offset: int, high_watermark: int, now_ms: int) -> Cleanable | None:
    """Return the dirty part of a compacted log; None if there is too little to clean."""
    first_dirty = log.first_dirty_offset
    # The checkpoint is missing or of another log, or retention has passed it: all that is left counts as dirty.
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    segments = log.segments
    # Undecided records may still be aborted. Records that are not synced may be lost, when those before them with the
    # same key are gone already. The last segment is written to.
    uncleanable = min(last_stable_offset, log.recovery_point, segments[-1].base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    dirty = [segment for segment, end in zip(segments, ends, strict=True) if end > first_dirty][:-1]
    if lag_ms > 0:
        # From the first young segment on everything waits, because a log is clean up to one offset.
        young = (segment.base_offset for segment in dirty if segment.largest_timestamp() > now_ms - lag_ms)
        uncleanable = min(uncleanable, next(young, uncleanable))
    # A segment is cleaned as a whole, or markers behind the border would be taken for those of no transaction.
    uncleanable = segments[max(0, bisect_right(segments, uncleanable, key=base_offset_of) - 1)].base_offset
    dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < uncleanable)
    if first_dirty >= uncleanable or not dirty_bytes:
        return None
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < first_dirty)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    if ratio > log.config.min_cleanable_dirty_ratio or _is_overdue(dirty, log.config.max_compaction_lag_ms, now_ms):
        return Cleanable(log, first_dirty, uncleanable, high_watermark, ratio, log.cuts)
    return None


def _is_overdue(dirty: Iterable[Segment], lag_ms: int, now_ms: int) -> bool:
    # Records without a time are not overdue. With the default lag none is, and no file has to be read for that.
    return now_ms > lag_ms and any(0 < segment.first_batch_timestamp() < now_ms - lag_ms for segment in dirty)


class _Pause(NamedTuple):
    """Pause in the cleaning of a log after a failure. It holds the log, because a new log may get the directory."""

    log: PartitionLog
    until_ms: float
    length_ms: int


class _Aborted(Exception):
    """Error raised if a log has changed or must not be cleaned any more."""


@contextlib.contextmanager
def _in_vain_unless(check: Callable[[], None]) -> Iterator[None]:
    """Context that calls `check` on a file error, then raises the error; `check` raises if the log was replaced."""
    try:
        yield
    except (FileNotFoundError, CorruptSegment, CorruptIndex, KafkaError):
        check()
        raise


async def _at_once(size: int) -> None:
    """Do nothing; stands in for `pay` if compaction is not throttled."""


class LogCleaner:
    """Compactor of logs, several at a time if configured; `pay(bytes)` throttles reads and writes."""

    def __init__(
        self,
        run_in_thread: RunInThread,
        clock_ms: Callable[[], int],
        give_way: Callable[[], None] | None = None,
        pay: Callable[[int], Awaitable[None]] = _at_once,
    ) -> None:
        self._run_in_thread = run_in_thread
        self._clock_ms = clock_ms
        self._give_way = paced() if give_way is None else give_way
        self._pay = pay
        self._pauses: dict[str, _Pause] = {}
        self._at_work: set[str] = set()  # the directories that threads write into, by path

    @property
    def paused_count(self) -> int:
        """Number of logs whose last cleaning failed; a later success removes a log from this number."""
        return len(self._pauses)

    def look_at(self, log: PartitionLog, last_stable_offset: int, high_watermark: int) -> Cleanable | None:
        """Return the dirty part of a log; None if the log is not compacted, is paused or cannot be read."""
        if not log.config.is_compacted or not log.log_directory.is_online or self._is_paused(log):
            return None
        try:
            return cleanable(log, last_stable_offset, high_watermark, self._clock_ms())
        except DamagedIndexes as damage:
            # A thread makes the indexes again. A later round finds the log again.
            log.on_damage(log, damage.segment)
            return None
        except (OSError, CorruptSegment, KafkaError) as error:
            self._stop(log, error)
            return None

    async def learn_times(self, log: PartitionLog) -> None:
        """Load the indexes and timestamps of a log's segments in a thread, if many are not loaded."""
        while log.config.is_compacted and log.log_directory.is_online and not self._is_paused(log):
            strange = [segment for segment in log.segments if segment.size and not segment.knows_its_times]
            if len(strange) <= SURVEYED_AT_ONCE:
                return
            survey = Survey(log, strange)
            await self._run_in_thread(survey.run)
            try:
                survey.finish()
            except (OSError, CorruptSegment, CorruptIndex, KafkaError):
                return  # `look_at` meets it, too

    def _is_paused(self, log: PartitionLog) -> bool:
        if not self._pauses:
            return False
        pause = self._pauses.get(log.directory)
        return pause is not None and pause.log is log and pause.until_ms > self._clock_ms()

    def _stop(self, log: PartitionLog, error: Exception) -> None:
        if isinstance(error, CorruptSegment):
            logger.error("%s cannot be compacted and is left as it is: %s", log.directory, error)
            self._pauses[log.directory] = _Pause(log, math.inf, 0)
            return
        # A file that is gone was removed by retention or with its topic. The disk is well.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            log.log_directory.judge(error, log.name)
        before = self._pauses.get(log.directory)
        length_ms = PAUSE_MS
        if before is not None and before.log is log:
            # The warning was logged with the first failure, so it is not repeated.
            length_ms = min(before.length_ms * 2, PAUSE_MAX_MS)
        elif log.log_directory.is_online:
            logger.warning("%s cannot be compacted now and will be later: %s", log.directory, error)
        self._pauses[log.directory] = _Pause(log, self._clock_ms() + length_ms, length_ms)

    async def clean(self, found: Cleanable, limits: Limits, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """Compact the dirty part until the log changes or `may_go_on` is False; return True if all was compacted."""
        directory = found.log.directory
        # A deleted log had that name, and a slow thread still works for it. It would write into the files of this one's.
        if directory in self._at_work:
            return False
        self._at_work.add(directory)
        try:
            return await self._clean(found, limits, may_go_on)
        finally:
            self._at_work.discard(directory)

    async def _clean(self, found: Cleanable, limits: Limits, may_go_on: Callable[[], bool]) -> bool:
        log = found.log
        has_its_folder = keeps_directory(log)

        def check() -> None:
            # A log that was moved to another disk has another name, and its former one may be that of the log that serves.
            is_as_it_was = log.cuts == found.cuts and has_its_folder() and not log.is_given_up
            if not (is_as_it_was and log.log_directory.is_online and log.config.is_compacted and may_go_on()):
                raise _Aborted

        try:
            check()  # others had their turns since it was found
            with _in_vain_unless(check):
                compaction = await self._begin(found, limits)
                await self._work(compaction.build_map(), check)
                for group in await self._run_in_thread(compaction.groups):
                    await self._clean_group(log, compaction, group, check)
            check()  # again after the last wait: a cut has told since how far the log is clean
        except _Aborted:
            logger.info("The compaction of %s was aborted", log.directory)
            return False
        except (OSError, CorruptSegment, CorruptIndex, KafkaError) as error:
            self._stop(log, error)
            return False
        if self._pauses.pop(log.directory, None) is not None:
            logger.info("%s is compacted again", log.directory)
        log.first_dirty_offset = compaction.end_offset
        return True

    async def _clean_group(
        self, log: PartitionLog, compaction: Compaction, group: list[Source], check: Callable[[], None]
    ) -> None:
        check()
        directory = log.directory
        cleaned = await self._run_in_thread(compaction.begin, group)
        try:
            check()
            await self._work(compaction.clean(group, cleaned), check)
        except Exception:
            if log.directory != directory:
                # The log is deleted, and another may have its folder's name. If the thread was slow, it made its files in there:
                # little is in them, and no other thread makes such files there before this is over.
                compaction.discard(cleaned)
            else:
                # The files of a deleted log go with its directory.
                await self._run_in_thread(
                    cleaned.release_files if log.is_given_up else partial(compaction.discard, cleaned)
                )
            raise
        except BaseException:
            cleaned.release_files()  # the broker stops, and the next start removes the files
            raise
        # Without a wait since the last check, so the log was not truncated in between. If this answers no, retention was
        # quicker: what is compacted stands for segments that are not there any more.
        if not log.replace_segments(group, cleaned, now_ms=self._clock_ms()):
            await self._run_in_thread(compaction.discard, cleaned)
            raise _Aborted
        await self._run_in_thread(log.log_directory.storage.sync_directory, log.directory)

    async def _work(self, pieces: Iterator[int], check: Callable[[], None]) -> None:
        """Run the generator `pieces` step by step in threads, throttled by the bytes that each step yields.

        Calls `check` after each step; its errors are raised.
        """
        while (size := await self._run_in_thread(next, pieces, None)) is not None:
            await self._pay(size)
            check()
        check()

    async def _begin(self, found: Cleanable, limits: Limits) -> Compaction:
        log = found.log
        # All of it at one moment. Pairs leave the last segment out, which is written to.
        segments = list(log.segments)
        sources = [
            Source(segment.base_offset, following.base_offset, segment.size, segment.path(LOG_SUFFIX))
            for segment, following in pairwise(segments)
            if segment.base_offset < found.uncleanable_offset
        ]
        files = FileCache(log.log_directory.storage, OPEN_FILES_MAX)
        # Also of segments that are not cleaned: they tell of transactions that began in those that are.
        indexes = [
            IndexOfSegment(segment.base_offset, segment.txn_index.snapshot(files))
            for segment in segments
            if segment.txn_index is not None
        ]
        config, now_ms = log.config, self._clock_ms()
        last_batches = {}
        time_slice = TimeSlice()
        # A copy, because appends change the producers while this gives way. It also tells of what was the last by then.
        for entry in list(log.producers.values()):
            offset = entry.batches[-1].last_offset if entry.batches else -1
            last_batches[entry.producer_id] = LastBatch(offset, entry.epoch)
            await time_slice.yield_if_over()
        task = Task(
            log.directory,
            config,
            sources,
            indexes,
            last_batches,
            found.first_dirty_offset,
            found.uncleanable_offset,
            found.high_watermark,
        )
        return Compaction(log.log_directory.storage, task, limits, now_ms=now_ms, give_way=self._give_way)
