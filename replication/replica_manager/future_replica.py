"""A replica that moves to another log directory: the future log, which grows until it replaces the current one. Sans-IO.

Theory
    The current log stays in service. The *future* log, in `<topic>-<partition>.<uuid>-future`, gets its batches a piece at a
    time. The event loop decides on the next piece (`next_job`), a thread appends it; while the thread works, no other code
    changes the future log, and the event loop reads only plain integers of it. When no more is left than the loop can write
    itself, what was copied is synced, and then the future log takes over within one step of the loop (`take_over`), so that
    no append falls between the two.

| state     | what happens                                         | names in (source, target)  | what a crash leaves                         |
|-----------|------------------------------------------------------|----------------------------|---------------------------------------------|
| copying   | pieces of the current log are appended               | t-0        | t-0.x-future  | the current log; copying goes on            |
| finishing | the rest is appended and synced                      | t-0        | t-0.x-future  | the same                                    |
| in force  | the future log takes appends; directories are synced | t-0.y-delete | t-0.x-future | the future log, which becomes the current   |
| done      |                                                      | t-0.y-delete | t-0          | what was moved                              |

    The name of the old log goes first, because a future log without a current one can only be a finished one: then exactly
    one log counts whenever the power goes. Kafka renames the future log first, and a crash in between leaves two.

Invariants
    * The future log is a prefix of the current one. When the current log is cut, so is the future one; after a restart
      leader epochs tell how far they agree.
    * Where the topic asks for flushes, nothing is acknowledged in the states finishing and in force that would be lost if
      the power went: the partition's `durability_limit` is what the future log has on disk, or what was acknowledged when
      the logs changed places, until the old name is gone for certain.
    * What the current log had on disk when it is replaced, the future one has too.
    * The current log is not compacted during the copy; its clean part is also the copy's clean part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.leader_epochs import UNDEFINED_EPOCH
from ottla.replication.log.log_reader import LogRead
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory
from ottla.replication.partition.partition import Partition
from ottla.wire.records import iter_batches
from ottla.wire.settings import LONG_MAX

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

COPY_BYTES = 1024 * 1024  # by a thread, between two looks of the event loop; replica.fetch.max.bytes in Kafka
LAST_BYTES = 512 * 1024  # by the event loop itself, when the future log takes over


class Job(NamedTuple):
    """Work of a thread on a future log; `size` is the number of bytes to copy."""

    run: Callable[[], None]
    size: int = 0


class FutureReplica:
    def __init__(
        self,
        partition: Partition,
        target: LogDirectory,
        log: PartitionLog,
        clock_ms: Callable[[], int],
        *,
        is_new: bool = True,
    ) -> None:
        self.partition = partition
        self.target = target
        self.log = log
        self.is_over = False
        self.source_failure: OSError | None = None
        self._clock_ms = clock_ms
        # A new copy is as clean as its source was. Of one that was
        # found on the disk that is not known: -1 is the beginning.
        self._first_dirty_offset = partition.log.first_dirty_offset if is_new else -1
        self._reaches = log.log_end_offset  # once the thread is done
        self._cut_to: int | None = None  # set by a watcher on the event loop, carried out by the next job
        self._floor: int | None = None  # while finishing: what the current log had on disk before
        self._synced_to = -1  # up to where the copy is certain to be on the disk
        partition.watchers.add(self._look_at_current)
        # While the broker was away the current log may have been cut or written by other leaders.
        if not is_new:
            self._cut(common_end(partition.log, log, partition.high_watermark))

    def __repr__(self) -> str:
        return f"FutureReplica({self.log.directory}, {self.log.log_end_offset} of {self.partition.log_end_offset})"

    @property
    def source(self) -> LogDirectory:
        """Log directory of the current log, which is copied."""
        return self.partition.log.log_directory

    @property
    def offset_lag(self) -> int:
        """Number of offsets that are not copied yet; negative after a truncation of the current log."""
        return self.partition.log_end_offset - self.log.log_end_offset

    @property
    def was_cut(self) -> bool:
        """True if the current log has lost records that are copied already or being copied."""
        return self._cut_to is not None

    def _look_at_current(self) -> None:
        # The current log may grow again beyond this before the next job. Only at this moment is the cut to be seen.
        if self.partition.log.log_end_offset < self._reaches:
            self._cut(self.partition.log.log_end_offset)

    def _cut(self, offset: int) -> None:
        if offset < self._reaches:
            self._cut_to = self._reaches = offset

    # --- on the event loop --------------------------------------------------------------------------------------------

    def next_job(self) -> Job | None:
        """Return the next job; None if the future log may take over. Raises KafkaError if reading the log fails."""
        # State copying: what the current log has lost is cut off before anything else is appended.
        if self._cut_to is not None:
            offset, self._cut_to = self._cut_to, None
            self.pause()
            return Job(partial(self._truncate, offset, self._clock_ms()))
        # The loop decides what is copied, and the thread gets it as
        # a region of a file. So it never looks at the current log.
        current = self.partition.log
        read = self._read_next()
        piece = partial(self._append_in_thread, read, current.log_start_offset, self._clock_ms())
        # Noted before the thread begins: if the current log is cut below this, the thread may have copied what is gone.
        self._reaches = max(self._reaches, current.log_end_offset)
        is_last = len(read.region) <= LAST_BYTES and (read.end_offset == current.log_end_offset or not read.region)
        if not is_last:
            return Job(piece, len(read.region))
        # State finishing: so little is left that the event loop can write it.
        # First the copy has to be on the disk as far as the current log is.
        if self._floor is None:
            self._floor = current.recovery_point
            self._hold_acknowledgements()
        # Where the topic asks for flushes, the recovery point of the current log rises with every append, and the copy
        # would never reach it. As acknowledgements wait for the copy meanwhile, what was on the disk before is enough.
        needed = self._floor if current.is_flush_required else current.recovery_point
        if self._synced_to < needed:
            return Job(partial(self._append_and_sync, piece), len(read.region))
        # The future log may take over.
        return None

    def _read_next(self) -> LogRead:
        log, current = self.log, self.partition.log
        log.config = self._config(current.config)
        # Records below the start of the current log may be gone, so the copy goes on where that begins.
        start = min(max(log.log_end_offset, current.log_start_offset), current.log_end_offset)
        # A log refuses to write more than a segment holds in one go.
        limit = min(COPY_BYTES, log.config.segment_bytes)
        read = current.read(start, limit, upper_bound=current.log_end_offset, at_least_one_batch=True)
        # The batch has to be copied as it is, or the move would never end.
        if len(read.region) > log.config.segment_bytes:  # written while segments could be larger
            log.config = replace(log.config, segment_bytes=len(read.region))
        return read

    @staticmethod
    def _config(config: LogConfig) -> LogConfig:
        """Remove retention from topic settings: a future log deletes only what the current log has deleted."""
        return replace(config, retention_ms=-1, retention_bytes=-1)

    def finish_job(self) -> None:
        """Update the limit on acknowledgements after the thread has finished a job."""
        if self._floor is not None:
            self._hold_acknowledgements()

    def pause(self) -> None:
        """Return from the final phase to copying, so that acknowledgements do not wait for the copy."""
        self._floor = None
        self._synced_to = -1
        self.let_acknowledge()

    def _hold_acknowledgements(self) -> None:
        self.partition.durability_limit = self.log.recovery_point
        # The limit may have risen: the task that waits for the copy's disk checks again.
        self.partition.on_flushed()

    def let_acknowledge(self) -> None:
        """Remove the limit on acknowledgements, and acknowledge the records that waited for it."""
        self.partition.durability_limit = LONG_MAX
        self.partition.on_flushed()

    def take_over(self, name_of_deleted: str) -> PartitionLog:
        """Replace the current log by the future log; return the former current log.

        Raises KafkaError if this fails; the current log stays in use then.
        """
        partition, log, old = self.partition, self.log, self.partition.log
        # Phase 1: what may fail. Until the old log has its new name
        # the move can go on later, as if nothing had happened.
        read = self._read_next()
        if read.region:
            # A segment that this finishes the partition has synced.
            self._append(read, old.log_start_offset, self._clock_ms())
        log.note_producers_of(old)
        # The rename is the point of no return. A future log without a current one beside it counts as the current one.
        old.rename_directory(name_of_deleted)
        # Phase 2: memory only, in one step of the event loop, so that no append and no read falls in between. What
        # was durable on the old disk still counts. Nothing beyond that does until the old name is gone for certain.
        partition.durability_limit = min(partition.durability_limit, old.recovery_point)
        self.is_over = True
        partition.watchers.discard(self._look_at_current)
        # From now on the event loop uses the log, so its failures are the directory's own again.
        self.target.reunite(log.log_directory)
        log.log_directory = self.target
        # The smaller of both: the current log may have been cut since the copy began.
        log.first_dirty_offset = min(self._first_dirty_offset, old.first_dirty_offset)
        log.take_over_from(old)
        log.enter_service(old.on_damage)
        partition.replace_log(log)
        # Reads that are under way hold the files that they need.
        old.release_files()
        return old

    def give_up(self) -> None:
        """Cancel the move; the current log stays where it is."""
        self.is_over = True
        self.partition.watchers.discard(self._look_at_current)
        self.let_acknowledge()

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _truncate(self, offset: int, now_ms: int) -> None:
        self.log.truncate_to(offset, now_ms=now_ms)

    def _append(self, read: LogRead, log_start_offset: int, now_ms: int) -> None:
        log, data = self.log, self._data(read)
        header = next((header for header, _, _ in iter_batches(data)), None)
        next_offset = log_start_offset if header is None else header.base_offset
        if log.log_end_offset < min(next_offset, log_start_offset):
            log.truncate_fully_and_start_at(next_offset, now_ms=now_ms)  # the current log begins beyond our end
        elif header is not None and next_offset < log.log_end_offset:
            log.truncate_to(next_offset, now_ms=now_ms)  # the current log begins in the midst of this batch
        # The batches are taken with their offsets and epochs as they are, as a follower takes them from its leader.
        if header is not None:
            log.append_as_follower(data, now_ms=now_ms)
        # The copy keeps no record that the current log has deleted. Its own retention is switched off.
        if log.increase_log_start_offset(min(log_start_offset, log.log_end_offset)):
            log.delete_old_segments(now_ms, log.log_start_offset)

    def _append_in_thread(self, read: LogRead, log_start_offset: int, now_ms: int) -> None:
        log = self.log
        self._append(read, log_start_offset, now_ms)
        # Finished segments are synced one by one, so that little is
        # left to sync when acknowledgements have to wait for it.
        if log.has_rolled:
            log.flush(include_active=False)
            log.has_rolled = False  # not before: the next piece tries again

    def _data(self, read: LogRead) -> memoryview:
        if isinstance(read.region, bytes):
            return memoryview(read.region)
        try:
            return memoryview(read.region.read())
        except OSError as error:
            # The thread's `OSError` does not say which of the two disks it came from.
            self.source_failure = error
            raise

    def _append_and_sync(self, append: Callable[[], None]) -> None:
        append()
        self.sync()

    def sync(self) -> None:
        """Sync the future log and the names of its files."""
        log = self.log
        end_offset = log.log_end_offset
        log.flush()
        # The names of new segments and of the log itself have to be on the disk as well as their bytes.
        for path in (log.directory, self.target.path):
            self.target.storage.sync_directory(path)
        self._synced_to = end_offset

    def close(self) -> None:
        """Sync and close the future log."""
        self.sync()
        self.log.close()

    # --- the log itself -----------------------------------------------------------------------------------------------

    @classmethod
    def create_log(cls, current: PartitionLog, target: LogDirectory, name: str, *, now_ms: int) -> PartitionLog:
        """Create an empty future log; called in a thread. Raises OSError if the disk fails."""
        return PartitionLog.create(
            target.apart(),
            current.topic,
            current.partition,
            cls._config(current.config),
            topic_id=current.topic_id,
            now_ms=now_ms,
            log_start_offset=current.log_start_offset,
            name=name,
        )


def common_end(current: PartitionLog, future: PartitionLog, high_watermark: int) -> int:
    """Return the offset up to which two logs of a partition agree according to their leader epochs."""
    end = min(future.log_end_offset, current.log_end_offset)
    epoch = min(future.latest_leader_epoch, current.latest_leader_epoch)
    if epoch == UNDEFINED_EPOCH:  # written before there were epochs: only what is committed is sure to be the same
        return min(end, high_watermark)
    # The two histories are compared from the latest epoch that
    # both may know downwards, as a follower does with its leader.
    while True:
        epoch, current_end = current.end_offset_for_epoch(epoch)
        future_epoch, future_end = future.end_offset_for_epoch(epoch)
        # They share no epoch, so nothing of the copy is sure to be the same.
        if UNDEFINED_EPOCH in (epoch, future_epoch):
            return min(end, current.log_start_offset)
        end = min(end, current_end, future_end)
        if future_epoch == epoch:
            return end
        epoch = future_epoch
