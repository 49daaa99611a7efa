"""Replica fetcher: a task that copies partitions from one leader. `fetcher_manager.py` says which task has which partitions.

Theory
    A fetcher is one task with its own connection to its leader: it asks, appends what comes, and asks again at once. Which
    partitions, in which session, is `fetch_session_handler.py`'s business; what an answer means for a partition is decided here:

    records, or none             `Partition.append_as_follower`, `Partition.take_over`
    a diverging epoch            what is beyond it is dropped (`Partition.divergence`), which may take several rounds
    OFFSET_OUT_OF_RANGE          the leader's ends are asked for: what it does not have is dropped; a log that ended before
                                 the leader's begins starts anew there
    any other error              the partition is left alone for replica.fetch.backoff.ms; a failed log directory for good.
                                 A leader that may not have heard of its leadership is asked again after 10 ms, then
                                 after twice as long each time: producers wait for the followers that are in sync

    `follow` and `forget` may be called at any time, so an answer is used only for a partition that still has the leader
    epoch and the log end that were asked with. A new partition does not wait for a leader that has nothing to send: an
    idle fetch is given up soon after.

    A record that a topic wants on disk before it counts (flush.messages, flush.ms) is claimed by the next request only
    when it is there.

Others run after every `SLICE_BYTES`. Kafka: AbstractFetcherThread, ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster.peers import Peer, PeerUnavailable
from ottla.replication.fetcher.fetch_session_handler import FetchSessionHandler, PartitionFetchState
from ottla.replication.fetcher.leader_end_point import LeaderEndPoint
from ottla.replication.log.removal import Removal, look_at_times, warm
from ottla.replication.partition.reading import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.fetcher.throttle import ReplicationThrottle
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.removals import Removals
    from ottla.wire.messages.fetch import EpochEndOffset, PartitionData

logger = logging.getLogger("ottla.fetcher")

SEGMENTS_PER_CUT = 32  # the event loop renames the files of each, so a long cut gives way in between
SLICE_BYTES = 256 * 1024  # what is appended before others get their turn: at worst some 4,000 batches
LONG_BATCH_DISCOUNT = 8  # 1 MiB in one batch takes 0.3 ms, in batches of 64 bytes a hundred times as long
PARTITION_BYTES = 4 * 1024  # what a partition costs beside its bytes
FIRST_BACKOFF_MS = 10  # doubled with each refusal, up to replica.fetch.backoff.ms

_batch_length = Struct(">i").unpack_from
_LENGTH_OFFSET = 8
_LOG_OVERHEAD = 12
_EMPTY = memoryview(b"")

Connect = Callable[[int, int], Peer]


@dataclass(frozen=True)
class FetcherContext:
    """Settings, clock and connections that all fetchers of a broker share."""

    node_id: int
    connect: Connect
    config: Callable[[], ReplicationConfig]
    clock_ms: Callable[[], int]
    broker_epoch: Callable[[], int]
    throttle: ReplicationThrottle
    removals: Removals


class Fetcher:
    """Task that fetches partitions from one leader."""

    def __init__(
        self,
        context: FetcherContext,
        leader_id: int,
        number: int,
        *,
        before_round: Callable[[], None],
        on_end: Callable[[Fetcher], None],
    ) -> None:
        """Create a fetcher; it calls `before_round` before each request and `on_end` when it has no partitions left."""
        self.leader_id = leader_id
        self.number = number
        self._context = context
        self._before_round = before_round
        self._on_end = on_end
        self._fetch = FetchSessionHandler(context.node_id, leader_id, context.throttle)
        self._leader = LeaderEndPoint(
            context.node_id, connect=partial(context.connect, leader_id, number), config=context.config
        )
        self._wake = trio.Event()
        self._failures = 0  # in a row, of whole requests

    # --- what may be called at any time

    def add(self, following: PartitionFetchState) -> None:
        """Add a partition to this fetcher."""
        self._fetch.add(following)
        self._interrupt()

    def remove(self, following: PartitionFetchState) -> None:
        """Remove a partition from this fetcher."""
        self._fetch.remove(following)
        # While others are left, the next request forgets this one.
        # Without any, the task would wait at the leader for nothing.
        if not len(self._fetch):
            self._interrupt()

    def has_failed(self, following: PartitionFetchState) -> bool:
        """Tell whether fetching the partition has failed for good: it must be added again to be fetched."""
        return self._fetch.has_failed(following)

    def _interrupt(self) -> None:
        """Interrupt the wait for the leader's response, because a partition was added."""
        self._wake.set()
        self._leader.interrupt()

    # --- the task

    async def run(self) -> None:
        """Fetch in a loop until this fetcher has no partitions left."""
        try:
            while True:
                # No event reports a change of num.replica.fetchers, so every round checks it.
                self._before_round()
                if not len(self._fetch):
                    # No await between the look and this: a partition that is followed from now on gets a new fetcher.
                    self._on_end(self)
                    return
                await self._fetch_once()
        finally:
            # The leader may have answered a request that this cancels. The next run begins another session.
            self._fetch.renew()
            await self._leader.close()

    async def _fetch_once(self) -> None:
        context = self._context
        config = context.config()
        # Phase 1: what to ask.
        next_request = self._fetch.next_request(config, context.broker_epoch(), context.clock_ms())
        if next_request is None:
            await self._wait_for_work(config)
            return
        # Phase 2: ask, and hear that the leader is lost or that there is something new to ask for.
        try:
            response = await self._leader.fetch(*next_request)
        except PeerUnavailable as error:
            logger.debug("Fetching from broker %d: %s", self.leader_id, error)
            await self._lose()
            return
        # The leader answers a connection's requests in order. The next request must not queue behind the one given up.
        # The leader may have handled that one, so the session is unsure.
        if response is None:
            self._fetch.renew()
            await self._leader.close()
            return
        # Phase 3: use the answer.
        answers = self._fetch.take(response)
        if answers is not None:
            self._failures = 0
            await self._use(answers)
        # The first refusal of a session is natural, for instance after the leader restarted: a
        # new session is asked for at once. A second one in a row must not become a busy loop.
        elif self._failures:
            self._delay_all()
        else:
            self._failures += 1

    async def _wait_for_work(self, config: ReplicationConfig) -> None:
        now_ms = self._context.clock_ms()
        due_ms = self._fetch.due_ms(now_ms, config.replica_fetch_backoff_ms)
        # There is no await since the look for work, so nothing that was added meanwhile is missed.
        self._wake = trio.Event()
        # At least 1 ms: a due time that has passed in between must not make the task spin.
        with trio.move_on_after(float("inf") if due_ms is None else max(due_ms - now_ms, 1) / 1000):
            await self._wake.wait()

    async def _lose(self) -> None:
        await self._leader.close()
        self._fetch.renew()
        self._delay_all()

    def _delay_all(self) -> None:
        config = self._context.config()
        self._fetch.delay_all(self._context.clock_ms() + config.replica_fetch_backoff_ms)

    # --- answers

    async def _use(self, answers: list[tuple[PartitionFetchState, PartitionData]]) -> None:
        out_of_range: list[PartitionFetchState] = []
        unsynced: list[PartitionFetchState] = []
        slice_bytes = 0
        for following, data in answers:
            # The partition has changed its role or its log since it
            # was asked for. The leader does not repeat an answer.
            if not following.awaits_answer:
                self._fetch.note_unused(following)
            elif data.error_code == ErrorCode.NONE:
                slice_bytes = await self._use_data(following, data, slice_bytes)
                if following.partition.log.is_flush_required:
                    # Waiting here would sync one log after the other. Collected, they share the syncs of the flusher.
                    unsynced.append(following)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(following)  # one request to the leader for all of them
            else:
                self._back_off(following, ErrorCode.of(data.error_code))
        # The offset of the next request tells the leader that this
        # replica holds the records, so they are synced before that.
        for following in unsynced:
            await _until_synced(following)
        # Last, because it asks the leader again. The buffer that
        # holds the records of `answers` is used again with that.
        if out_of_range:
            await self._find_place(out_of_range)

    async def _use_data(self, following: PartitionFetchState, data: PartitionData, slice_bytes: int) -> int:
        """Apply a response's data to the partition; return the bytes processed so far in this time slice."""
        records: Any = data.records
        size = len(records or b"")
        slice_bytes += PARTITION_BYTES + (size if size <= SLICE_BYTES else 0)
        try:
            # The records follow others without leader epochs, which may differ from the leader's. Those are cut first, and
            # the records are fetched again.
            if following.must_be_cut:
                cut_to_high_watermark(following, self._context.removals, now_ms=self._context.clock_ms())
                self._fetch.note_fetched(following, is_in_sync=False)
                self._fetch.note_unused(following)  # it was asked for from another offset
            elif data.diverging_epoch.epoch >= 0:
                await self._truncate(following, data.diverging_epoch)
            elif size <= SLICE_BYTES:
                self._append(following, records or _EMPTY, data)
            else:
                slice_bytes = await self._append_pieces(following, records, data, slice_bytes)
        except KafkaError as error:
            self._back_off(following, error.code, error)
            slice_bytes += size  # what was done before it failed may be all the work
        # A bug that one partition meets must not stop the replication of all others. It rests until its next epoch.
        except Exception:
            logger.exception("%r cannot be fetched", following)
            self._fetch.fail(following)
            slice_bytes += size
        if slice_bytes < SLICE_BYTES:
            return slice_bytes
        await trio.lowlevel.checkpoint()
        return 0

    async def _append_pieces(
        self, following: PartitionFetchState, records: memoryview, data: PartitionData, slice_bytes: int
    ) -> int:
        """Append data that is too large for one time slice in pieces; return the bytes processed in the last slice."""
        # The log refuses to write more than a segment holds in one go.
        for piece in pieces(records, min(SLICE_BYTES, following.partition.log.config.segment_bytes)):
            # Others had their turn at the checkpoint: the controller
            # may have made this broker the leader meanwhile.
            if not following.is_wanted or not self._append(following, piece, data):
                break
            # What is longer than a turn is one batch, and to copy bytes is cheap beside the work for each batch.
            slice_bytes += len(piece) if len(piece) <= SLICE_BYTES else len(piece) // LONG_BATCH_DISCOUNT
            if slice_bytes >= SLICE_BYTES:
                await trio.lowlevel.checkpoint()
                slice_bytes = 0
        return slice_bytes

    def _append(self, following: PartitionFetchState, records: memoryview, data: PartitionData) -> bool:
        """Append the complete batches in `records`; return True if there were any."""
        context = self._context
        partition = following.partition
        now_ms = context.clock_ms()
        size = len(records)
        if not size:
            # The high watermark and the log start of the leader move without records, too.
            partition.take_over(data.high_watermark, data.log_start_offset)
            following.is_in_sync = data.high_watermark <= partition.log.log_end_offset
            return False
        info = partition.append_as_follower(
            records,
            leader_high_watermark=data.high_watermark,
            leader_log_start_offset=data.log_start_offset,
            now_ms=now_ms,
        )
        # They came over the network even if the log refuses them, so they count.
        if context.throttle.is_throttled(partition.topic, partition.index):
            context.throttle.record(size, now_ms)
        # No whole batch, or batches of a later epoch than was asked
        # in. To ask again at once would bring the same, in a loop.
        if info.first_offset < 0:
            self._back_off(following, ErrorCode.CORRUPT_MESSAGE)
            return False
        self._fetch.note_fetched(following, is_in_sync=data.high_watermark <= info.last_offset + 1)
        return True

    async def _truncate(self, following: PartitionFetchState, diverging: EpochEndOffset) -> None:
        partition = following.partition
        # Taken at its word this would drop the whole log.
        if diverging.end_offset < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"epoch {diverging.epoch} without an end")
        # The leader names the last epoch that both may know. If this replica never saw that epoch,
        # one cut does not settle it: the next request asks with an older epoch, until the logs agree.
        offset = partition.divergence(diverging.epoch, diverging.end_offset)
        cause = f"truncation to epoch {diverging.epoch} of leader {self.leader_id}"
        if not await self._cut(following, offset, cause):
            return
        self._fetch.note_fetched(following, is_in_sync=False)
        self._fetch.note_unused(following)  # the high watermark that came along

    async def _cut(self, following: PartitionFetchState, offset: int, cause: str) -> bool:
        """Truncate the log to `offset` in steps; return False if the partition has left this fetcher meanwhile.

        Reports the records that went because of `cause`. Raises KafkaError if the truncation is incomplete.
        """
        await warm(partial(_look_at_cut, following.partition, offset), trio.to_thread.run_sync)
        if not following.is_wanted:
            return False
        with reported_cut(self._context.removals, following.partition, offset, cause, self._context.clock_ms()):
            return await self._cut_in_steps(following, offset)

    async def _cut_in_steps(self, following: PartitionFetchState, offset: int) -> bool:
        partition = following.partition
        while True:
            log, now_ms = partition.log, self._context.clock_ms()
            # From the end, so that at any time what is left is the beginning of the log.
            next_cut = max(offset, log.segments[-SEGMENTS_PER_CUT:][0].base_offset)
            truncation = log.prepare_truncation(next_cut, now_ms=now_ms)
            # The producers' state at the cut may take the reading of a whole segment.
            if truncation is not None:
                await trio.to_thread.run_sync(truncation.run)
                if not following.is_wanted:
                    return False
                # Retention or a move between directories changed the
                # log under the thread: what it read is of another log.
                if not truncation.is_current or partition.log is not log:
                    continue
            partition.truncate_to(next_cut, now_ms=now_ms, truncation=truncation)
            if next_cut == offset:
                return True
            await trio.lowlevel.checkpoint()
            if not following.is_wanted:
                return False

    def _back_off(self, following: PartitionFetchState, code: ErrorCode, reason: object = None) -> None:
        # A partition that fails every second would fill the log of the broker with one line each time.
        if following.complaint != code:
            following.complaint = code
            level = logging.INFO if code in _PASSING else logging.WARNING
            logger.log(level, "Cannot fetch %r: %s", following, reason or code.name)
        # Only a restart brings the directory back, so asking again would never help.
        if following.partition.log.log_directory.failure is not None:
            self._fetch.fail(following)
        else:
            backoff_ms = self._context.config().replica_fetch_backoff_ms
            if code in _UNDER_WAY:
                # The exponent is bounded: a partition that is refused for hours must not shift to enormous numbers.
                backoff_ms = min(FIRST_BACKOFF_MS << min(following.refusals, 20), backoff_ms)
                following.refusals += 1
            self._fetch.delay(following, self._context.clock_ms() + backoff_ms)

    # --- out of range

    async def _find_place(self, out_of_range: list[PartitionFetchState]) -> None:
        """Adapt logs to the leader's after OFFSET_OUT_OF_RANGE.

        A longer log is truncated to the leader's end. A log that ends before the leader's log start restarts there.
        """
        try:
            # Phase 1: replicas that are beyond the leader's end drop the rest.
            latest = await self._leader_offsets(out_of_range, LATEST_TIMESTAMP)
            behind = [each for each in out_of_range if not await self._cut_off(each, latest.get(each))]
            # Phase 2: the others must be before the leader's beginning.
            if behind:
                earliest = await self._leader_offsets(behind, EARLIEST_TIMESTAMP)
                for each in behind:
                    await self._start_at(each, earliest.get(each))
        except PeerUnavailable:
            await self._lose()

    async def _leader_offsets(
        self, wanted: list[PartitionFetchState], timestamp: int
    ) -> dict[PartitionFetchState, int]:
        """Return the first or last offset of the leader's log for each partition.

        Partitions for which the leader returns an error are delayed, and missing in the result.
        """
        offsets: dict[PartitionFetchState, int] = {}
        for each, (code, offset) in (await self._leader.list_offsets(wanted, timestamp)).items():
            if code == ErrorCode.NONE and offset >= 0:
                offsets[each] = offset
            else:
                self._back_off(each, code)
        return offsets

    async def _cut_off(self, following: PartitionFetchState, leader_end: int | None) -> bool:
        """Truncate records beyond the leader's log end; return False if the log does not extend beyond it."""
        # The log may have moved on while the leader was asked. Its answer would cut what is right.
        if leader_end is None or not following.awaits_answer:
            return True
        partition = following.partition
        if leader_end >= partition.log_end_offset:
            return False
        logger.warning("Truncating %r from %d to its leader's end %d", following, partition.log_end_offset, leader_end)
        try:
            cause = f"truncation to the end of leader {self.leader_id}"
            if await self._cut(following, leader_end, cause):
                self._fetch.note_fetched(following, is_in_sync=False)
        except KafkaError as error:
            self._back_off(following, error.code, error)
        return True

    async def _start_at(self, following: PartitionFetchState, leader_start: int | None) -> None:
        """Restart the log at the leader's log start offset if this replica ends before it; otherwise fetch again."""
        if leader_start is None or not following.awaits_answer:
            return
        partition = following.partition
        if leader_start > partition.log_end_offset:
            logger.warning(
                "Restarting the log of %r at %d, because it ends at %d",
                following,
                leader_start,
                partition.log_end_offset,
            )
            try:
                # A log may have thousands of segments. `_cut` gives up
                # most of them in slices, `restart_at` only what is left.
                cause = f"restart at the first offset {leader_start} of leader {self.leader_id}"
                if await self._cut(following, partition.log.segments[0].base_offset, cause):
                    partition.restart_at(leader_start, now_ms=self._context.clock_ms())
                    self._fetch.note_fetched(following, is_in_sync=False)
            except KafkaError as error:
                self._back_off(following, error.code, error)
        else:
            # The log lies within the leader's by now, because the leader's
            # has changed since the error. The same question works.
            self._fetch.note_fetched(following, is_in_sync=False)
            self._fetch.note_unused(following)


_UNDER_WAY = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a leader that has not heard yet of the controller's last decision."""

_PASSING = _UNDER_WAY | {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INCONSISTENT_TOPIC_ID}
"""Errors that are natural while a decision of the controller is on its way to leader and follower."""


def cut_to_high_watermark(following: PartitionFetchState, removals: Removals, *, now_ms: int) -> None:
    """Truncate a log to the high watermark, because its last records have no leader epoch.

    Raises KafkaError if this fails.
    """
    partition = following.partition
    with reported_cut(removals, partition, partition.high_watermark, "truncation to the high watermark", now_ms):
        partition.truncate_to(partition.high_watermark, now_ms=now_ms)
    following.must_be_cut = False


def _look_at_cut(partition: Partition, offset: int) -> None:
    look_at_times(partition.log, max(offset, partition.log_start_offset), partition.log_end_offset)


@contextmanager
def reported_cut(removals: Removals, partition: Partition, offset: int, cause: str, now_ms: int) -> Iterator[None]:
    """Report the records that the `with` block truncates from `offset` on, even if the block fails half-way."""
    log, begin, end = partition.log, max(offset, partition.log_start_offset), partition.log_end_offset
    removal = Removal()
    removal.add(cause, log, begin, end, is_compacted=log.config.is_compacted)
    try:
        yield
    finally:
        removal.first_offset = max(begin, min(partition.log_end_offset, end))  # those below it are still there
        removal.records = end - removal.first_offset
        with removals.run(now_ms, is_frequent=True) as run:
            run.note_log(partition.topic, partition.index, removal)


def pieces(records: memoryview, size_max: int) -> Iterator[memoryview]:
    """Split records into pieces of at most `size_max` bytes between batches; a larger batch is a piece of its own."""
    start = end = 0
    size = len(records)
    while size - end > _LOG_OVERHEAD:
        # A negative length would lead backwards. The log's own checks refuse such bytes; here only progress matters.
        batch_end = end + _LOG_OVERHEAD + max(_batch_length(records, end + _LENGTH_OFFSET)[0], 0)
        if batch_end > size:
            break
        if batch_end - start > size_max and end > start:
            yield records[start:end]
            start = end
        end = batch_end
    # With what is cut off at the end: the log leaves that out by itself.
    if start < size:
        yield records[start:]


async def _until_synced(following: PartitionFetchState) -> None:
    """Wait until the records fetched so far are synced, cannot be synced, or are not wanted any more.

    Records appended later are not waited for: if this broker has become the leader, they may keep arriving forever.
    """
    partition, log = following.partition, following.partition.log
    end_offset = log.log_end_offset  # what this answer brought, and no more
    while following.is_wanted and log.is_flush_required and log.recovery_point < min(end_offset, log.log_end_offset):
        if log.log_directory.failure is not None:
            return
        # The event is added before anything is awaited, so no change falls between the look and the wait.
        changed = trio.Event()
        partition.watchers.add(changed.set)
        try:
            await changed.wait()
        finally:
            partition.watchers.discard(changed.set)
