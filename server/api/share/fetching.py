"""One ShareFetch: it reads free records, acquires them, and waits as long as there are none.

| what happens                                         | what follows                                                     |
|------------------------------------------------------|------------------------------------------------------------------|
| records come, or members give some back              | waiting fetches try in the order in which they came              |
| all partitions together have less than MinBytes      | it goes on waiting                                               |
| pages are not in memory                              | a thread reads them, then it tries again                         |
| the log has dropped the records to be read           | the share partition begins where the log does                    |
| a share partition cannot be loaded                   | its error goes into the response at the end of the wait          |
| this broker leads a partition no more                | the wait is over                                                 |
| the session ends, or goes on with another request    | no more is acquired, because no member would get it              |
| the time is over                                     | it acquires what there is, however little                        |
| MaxRecords is negative                               | as in Kafka it waits like any other, and acquires nothing        |

Records are acquired in the step in which they are read, so no other fetch can get them meanwhile. The response has regions
of the log files, as that of an ordinary fetch. Acknowledgements that come with the request are stored at the same time; the
response waits for them as well.

A fetch may name thousands of partitions, and each may have thousands of batches. So its work is done in steps, one
partition in each; after some of them a task does the rest. While it waits it keeps the number of bytes of each partition, so
that news of one partition cost one look.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.groupcoord.share.partition.acquiring import AcquireRequest
from ottla.groupcoord.share.partition.share_partition import Phase
from ottla.replication.log.storage import NotCached, only_cached
from ottla.server.api.share.log_reading import SharedRead, ShareReader
from ottla.server.api.share.share_partition_leader import SharePartitionLeader, locks_now_ms
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.groupcoord.share.partition.acquiring import AcquiredRecords
    from ottla.groupcoord.share.partition.sessions import TopicPartition
    from ottla.replication.log.storage import FileRegion
    from ottla.server.api.share.share_partition_manager import SharePartitionManager
    from ottla.server.network.deadlines import Deadline
    from ottla.wire.messages.share_fetch import ShareFetchRequest

logger = logging.getLogger("ottla.share")

ROUNDS_MAX = 16
"""Rounds of one try that may move on without a record, such as past an aborted transaction."""
WARMINGS_MAX = 100
"""Reads by a thread after which a read waits for the disk: the system evicts pages as fast as they come."""
RECORD_LIMIT = 1
PLENTY = 1 << 62
"""A number of bytes for which no fetch waits."""
COST_AT_ONCE = 500
"""Partitions and batches that a fetch looks at before it goes on in a task."""

Steps = Generator[int, None, bool]
"""Steps of work that yield their cost: 1 for a partition or a batch."""

_warmings = trio.CapacityLimiter(4)


class Found(NamedTuple):
    """Result of a share fetch for one partition: the acquired records, or an error."""

    error: ErrorCode
    records: FileRegion | bytes = b""
    acquired: tuple[AcquiredRecords, ...] = ()


class Target(NamedTuple):
    """Partition to fetch from, with its share partition."""

    partition: TopicPartition
    share: SharePartitionLeader


class Limits(NamedTuple):
    """Limits of one share fetch request, in milliseconds, bytes and records."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    is_record_limit: bool


def limits_of(request: ShareFetchRequest, fetch_bytes_max: int) -> Limits:
    """Return the limits of a request. `fetch_bytes_max`: the broker's fetch.max.bytes."""
    bytes_max = min(request.max_bytes, fetch_bytes_max)
    return Limits(
        request.max_wait_ms,
        min(request.min_bytes, bytes_max),
        bytes_max,
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == RECORD_LIMIT,
    )


class ShareFetching:
    """Share fetch of one request. `found` is complete when `is_done` is True; then `on_done` is called, if set."""

    def __init__(
        self,
        groups: SharePartitionManager,
        reader: ShareReader,
        member_id: str,
        targets: list[Target],
        limits: Limits,
        is_stale: Callable[[], bool],
    ) -> None:
        self._groups, self._reader, self._member_id = groups, reader, member_id
        self._targets = {target.share: target for target in targets}
        self._places = {target.share: place for place, target in enumerate(targets)}
        self._limits, self._is_stale = limits, is_stale
        self.found: dict[TopicPartition, Found] = {}
        self.is_done = False
        self.on_done: Callable[[], None] | None = None
        self._hopeful = dict.fromkeys(self._targets, 0)
        """Share partitions that may have records, and their bytes at the last look. No others are looked at."""
        self._is_listening = False
        self._deadline: Deadline | None = None
        self._is_overdue = False
        self._is_trying = False
        self._is_in_step = False
        self._has_news = False
        self._warmings = 0
        self._is_warming = False

    def begin(self) -> None:
        """Try to acquire records; if there are too few, begin to wait."""
        limits = self._limits
        if not self._targets or limits.records_max == 0 or limits.bytes_max <= 0:
            self._finish()
        else:
            self._try(is_last=limits.wait_ms <= 0 or limits.bytes_min <= 0)

    def abandon(self) -> None:
        """Stop the fetch, because its client has disconnected."""
        self.is_done = True
        self.on_done = None
        self._leave()

    def _finish(self) -> None:
        self.is_done = True
        self._leave()
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done()

    def _listen(self) -> None:
        """Begin to listen for new records in the share partitions, and for the deadline of the fetch."""
        if self._is_listening:
            return
        self._is_listening = True
        for share in self._targets:
            share.wait(self)
        if self._limits.wait_ms > 0:
            self._deadline = self._groups.deadlines.add(self._limits.wait_ms / 1000, self._on_deadline)

    def _leave(self) -> None:
        if self._is_listening:
            for share in self._targets:
                share.leave(self)
        if self._deadline is not None:
            self._groups.deadlines.cancel(self._deadline)
            self._deadline = None

    # ------------------------------------------------------------------ events that end the wait

    def try_now(self, share: SharePartitionLeader) -> None:
        """Try again because the share partition may have records."""
        if self.is_done or share not in self._targets:
            return
        self._hopeful[share] = 0
        # Changes by this fetch itself are no news to it.
        if self._is_in_step or self._is_warming:
            return
        if self._is_trying:
            self._has_news = True
            return
        try:
            with only_cached:
                self._look_at(share)
        except NotCached as cold:
            self._warm_soon(cold)
            return
        # The others have no more than at the last look.
        if self._is_enough():
            self._try()

    def on_failure(self, share: SharePartitionLeader, error: ErrorCode) -> None:
        """Stop fetching from a share partition that has ended; its error goes into the response."""
        target = self._targets.pop(share, None)
        self._hopeful.pop(share, None)
        if target is not None:
            self.found[target.partition] = Found(error)
        # A member that gets a failed load at once would retry at once.
        if share.machine.phase is Phase.FENCED and not self.is_done:
            self._finish()

    def _on_deadline(self) -> None:
        self._deadline = None
        self._is_overdue = True
        if not self.is_done and not self._is_trying:
            self._try(is_last=True)

    def _warm_soon(self, cold: NotCached) -> None:
        self._is_warming = True
        self._groups.start(partial(self._warm, cold))

    async def _warm(self, cold: NotCached) -> None:
        await trio.to_thread.run_sync(cold.warm, limiter=_warmings)
        self._warmings += 1
        self._is_warming = False
        if not self.is_done and not self._is_trying:
            self._try()

    # ------------------------------------------------------------------ tries, which may take several time slices

    def _try(self, *, is_last: bool = False) -> None:
        """Try to acquire records if enough bytes are available. A long try continues in a background task.

        `is_last`: acquire whatever is in memory, and end the wait.
        """
        self._is_trying, self._has_news = True, False
        steps = self._steps(is_last=is_last)
        cost = 0
        while cost <= COST_AT_ONCE:
            step_cost = self._step(steps, is_last=is_last)
            if step_cost is None:
                return
            cost += step_cost
        self._listen()  # so that no news is missed meanwhile
        self._groups.start(partial(self._go_on, steps, is_last=is_last))

    async def _go_on(self, steps: Steps, *, is_last: bool) -> None:
        time_slice = TimeSlice()
        try:
            while self._step(steps, is_last=is_last) is not None:
                await time_slice.yield_if_over()
        except Exception:
            logger.exception("bug: a share fetch of %s ends early", self._member_id)
            if not self.is_done:
                self._finish()

    def _step(self, steps: Steps, *, is_last: bool) -> int | None:
        """Run one step of a try; return its cost, 1 for each partition or batch. None: the try has ended."""
        if self.is_done:
            return None
        if self._is_stale():
            # Records that are acquired now could be freed by their lock's timeout only.
            self._is_trying = False
            self._finish()
            return None
        self._is_in_step = True
        try:
            if is_last or self._warmings < WARMINGS_MAX:
                with only_cached:
                    return next(steps)
            return next(steps)
        except StopIteration as end:
            is_over = bool(end.value)
        except NotCached as cold:
            is_over = False
            if not self._is_warming:
                self._warm_soon(cold)
        except Exception:
            self._is_trying = False  # so that the deadline ends the wait at least
            raise
        finally:
            self._is_in_step = False
        self._is_trying = False
        self._after_try(is_over=is_over or is_last)
        return None

    def _after_try(self, *, is_over: bool) -> None:
        if self.is_done:
            return
        if is_over:
            self._finish()
        elif self._is_overdue:
            self._try(is_last=True)
        elif self._has_news and not self._is_warming:
            self._try()
        else:
            self._listen()

    def _steps(self, *, is_last: bool) -> Steps:
        """Yield the cost of each step of one try; the generator returns True if the wait is over."""
        for _ in range(ROUNDS_MAX):
            for share in list(self._hopeful):
                try:
                    self._look_at(share)
                except NotCached as cold:
                    self._pass_over(cold, is_last=is_last)
                yield 1
            ready = sorted(self._hopeful, key=self._places.__getitem__)
            if not is_last and not (ready and self._is_enough()):
                return False
            if self._limits.records_max < 0:
                yield from self._note_empty()
                return True
            places = [share.machine.next_fetch_offset() for share in ready]
            if (yield from self._take(ready, is_last=is_last)):
                yield from self._note_empty()
                return True
            # No record was acquired. But the records that were read may be past: lost, or of an aborted transaction.
            if places == [share.machine.next_fetch_offset() for share in ready]:
                break
        if is_last:
            yield from self._note_empty()
        return False

    def _note_empty(self) -> Iterator[int]:
        """Add empty results for partitions without records, as in Kafka; yield the cost of each step.

        Responses of a session omit unchanged partitions.
        """
        for partition, share in list(self._targets.values()):
            if share.machine.can_acquire():
                self.found.setdefault(partition, Found(ErrorCode.NONE))
            yield 1

    # ------------------------------------------------------------------ reading and acquiring

    def _look_at(self, share: SharePartitionLeader) -> None:
        """Update the number of available bytes of a share partition. Raises NotCached before anything is changed."""
        if share not in self._targets:
            return
        try:
            if not share.has_records():
                del self._hopeful[share]
                return
            available = self._reader.available(share.partition, share.machine.next_fetch_offset())
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                share.machine.on_log_start(share.partition.log_start_offset)
            available = PLENTY  # the member gets the error, or the records behind those that were lost
        self._hopeful[share] = available

    def _pass_over(self, cold: NotCached, *, is_last: bool) -> None:
        """Skip the records of `cold`, which are not in memory, if this is the last try; else raise `cold`.

        After a skip a thread reads the pages for the next fetch, because a member that never waits has only last tries.
        """
        if not is_last:
            raise cold
        if not self._is_warming:
            self._warm_soon(cold)

    def _is_enough(self) -> bool:
        sizes = self._hopeful.values()
        room = self._limits.bytes_max // max(1, len(sizes))
        # A fetch before the last segment always has enough, as that of a consumer that is far behind.
        return max(sizes, default=0) >= PLENTY or sum([min(size, room) for size in sizes]) >= self._limits.bytes_min

    def _take(self, ready: list[SharePartitionLeader], *, is_last: bool) -> Generator[int, None, bool]:
        """Acquire records from each ready partition, up to the partition's share of the limits. Yield each step's cost.

        The generator returns True if a record was acquired or a partition has an error.
        """
        limits = self._limits
        left, count = limits.bytes_max, 0
        is_any = False
        self._reader.take_share_of_regions()
        for share in ready:
            target = self._targets.get(share)
            if target is None:
                continue
            if count >= limits.records_max:
                self.found[target.partition] = Found(ErrorCode.NONE)
                yield 1
                continue
            try:
                room = min(left, limits.bytes_max // len(ready))
                read = self._read(share, room, is_first=left == limits.bytes_max)
            except NotCached as cold:
                # Acquired records go out now. These come with the next fetch.
                if is_last or not is_any:
                    self._pass_over(cold, is_last=is_last)
                yield 1
                continue
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    share.machine.on_log_start(share.partition.log_start_offset)
                else:
                    self.found[target.partition] = Found(error.code)
                    is_any = True
                yield 1
                continue
            left = max(0, left - len(read.records))
            request = AcquireRequest(
                self._member_id, limits.records_max - count, limits.batch_size, limits.is_record_limit
            )
            acquired = share.machine.acquire(request, read.fetch_offset, read.batches, locks_now_ms(), read.aborted)
            count += sum([each.last_offset - each.first_offset + 1 for each in acquired])
            is_any = is_any or bool(acquired)
            self.found[target.partition] = Found(
                ErrorCode.NONE, read.slice(acquired) if acquired else b"", tuple(acquired)
            )
            # Other waiting fetches may acquire now, also records that were read above.
            share.after()
            yield 1 + len(read.batches)
        return is_any

    def _read(self, share: SharePartitionLeader, room: int, *, is_first: bool) -> SharedRead:
        machine = share.machine
        until = machine.reads_until()
        return self._reader.read(share.partition, machine.next_fetch_offset(), room, is_first=is_first, until=until)
