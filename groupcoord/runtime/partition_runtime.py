"""One partition of an internal topic: its requests, their appends, and the replies that wait for commits.

A request is handled at once, against everything that was handled before it. Its records are appended, what they mean for
the living state is settled, and its reply waits until they are committed (`InFlightAppends`). Where the log commits at once
all of that happens within one call, without a task switch. Commits of offsets that come while an append is in flight are
gathered, and share one append when it is committed.

Some requests and deadlines look at what records leave behind: they delete offsets and groups, or read offsets that have
to be stable. These stand alone (`ShardKind.may_overlap`). Before them all appends in flight are committed, and nothing is
handled until their own are. What comes meanwhile stands in line, and a task works the line off.

A call whose work grows with a group returns after its first step (`Rest`). The task of the line takes the others, and then
appends the records of the whole call, from a batch that is made in a thread. Everything else stands in line behind it. Reads
do not.

The end of a transaction is a request, too (`TransactionEnd`). Its marker is appended behind everything that was handled
before, and the shard replays it when it is committed.

Failures: the shard learns of a refused append before it handles the next request, so no later request builds on it. The
client gets Kafka's translation of the error, and the settlement reverts the change. One that was written but could not be
committed leaves the shard in doubt, and so does a bug: everybody who waits is sent away, and the shard is loaded again from
the log. So no snapshot of earlier states has to be kept, as Kafka does for it.

Time: what was due when a request arrived happens before the request is handled, so that it is judged as if every deadline
had been kept to the millisecond.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic

import trio

from ottla.groupcoord.runtime.answers import (
    Caller,
    InFlightAppend,
    InFlightAppends,
    Queued,
    Reply,
    finished,
    send_in_slices,
)
from ottla.groupcoord.runtime.coordinator_shard import (
    RECORDS_PER_BATCH,
    TOO_LARGE,
    Appended,
    CoordinatorPartition,
    Host,
    Job,
    Outcome,
    Rest,
    ShardT,
    TransactionalRecord,
    TransactionEnd,
    batches_of,
    together,
    translated,
)
from ottla.groupcoord.runtime.loading import Farewell, drop, last_replies, shard_from_log
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.groupcoord")

REQUESTS_PER_APPEND = 500
LOAD_RETRY_S, LOAD_RETRY_MAX_S = 0.1, 1.0
"""Pause after a load that failed, which doubles up to the second."""


# Its states, by `_shard` and `_has_line`:
#
#     shard   line   a request                                          a deadline
#     none    no     is refused with `_absent`                          there is none
#     there   no     is handled at once; forms a line if it must wait   the same
#     there   yes    stands in line for `_work_off`                     is kept by `_work_off`, before what came after it
#
# A load brings the shard; `unload` takes it away, at any await. A failed load or commit, or a bug, makes another load.
class PartitionRuntime(Generic[ShardT]):
    """Runtime of one partition of the internal topic, while this broker leads the partition."""

    def __init__(self, partition: int, runtime: Host[ShardT]) -> None:
        self.partition = partition
        self._kind = runtime.kind
        self._place = partition, runtime.kind.topic
        self._name = f"{runtime.kind.topic}-{partition}"
        self._runtime = runtime
        self._log: CoordinatorPartition  # set by a load, like the shard
        self._shard: ShardT | None = None
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # why there is no shard
        self._queue: OrderedDict[Caller, Queued] = OrderedDict()
        self._has_line = False
        self._in_flight = InFlightAppends()
        self._is_completing = False
        self._gathered: list[Outcome[Any]] = []  # what shares the next append
        self._gathered_records = 0
        self._unsettled: list[Outcome[Any]] = []  # what is being appended, batch by batch
        # What the line's task does before the next request.
        self._line_work: deque[Callable[[], Awaitable[None]]] = deque()
        self._is_unfinished = False  # a call is not finished, and has collected half of what it comes to
        self._unfinished_caller: Caller | None = None  # of that call
        self._failed_loads = 0  # since the last one that succeeded

    # ------------------------------------------------------------------ requests

    def shard(self, now_ms: int) -> ShardT:
        """Return the shard, after due work that need not wait for a commit. Raises KafkaError if none is loaded."""
        self.expire(now_ms)
        if self._shard is None:
            raise KafkaError(self._absent)
        return self._shard

    @property
    def absent(self) -> ErrorCode:
        """Error code for requests if no shard is loaded; NONE if one is loaded."""
        return self._absent if self._shard is None else ErrorCode.NONE

    def submit(self, request: Any, caller: Caller) -> Given[Any]:
        """Handle or queue a request. Return the response or a pending answer."""
        now_ms = self._runtime.now_ms()
        # What was due before this request happens first. So a late event loop makes no answer wrong.
        is_due = self._shard is not None and not self._has_line and self._is_due(now_ms)
        if is_due:
            self.expire(now_ms)
        if self._shard is None:
            return caller.refuse(self._absent)
        # More may be due than one call does. The request must not overtake it.
        if (is_due and self._is_due(now_ms)) or (self._in_flight and not self._may_overlap(request)):
            self._form_line()
        if self._has_line:
            self._queue[caller] = Queued(request, caller, now_ms)
            return caller.response_or_pending(self.abandon)
        try:
            outcome = self._handle(request, caller)
            if self._in_flight and self._kind.may_share_append(request):
                self._gather(outcome)
            else:
                self._carry_out(outcome, caller)
                if self._in_flight and not self._may_overlap(request):
                    self._form_line()
        except Exception:
            # What the failed call left behind may contradict the log. Only this shard pays for the bug.
            logger.exception("bug: a %s of %s failed", type(request).__name__, self._name)
            self._start_over(self._shard)
            return caller.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        # The request may have set a deadline before the one that the deadline task sleeps until.
        self._runtime.mind(self._shard)
        return caller.response_or_pending(self.abandon)

    def abandon(self, caller: Caller) -> None:
        """Forget a disconnected caller. The caller's request may still be carried out."""
        if self._has_line:
            # Something stands alone, so the shard must not be touched. A request that has left the line is carried out.
            self._queue.pop(caller, None)
        elif self._shard is not None:
            try:
                self._carry_out(self._shard.abandon(caller, **self._runtime.times()))
            except Exception:
                logger.exception("bug: abandoning a disconnected caller of %s failed", self._name)
                self._start_over(self._shard)
            self._runtime.mind(self._shard)

    def expire(self, now_ms: int) -> None:
        """Handle due deadlines; if there are many, a limited number."""
        # The task that works off the line keeps the deadlines as well, each before the requests that came after it.
        if self._shard is None or self._has_line or not self._is_due(now_ms):
            return
        try:
            stands_alone = self._shard.stands_alone(now_ms)
            if not (stands_alone and self._in_flight):
                self._carry_out(self._expire(now_ms))
            if stands_alone and self._in_flight:
                self._form_line()
        except Exception:
            logger.exception("bug: a deadline of %s failed", self._name)
            self._start_over(self._shard)

    def _is_due(self, now_ms: int) -> bool:
        """Return True if a deadline has passed; False while deadlines are suspended."""
        assert self._shard is not None
        deadline_ms = self._shard.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= now_ms and not self._runtime.is_suspended

    def _expire(self, now_ms: int) -> Outcome[Any]:
        assert self._shard is not None
        # As of the given time, which for a request in line is that of its arrival.
        return self._shard.expire(**self._runtime.times() | {"now_ms": now_ms})

    async def resume(self) -> None:
        """Restart all members' sessions after this broker was fenced."""
        if self._shard is not None:
            for _ in self._shard.start_sessions(self._runtime.now_ms()):
                await trio.lowlevel.checkpoint()

    def next_deadline_ms(self) -> int | None:
        """Return the time in ms at which to call `expire`.

        None: there is no deadline, no shard, or the queue's task handles deadlines.
        """
        return None if self._shard is None or self._has_line else self._shard.next_deadline_ms()

    # ------------------------------------------------------------------ handle, append, settle

    def _handle(self, request: Any, caller: Caller) -> Outcome[Any]:
        """Let the shard handle a request. Transaction markers are written here, for the shards of all coordinators."""
        assert self._shard is not None
        if isinstance(request, TransactionEnd):
            self._write_marker(request, caller)
            return Outcome([], [], [])
        return self._shard.handle(request, caller, **self._runtime.times())

    def _may_overlap(self, request: Any) -> bool:
        return isinstance(request, TransactionEnd) or self._kind.may_overlap(request)

    def _write_marker(self, end: TransactionEnd, caller: Caller) -> None:
        """Write a transaction's marker behind all records of earlier requests. It takes effect when it is committed."""
        self._append_gathered()
        now_ms, version = self._runtime.timestamp_ms(), end.transaction_version
        try:
            appended = self._log.append(end.marker(now_ms), now_ms, transaction_version=version)
        except KafkaError as error:
            # Not translated: it is for a transaction coordinator, which knows the errors of logs.
            caller.answer(caller.refuse(error.code))
            return
        self._put_in_force(appended, [end])
        self._in_flight.reply_after([Reply(caller, caller.refuse(ErrorCode.NONE))])

    def _carry_out(self, outcome: Outcome[Any], caller: Caller | None = None) -> None:
        """Send an outcome's replies and append its records. Long outcomes are left to the queue's task."""
        assert self._shard is not None
        rest = self._shard.unfinished()
        self._begin(outcome)
        if rest is not None:
            self._finish_later(rest, caller)
            return
        if not outcome.records:
            return
        if outcome.transaction is not None:
            self._append_gathered()  # which were handled before
        # `unload` settles this outcome if the shard is lost on the way.
        self._unsettled.append(outcome)
        self._append(outcome)

    def _append(self, outcome: Outcome[Any]) -> None:
        if len(outcome.records) > RECORDS_PER_BATCH:
            self._form_line(partial(self._append_long, outcome))
            return
        records, now_ms = outcome.records, self._runtime.timestamp_ms()
        if self._append_batch(records, self._kind.encode(records, now_ms), now_ms, outcome):
            self._settle(outcome, ErrorCode.NONE)

    def _append_batch(self, records: list[Any], batch: bytes, now_ms: int, outcome: Outcome[Any]) -> bool:
        """Append a batch of an outcome. Return False if the log refused it.

        After a refusal an outcome of several requests is appended in halves. Another one is settled with the error, or
        the shard is loaded again if some of its batches are in the log.
        """
        try:
            if outcome.transaction is None:
                appended = self._log.append(batch, now_ms)
            else:
                transaction = outcome.transaction
                appended = self._log.append(transaction.stamped(batch), now_ms, guard=transaction.guard)
                records = [TransactionalRecord(record, transaction.producer_id) for record in records]
        except KafkaError as error:
            if error.code in TOO_LARGE and len(outcome.parts) > 1:
                self._append_in_halves(outcome)
            elif outcome.is_atomic and records[0] is not outcome.records[0]:
                # Its first batches are in the log, and all of it is in force. Only the log can tell what holds now.
                self._start_over(self._shard, translated(error.code))
            else:
                self._settle(outcome, translated(error.code))
            return False
        self._put_in_force(appended, records)
        return True

    def _put_in_force(self, appended: Appended, records: list[Any]) -> None:
        """Replay appended records, either immediately or when they are committed."""
        if appended.commit is None and not self._in_flight and len(records) <= RECORDS_PER_BATCH:
            self._replay(records, appended.first_offset)
            return
        # One that is committed at once counts behind those before it, too.
        self._in_flight.add(InFlightAppend(*appended, records))
        if not self._is_completing:
            self._runtime.spawn(self._complete_appends, self._shard)
            self._is_completing = True

    def _replay(self, records: list[Any], first_offset: int) -> None:
        assert self._shard is not None
        for offset, record in enumerate(records, first_offset):
            if isinstance(record, TransactionEnd):
                self._shard.replay_marker(record.producer_id, committed=record.committed)
            elif isinstance(record, TransactionalRecord):
                self._shard.replay(record.record, offset, record.producer_id)
            else:
                self._shard.replay(record, offset)
        if self._kind.on_force is not None:
            self._kind.on_force(self.partition, self._shard)

    def _settle(self, outcome: Outcome[Any], error: ErrorCode) -> None:
        """Call an outcome's settlements after its append, or with the log's `error`. Replies wait for the commit."""
        assert self._shard is not None
        if error:
            logger.warning("partition %d: %d records refused: %s", self.partition, len(outcome.records), error.name)
        self._in_flight.reply_after(self._shard.settle(outcome.settlements, error, **self._runtime.times()))
        # Last: after a bug in a settlement `unload` answers all of them.
        self._unsettled = [each for each in self._unsettled if each is not outcome]
        rest = self._shard.unfinished()
        if rest is not None:
            self._finish_later(rest, None)

    def _begin(self, outcome: Outcome[Any]) -> None:
        """Send an outcome's replies after earlier appends are committed, and start its jobs."""
        # The replies depend on none of these records, but on what was handled before.
        self._in_flight.reply_after(outcome.replies)
        for job in outcome.jobs:
            self._runtime.spawn(self._compute, self._shard, job)

    async def _compute(self, shard: ShardT, job: Job) -> None:
        """Run a job in a thread and submit its result to the shard, unless the shard was unloaded meanwhile."""
        try:
            result = await self._runtime.compute(job.compute)
            if job.narrow is not None:
                result = await job.narrow(result)
        except Exception:
            result = None
            logger.exception("bug: a computation for %s failed", self._name)
        if self._shard is shard:
            await finished(self.submit(job.request(result), Caller(lambda error: error)))

    # ------------------------------------------------------------------ appends in flight

    def _gather(self, outcome: Outcome[Any]) -> None:
        """Add an outcome to the outcomes that the next append combines."""
        assert self._shard is not None and self._shard.unfinished() is None, "a commit is one step"
        self._begin(outcome)
        if not outcome.records:
            assert not outcome.settlements, "a settlement without records"
            return
        if self._gathered_records + len(outcome.records) > RECORDS_PER_BATCH:
            self._append_gathered()
        self._gathered.append(outcome._replace(replies=[], jobs=()))
        self._gathered_records += len(outcome.records)
        if len(self._gathered) >= REQUESTS_PER_APPEND:
            self._append_gathered()

    def _append_gathered(self) -> None:
        gathered, self._gathered, self._gathered_records = self._gathered, [], 0
        if gathered:
            self._carry_out(together(gathered))

    def _append_in_halves(self, outcome: Outcome[Any]) -> None:
        """Append an outcome of several requests, too large for one batch, in halves. Then not all fail if one must."""
        assert len(outcome.records) <= RECORDS_PER_BATCH, "a part of it may be in the log"
        middle = len(outcome.parts) // 2
        halves = [together(outcome.parts[:middle]), together(outcome.parts[middle:])]
        # Both before either is appended: a bug in the first must not leave the second unanswered.
        self._unsettled = [each for each in self._unsettled if each is not outcome] + halves
        for half in halves:
            self._append(half)

    async def _complete_appends(self, shard: ShardT) -> None:
        """Wait for each append's commit, in order; then replay its records and send its replies."""
        # Before this task starts, and during any await, the partition may be unloaded, and even loaded again. Then the
        # task must touch nothing any more.
        time_slice = TimeSlice()
        try:
            while self._shard is shard and self._in_flight:
                append = await self._in_flight.first_committed()
                if self._shard is not shard:
                    return
                for start in range(0, len(append.records), RECORDS_PER_BATCH):
                    piece = slice(start, start + RECORDS_PER_BATCH)
                    records = append.records[piece]
                    self._replay(records, append.first_offset + start)
                    # Here, because to let go of very many records at the end takes a while, too.
                    append.records[piece] = [None] * len(records)
                    await time_slice.yield_if_over()
                    if self._shard is not shard:
                        return
                while append.replies or (self._gathered and not self._is_unfinished):
                    # Before the append counts as committed: who waits for all of them waits for these, too.
                    if not self._is_unfinished:
                        self._append_gathered()
                    replies, append.replies = append.replies, []
                    await send_in_slices(replies, time_slice)
                    if self._shard is not shard:
                        return
                self._in_flight.remove_first()
                self._runtime.mind(shard)  # what has come into force may have set a deadline
                # A follower that comes back commits all appends at once.
                await time_slice.yield_if_over()
        except KafkaError as error:
            # The batch was written, but nobody knows whether it will be committed. Memory may be wrong: the log decides.
            if self._shard is shard:
                logger.error("partition %d of %s could not commit: %s", *self._place, error)
                self._start_over(shard, translated(error.code))
        except Exception:
            logger.exception("bug: a commit of %s failed", self._name)
            self._start_over(shard)
        # If the shard was lost, `unload` has reset the flag, and a new shard may have such a task of its own.
        if self._shard is shard:
            self._is_completing = False

    # ------------------------------------------------------------------ the line

    def _form_line(self, work: Callable[[], Awaitable[None]] | None = None) -> None:
        """Queue all requests from now on, until the queue's task has emptied the queue. It does `work` first."""
        if work is not None:
            self._line_work.append(work)
        if not self._has_line:
            self._runtime.spawn(self._work_off, self._shard)
            self._has_line = True

    async def _work_off(self, shard: ShardT) -> None:
        """Handle queued work and requests until the queue is empty or the shard is unloaded."""
        # Several in a turn. If each took one, clients that ask again at once would keep a line for ever.
        time_slice = TimeSlice()
        try:
            # Before this task has started the shard may have been unloaded.
            while self._shard is shard and self._line_work:
                await self._line_work.popleft()()
            # A line is formed behind something that stands alone, or before it.
            if self._shard is shard:
                await self._in_flight.wait_until_none()
            while self._shard is shard and (self._line_work or self._queue or self._waits_to_stand_alone()):
                if self._line_work:
                    await self._line_work.popleft()()
                else:
                    await self._next_in_line(shard)
                # Meanwhile callers may leave the line.
                await time_slice.yield_if_over()
        except Exception:
            logger.exception("bug: a queued request of %s failed", self._name)
            self._start_over(shard)
        # If the shard was lost, `unload` has reset the flag, and a new shard may have a line of its own.
        if self._shard is shard:
            self._has_line = False
            self._runtime.mind(shard)

    def _waits_to_stand_alone(self) -> bool:
        now_ms = self._runtime.now_ms()
        return self._shard is not None and self._is_due(now_ms) and self._shard.stands_alone(now_ms)

    async def _next_in_line(self, shard: ShardT) -> None:
        """Do due work, else handle the first queued request.

        Either may have to wait for the appends in flight; then this call only waits.
        """
        # Only looked at: it is handled when everything is done that has to come before it.
        first = next(iter(self._queue.values()), None)
        now_ms = self._runtime.now_ms() if first is None else first.arrival_ms
        if first is None or self._is_due(now_ms):
            first, stands_alone = None, shard.stands_alone(now_ms)
        else:
            stands_alone = not self._may_overlap(first.request)
        if stands_alone and self._in_flight:
            await self._in_flight.wait_until_none()
            return  # the line may be another one by now
        if first is None:
            self._carry_out(self._expire(now_ms))
        else:
            self._handle_first(first)
        if stands_alone:
            while self._shard is shard and self._line_work:
                await self._line_work.popleft()()
            await self._in_flight.wait_until_none()

    def _handle_first(self, first: Queued) -> None:
        """Remove the first request from the queue, let the shard handle it, and carry out the outcome."""
        request, caller, _ = first
        del self._queue[caller]
        try:
            outcome = self._handle(request, caller)
        except Exception:
            # It stands in line no more, and perhaps not in the shard: nobody else would answer it.
            caller.answer(caller.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if self._in_flight and self._kind.may_share_append(request):
            self._gather(outcome)
        else:
            self._carry_out(outcome, caller)

    def _finish_later(self, rest: Rest, caller: Caller | None) -> None:
        """Leave the remaining steps of a call to the queue's task."""
        self._is_unfinished, self._unfinished_caller = True, caller
        self._form_line(partial(self._finish, rest))

    async def _finish(self, rest: Rest) -> None:
        """Take the remaining steps of a call, yielding between them, and append its outcome."""
        shard, time_slice = self._shard, TimeSlice()
        while True:
            try:
                self._in_flight.reply_after(next(rest))
            except StopIteration as end:
                outcome: Outcome[Any] = end.value
                break
            await time_slice.yield_if_over()
            if self._shard is not shard:
                return  # `unload` has answered the caller
        self._is_unfinished = False
        self._append_gathered()  # which were handled before
        self._unfinished_caller = None
        self._begin(outcome)
        if outcome.records:
            self._unsettled.append(outcome)
            await self._append_long(outcome)

    async def _append_long(self, outcome: Outcome[Any]) -> None:
        """Append a long outcome: one batch that a thread encodes, or several batches with a yield after each."""
        shard, now_ms = self._shard, self._runtime.timestamp_ms()
        pieces = await batches_of(outcome, self._kind.encode, now_ms, self._runtime.run_in_thread)
        for records, batch in pieces:
            if self._shard is not shard or not self._append_batch(records, batch, now_ms, outcome):
                return  # `unload` has settled the outcome, or `_append_batch` has
            await trio.lowlevel.checkpoint()
        if self._shard is shard:
            self._settle(outcome, ErrorCode.NONE)

    # ------------------------------------------------------------------ load and unload

    async def load(self) -> None:
        """Rebuild the shard from the log; after an error, retry later."""
        if self._shard is not None:
            return  # somebody else has asked for it, too
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            # Another leader may cut off an end that is not committed. A member that was answered by it would hold what
            # nobody has given it. Other partitions are loaded meanwhile.
            self._log = self._runtime.log.partition(self.partition)
            commit = self._log.until_committed()
            if commit is not None:
                self._runtime.spawn(self._load_when_committed, commit)
                return
            shard = await shard_from_log(self._log, self._runtime)
            # Another broker may have been elected while this one read.
            if self._runtime.leads(self):
                # It has to be in place before its first records are carried out, because these are replayed into it.
                self._shard = shard
                self._carry_out(shard.loaded(**self._runtime.times()))
                if self._kind.on_force is not None:
                    self._kind.on_force(self.partition, shard)
                self._runtime.mind(shard)
                if self._failed_loads:
                    logger.info("partition %d of %s is loaded after %d tries", *self._place, self._failed_loads)
                self._failed_loads = 0
            else:
                drop(shard)
        except (KafkaError, OSError) as error:
            self._load_later(error)
        except Exception as error:
            logger.exception("bug: loading %s failed", self._name)
            self._load_later(error)

    async def _load_when_committed(self, commit: Coroutine[Any, Any, None]) -> None:
        try:
            await commit
        except KafkaError as error:
            self._load_later(error)
        else:
            self._runtime.load_soon(self)

    def _load_later(self, problem: Exception) -> None:
        self._shard = None
        if not self._runtime.leads(self):
            return
        # A client that hears this looks for the coordinator again. COORDINATOR_LOAD_IN_PROGRESS would keep it here.
        self._absent = ErrorCode.NOT_COORDINATOR
        pause_s = min(LOAD_RETRY_S * 2**self._failed_loads, LOAD_RETRY_MAX_S)
        # One line for a whole series of tries.
        if not self._failed_loads:
            logger.error("partition %d of %s cannot be loaded: %s; this is tried again", *self._place, problem)
        self._failed_loads += 1
        self._runtime.spawn(self._runtime.load_after, pause_s, self)

    def unload(self, error: ErrorCode, absent: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Unload the shard. Waiting requests are answered with `error`, later requests with `absent`."""
        # All at once and before anybody is answered, because an answer calls back into its connection.
        shard, self._shard, self._absent = self._shard, None, absent
        self._has_line = self._is_completing = self._is_unfinished = False
        self._line_work.clear()
        callers = [caller for append in self._in_flight.abandon() for caller, _ in append.replies]
        if self._unfinished_caller is not None:
            callers.append(self._unfinished_caller)
        callers += self._queue
        unsettled = [*self._unsettled, *self._gathered]
        self._unfinished_caller, self._queue, self._unsettled = None, OrderedDict(), []
        self._gathered, self._gathered_records = [], 0
        replies = last_replies(callers, shard, unsettled, error, self._runtime.times(), self._place)
        Farewell(replies, self._place).begin(self._runtime.spawn if self._runtime.is_running else None)

    def _start_over(self, shard: ShardT | None, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Load the shard again, because it may contradict the log. No-op if `shard` is unloaded already."""
        if self._shard is shard:
            self.unload(error, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._runtime.load_soon(self)
