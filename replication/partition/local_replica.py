"""The replica of a partition on this broker: its log and high watermark, how it follows, and its watchers. Sans-IO.

A replica follows its leader, whichever broker that is. The follower appends the leader's records, takes over the leader's high
watermark, and truncates records that the leader lacks. `Partition` adds the role: it is a replica that may lead.

Invariant
    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, with two exceptions. The start may pass the
    last stable offset when records of an open transaction are deleted. And the log of a follower that begins in the
    middle of a batch ends at the front of that batch, before its start, until the batch has come.

Waiting
    Nothing waits in here. A request that waits for an acknowledgement or for new records adds a function to `watchers`; it is
    called, without arguments, whenever high watermark, log end offset, log start offset or role have changed, and then asks
    again. A watcher may remove itself; it must not touch the partition otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from ottla.replication.log.partition_log import AppendInfo, PartitionLog
from ottla.replication.log.segment_snapshots import Truncation
from ottla.replication.log.segmented_log import SEGMENTS_MAX
from ottla.replication.partition.reading import divergence_from_leader
from ottla.replication.partition.traffic import TopicTraffic
from ottla.wire.records import iter_batches
from ottla.wire.settings import LONG_MAX

if TYPE_CHECKING:
    from ottla.replication.log.removal import Removal

Watcher = Callable[[], None]


class Watchers:
    """Ordered set of callbacks; callbacks may be added and removed while the set is called.

    Calls nest if a watcher makes another change. The outer call skips the watchers that the inner call removed.
    """

    __slots__ = ("_functions",)

    def __init__(self) -> None:
        self._functions: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(tuple(self._functions))

    def call(self) -> None:
        """Call all watchers, except those removed during the calls."""
        functions = self._functions
        for function in tuple(functions):
            if function in functions:
                function()

    def add(self, watcher: Watcher) -> None:
        self._functions[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._functions.pop(watcher, None)


class LocalReplica:
    """A partition's log and high watermark on this broker."""

    __slots__ = (
        "_request_flush",
        "_watchers",
        "durability_limit",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "traffic",
    )

    _request_flush: Callable[[Self], None] | None

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        *,
        high_watermark: int = 0,
        request_flush: Callable[[Self], None] | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        self._request_flush = request_flush
        self._watchers: Watchers | None = None
        self.leader_epoch = -1  # of the leader that this broker heard of last
        self.durability_limit = LONG_MAX  # nothing from here on counts as flushed while the log moves to another disk
        # The checkpoint of the high watermark is older than the log: recovery may have cut the log's end, and retention
        # may have moved its start.
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.on_high_watermark(self.high_watermark)

    def __repr__(self) -> str:
        return (
            f"LocalReplica({self.topic}-{self.index}, leader_epoch={self.leader_epoch},"
            f" high_watermark={self.high_watermark}, log={self.log!r})"
        )

    @property
    def topic_id(self) -> bytes | None:
        """Topic id recorded in the log's directory; None if none is recorded."""
        return self.log.topic_id

    # --- what it holds ------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Offset below which all transactions are decided, at most the high watermark."""
        unstable = self.log.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def _local_offset(self) -> int:
        """Return the offset below which this replica surely holds all records: on disk, if flushes are required."""
        log = self.log
        return min(log.recovery_point, self.durability_limit) if log.is_flush_required else log.log_end_offset

    def _check_offsets(self) -> None:
        start = self.log.log_start_offset
        assert start <= self.high_watermark <= max(start, self.log.log_end_offset), self

    # --- who hears of changes -----------------------------------------------------------------------------------------

    @property
    def watchers(self) -> Watchers:
        """Callbacks to call after each change of this replica."""
        if self._watchers is None:
            self._watchers = Watchers()
        return self._watchers

    def notify_watchers(self) -> None:
        """Call the watchers; also after changes outside this object, such as a disk failure."""
        if self._watchers:
            self._watchers.call()

    # --- following ----------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview, *, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> AppendInfo:
        """Append the leader's records; adopt its high watermark and log start. Raises KafkaError if none is written."""
        log = self.log
        # Only a log without records can begin again at another offset.
        if log.log_end_offset == log.log_start_offset:
            self._begin_within_batch(records, now_ms)
        # First the records, then what is committed of them: the high watermark must not pass the end of this log.
        try:
            info = log.append_as_follower(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        finally:  # of a failed append, too, if a segment was finished for it
            self._flush_finished()
        self.traffic.replication_bytes_in += len(records)
        if info.flush_due:
            self._flush()
        self.take_over(leader_high_watermark, leader_log_start_offset)
        return info

    def take_over(self, leader_high_watermark: int, leader_log_start_offset: int) -> None:
        """Adopt the leader's high watermark and log start offset, as far as this log reaches."""
        log = self.log
        # This replica may be far behind, and a watermark beyond its end would count records that it does not have.
        high_watermark = min(leader_high_watermark, log.log_end_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            log.on_high_watermark(high_watermark)
        # The start does not pass the high watermark. If this replica still lacks those records, a later fetch moves it
        # further.
        if leader_log_start_offset > log.log_start_offset:
            log.increase_log_start_offset(min(leader_log_start_offset, self.high_watermark))
        self.notify_watchers()

    def _begin_within_batch(self, records: memoryview, now_ms: int) -> None:
        """Restart the log at the base offset of the first batch if the log start offset is inside that batch."""
        log = self.log
        start = log.log_start_offset
        first = next(iter_batches(records), None)
        if first is not None and first[0].base_offset < start <= first[0].last_offset:
            log.truncate_fully_and_start_at(first[0].base_offset, log_start_offset=start, now_ms=now_ms)

    def divergence(self, epoch: int, end_offset: int) -> int:
        """Return the offset from which this log must be truncated to match the leader's log.

        `epoch` is the leader's largest epoch up to this log's last one; it ends at `end_offset` in the leader's log.
        Records beyond the result are dropped and fetched again, whatever the high watermark is (KIP-595).
        """
        return divergence_from_leader(self.log, epoch, end_offset)

    def truncate_to(self, offset: int, *, now_ms: int, truncation: Truncation | None = None) -> None:
        """Remove all records from `offset` on. A thread may have prepared the `truncation` by reading from the disk."""
        # The watermark falls here only because the records above it are gone. It never decides where to cut.
        if self.log.truncate_to(offset, now_ms=now_ms, truncation=truncation):
            self.high_watermark = min(self.high_watermark, offset)
            self._check_offsets()
            self.notify_watchers()

    def restart_at(self, offset: int, *, now_ms: int) -> None:
        """Empty the log and restart it at `offset`, the leader's log start offset, because the log ends below it."""
        self.log.truncate_fully_and_start_at(offset, now_ms=now_ms)
        # The log is empty and begins there, so both of its ends are this offset.
        self.high_watermark = offset
        self.log.on_high_watermark(offset)
        self._check_offsets()
        self.notify_watchers()

    # --- on the disk --------------------------------------------------------------------------------------------------

    def _flush_finished(self) -> None:
        """Request a flush if the last append has finished a segment, even if that append failed."""
        if self.log.has_rolled:
            self._flush()

    def _flush(self: Self) -> None:  # a Partition's asker is given a Partition
        self.log.has_rolled = False
        if self._request_flush is not None:
            self._request_flush(self)

    def replace_log(self, log: PartitionLog) -> None:
        """Replace the log by a log in another directory that holds the same records."""
        self.log = log
        if log.has_rolled or (log.is_flush_required and log.recovery_point < log.log_end_offset):
            self._flush()
        self.notify_watchers()

    def look_at_expired(self, now_ms: int, *, limit: int) -> None:
        """Read what `delete_old_segments` reads for the account of removed records. Raises NotCached within `only_cached`."""
        self.log.look_at_expired(now_ms, self.high_watermark, limit=limit)

    def delete_old_segments(
        self,
        now_ms: int,
        *,
        limit: int = SEGMENTS_MAX,
        is_enough: Callable[[], bool] = lambda: False,
        removal: Removal | None = None,
    ) -> int:
        """Apply retention to at most `limit` segments, until `is_enough()`; return the number of deleted segments."""
        start = self.log.log_start_offset
        count = self.log.delete_old_segments(
            now_ms, self.high_watermark, limit=limit, is_enough=is_enough, removal=removal
        )
        # Segments below the start may go without moving it, and no request waits for that.
        if self.log.log_start_offset != start:
            self.notify_watchers()
        return count
