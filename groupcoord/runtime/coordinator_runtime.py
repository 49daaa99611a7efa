"""Runs the shards: appends what they owe, waits for it, answers, keeps their deadlines, loads and unloads them.

Kafka's counterpart is CoordinatorRuntime. It knows nothing of groups or transactions: a `ShardKind` says how shards are
made and how their records are written. Each partition of the internal topic that this broker leads has a
`PartitionRuntime`, which alone touches the partition's shard. Where the log commits at once, a request is handled,
appended, replayed and answered within one call, without a task switch. Where a commit has to be waited for, one task
drains the partition: what arrives meanwhile queues up, and requests that may share an append, as commits of offsets may,
do so if they stand in the queue one behind another.

Failures: an append that the log refuses has changed nothing and is answered as Kafka translates it. One that was
written but could not be committed leaves the shard in doubt, and so does a bug: the shard is unloaded, everybody who
waits is sent away, and it is loaded again from the log.

Loading: a partition is loaded while this broker leads it and is not fenced. A load that fails is tried again, less and
less often, until it succeeds or the partition is lost: no event has to come for that.

Time: what was due when a request arrived happens before the request is handled, so that it is judged as if every deadline
had been kept to the millisecond. While the broker is fenced nobody can reach it, so no deadline passes; afterwards members
get a whole session, as after a load.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, NamedTuple, cast

import trio

from ottla.groupcoord.runtime.outcome import Caller, Outcome, Reply
from ottla.groupcoord.runtime.ports import CoordinatorLog, ShardKind, ShardT
from ottla.wire.answers import Given, PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.records import BatchHeader, ControlType, control_type_id, decode_records, iter_batches

logger = logging.getLogger("ottla.groupcoord")

RECORDS_PER_BATCH = 500
LOAD_SLICE_S = 0.002
"""How long a load holds the event loop at a time. It gives way by the clock, not by records or batches: where turns of the
loop are long, one turn for each of ten thousand batches would take ten seconds."""
REQUESTS_PER_APPEND = 500  # those that are refused leave no records
FENCED_LOOK_S = 0.05
"""Time between two looks whether the broker is still fenced."""
LOAD_RETRY_S, LOAD_RETRY_MAX_S = 0.1, 1.0
"""Pause after a load that failed, which doubles up to the second."""

_TRANSLATED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors of the log, and what the client gets in their place: the log's own errors would mislead it."""


class WaitingCaller(Caller, Generic[ResponseT]):
    """A caller that gets a response, now or later.

    `refuse` makes the response that carries an error; `is_abandonable`: nobody needs the response when the peer has left.
    """

    __slots__ = ("is_abandonable", "pending", "refuse", "response")

    def __init__(
        self,
        refuse: Callable[[ErrorCode], ResponseT],
        *,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        is_abandonable: bool = False,
    ) -> None:
        super().__init__(api_version=api_version, client_id=client_id, client_host=client_host)
        self.refuse = refuse
        self.is_abandonable = is_abandonable
        self.response: ResponseT | None = None
        self.pending: PendingReply[ResponseT] | None = None

    def answer(self, response: ResponseT) -> None:
        if self.response is None:
            self.response = response
            # While `submit` still runs there is no pending answer: it returns the response itself.
            if self.pending is not None:
                self.pending.become_ready()

    def waits_for(self, owner: PartitionRuntime[Any]) -> Given[ResponseT]:
        """The response if there is one by now, else the answer that will have it."""
        if self.response is not None:
            return self.response
        self.pending = PendingReply(self, owner)
        return self.pending


class PendingReply(PendingAnswer[ResponseT]):
    """The answer to a caller that is parked or queued in a partition."""

    __slots__ = ("_caller", "_owner")

    def __init__(self, caller: WaitingCaller[ResponseT], owner: PartitionRuntime[Any]) -> None:
        super().__init__()
        self._caller = caller
        self._owner = owner

    @property
    def is_abandonable(self) -> bool:
        return self._caller.is_abandonable

    def response(self) -> ResponseT | None:
        # Caller and pending answer know each other. Such a circle would never be collected, so it ends here or in
        # `abandon`.
        self._caller.pending = None
        return self._caller.response

    def abandon(self) -> None:
        self._caller.pending = None
        if not self.is_ready:
            self._owner.abandon(self._caller)


class Queued(NamedTuple):
    """A request that waits for its turn, and when it came."""

    request: Any
    caller: WaitingCaller[Any]
    arrival_ms: int


NOTHING: Outcome[Any] = Outcome([], [], [])


# Its states, by `_shard` and `_is_draining`:
#
#     shard   draining   a request                        a deadline
#     none    no         is refused with `_absent`        there is none
#     there   no         is handled at once               is kept at once
#     there   yes        queues up for `_drain`           is kept by `_drain`, before the requests that came after it
#
# A load brings the shard; `unload` takes it away, at any await. A failed load or commit, or a bug, makes another load.
class PartitionRuntime(Generic[ShardT]):
    """One partition of the internal topic that this broker leads, from its election on."""

    def __init__(self, partition: int, runtime: Runtime[ShardT]) -> None:
        self.partition = partition
        self._kind = runtime.kind
        self._runtime = runtime
        self._log = runtime.log
        self._shard: ShardT | None = None
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # why there is no shard
        self._queue: OrderedDict[WaitingCaller[Any], Queued] = OrderedDict()
        self._in_flight: Outcome[Any] | None = None
        self._is_draining = False
        self._failed_loads = 0  # since the last one that succeeded

    # ------------------------------------------------------------------ requests

    def shard(self, now_ms: int) -> ShardT:
        """The shard, for reading at this time: what was due has happened, unless records are on their way."""
        self.expire(now_ms)
        if self._shard is None:
            raise KafkaError(self._absent)
        return self._shard

    @property
    def absent(self) -> ErrorCode:
        """Why there is no shard; NONE while there is one."""
        return self._absent if self._shard is None else ErrorCode.NONE

    def submit(self, request: Any, caller: WaitingCaller[ResponseT]) -> Given[ResponseT]:
        """Handle a request. Returns the response or, when that takes time, the answer that will have it."""
        now_ms = self._runtime.now_ms()
        # What was due before this request happens first. So a late event loop makes no answer wrong.
        self.expire(now_ms)
        if self._shard is None:
            return caller.refuse(self._absent)
        if not self._is_draining and self._is_due(now_ms):  # more than one call may do
            # More is due than one call does. The request must not overtake it: it queues up behind a task that does
            # the rest.
            self._is_draining = True
            self._runtime.spawn(self._drain, None, [], iter(()), NOTHING)
        if self._is_draining:
            self._queue[caller] = Queued(request, caller, now_ms)
            return caller.waits_for(self)
        try:
            self._carry_out(self._handle(request, caller))
        except Exception:
            # What the failed call left behind may contradict the log. Only this shard pays for the bug and is loaded
            # again.
            logger.exception("bug: partition %d of %s, %s", self.partition, self._kind.topic, type(request).__name__)
            self._start_over()
            return caller.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        # The request may have set a deadline before the one that the deadline task sleeps until.
        self._runtime.mind(self._shard)
        return caller.waits_for(self)

    def abandon(self, caller: WaitingCaller[Any]) -> None:
        """The caller no longer waits. What it asked for may still happen."""
        if self._is_draining:
            # Records are on their way, so the shard must not be touched. A request that has left the queue is carried
            # out.
            self._queue.pop(caller, None)
        elif self._shard is not None:
            try:
                self._carry_out(self._shard.abandon(caller, **self._runtime.times()))
            except Exception:
                logger.exception("bug: partition %d of %s, a caller that left", self.partition, self._kind.topic)
                self._start_over()
            self._runtime.mind(self._shard)

    def expire(self, now_ms: int) -> None:
        """Do what is due, or much of it."""
        # While a task drains the queue, it keeps the deadlines as well, each before the requests that came after it.
        if self._shard is None or self._is_draining or not self._is_due(now_ms):
            return
        try:
            self._carry_out(self._expire(now_ms))
        except Exception:
            logger.exception("bug: partition %d of %s, on a deadline", self.partition, self._kind.topic)
            self._start_over()

    def _is_due(self, now_ms: int) -> bool:
        """Whether a deadline has passed. None passes while nobody can reach this broker."""
        assert self._shard is not None
        deadline_ms = self._shard.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= now_ms and not self._runtime.is_suspended

    def _expire(self, now_ms: int) -> Outcome[Any]:
        assert self._shard is not None
        # As of the given time, which for a queued request is that of its arrival.
        return self._shard.expire(**self._runtime.times() | {"now_ms": now_ms})

    async def resume(self) -> None:
        """Members could not reach this broker for a while: they get a whole session, as after a load."""
        if self._shard is not None:
            for _ in self._shard.start_sessions(self._runtime.now_ms()):
                await trio.lowlevel.checkpoint()

    def next_deadline_ms(self) -> int | None:
        """When `expire` can do something; nothing can be done while records are on their way."""
        return None if self._shard is None or self._is_draining else self._shard.next_deadline_ms()

    def _handle(self, request: Any, caller: WaitingCaller[Any]) -> Outcome[Any]:
        assert self._shard is not None
        return self._shard.handle(request, caller, **self._runtime.times())

    # ------------------------------------------------------------------ append, replay, answer

    def _carry_out(self, outcome: Outcome[Any]) -> None:
        """Do what the shard wants done: at once if the log commits at once, else by a task of its own."""
        # These depend on no record.
        send(outcome.replies)
        if not outcome.records:
            return
        # `unload` settles this outcome if the shard is lost on the way.
        self._in_flight = outcome
        pieces = self._pieces(outcome.records)
        for records, batch in pieces:
            try:
                commit = self._log.append(self.partition, batch)
            except KafkaError as error:
                self._settle(outcome, translated(error.code))
                return
            if commit is not None:
                # A commit has to be waited for. A task does so, and everything that arrives meanwhile queues up
                # behind it.
                self._is_draining = True
                self._runtime.spawn(self._drain, commit, records, pieces, outcome)
                return
            self._replay(records)
        self._settle(outcome, ErrorCode.NONE)

    def _pieces(self, records: list[Any]) -> Iterator[tuple[list[Any], bytes]]:
        timestamp_ms = self._runtime.times()["timestamp_ms"]
        # A generator, so that of many batches each is encoded when its turn comes.
        for start in range(0, len(records), RECORDS_PER_BATCH):
            piece = records[start : start + RECORDS_PER_BATCH]
            yield piece, self._kind.encode(piece, timestamp_ms)

    def _replay(self, records: list[Any]) -> None:
        assert self._shard is not None
        for record in records:
            self._shard.replay(record)

    def _settle(self, outcome: Outcome[Any], error: ErrorCode) -> None:
        assert self._shard is not None
        self._in_flight = None
        if error:
            logger.warning("partition %d: %d records refused: %s", self.partition, len(outcome.records), error.name)
        send(self._shard.settle(outcome.settlements, error, **self._runtime.times()))

    async def _drain(
        self,
        commit: Awaitable[None] | None,
        records: list[Any],
        pieces: Iterator[tuple[list[Any], bytes]],
        outcome: Outcome[Any],
    ) -> None:
        """Wait for this commit, then work off the queue until it is empty. Ends early when the shard is unloaded."""
        # During any await the partition may be unloaded, and even loaded again. Then this task must touch nothing any
        # more.
        shard = self._shard
        try:
            if commit is not None:
                await commit
            while self._shard is shard:
                # In the first turn: the batch that `_carry_out` has appended. Later turns bring none.
                self._replay(records)
                await self._append_rest(pieces, outcome)
                if self._shard is not shard or not self._queue:
                    break
                # Others get a turn even if no commit had to be awaited. Meanwhile callers may have left the queue.
                await trio.lowlevel.checkpoint()
                if self._shard is not shard or not self._queue:
                    break
                outcome = self._next_outcome()
                send(outcome.replies)
                self._in_flight = outcome
                records, pieces = [], self._pieces(outcome.records)
        except KafkaError as error:
            # The batch was written, but nobody knows whether it will be committed. Memory may be wrong now, so the
            # log decides.
            if self._shard is shard:
                logger.error("partition %d of %s could not commit: %s", self.partition, self._kind.topic, error)
                self._start_over(translated(error.code))
        except Exception:
            logger.exception("bug: partition %d of %s, on the way to a commit", self.partition, self._kind.topic)
            if self._shard is shard:
                self._start_over()
        # If the shard was lost, `unload` has reset the flag, and a new shard may have a draining task of its own.
        if self._shard is shard is not None:
            self._is_draining = False
            self._runtime.mind(shard)

    async def _append_rest(self, pieces: Iterator[tuple[list[Any], bytes]], outcome: Outcome[Any]) -> None:
        shard = self._shard
        for records, batch in pieces:
            try:
                commit = self._log.append(self.partition, batch)
            except KafkaError as error:
                self._settle(outcome, translated(error.code))
                return
            if commit is not None:
                await commit
            else:
                # Many batches in a row must not hold the event loop.
                await trio.lowlevel.checkpoint()
            if self._shard is not shard:
                return
            self._replay(records)
        self._settle(outcome, ErrorCode.NONE)

    def _next_outcome(self) -> Outcome[Any]:
        """Handle the next in the queue, and those behind it that may share its append, as long as nothing else comes between.

        What was due when it arrived comes first.
        """
        # Only looked at: what was due before it arrived comes first, and then it is still in the queue.
        first = next(iter(self._queue.values()))
        if self._is_due(first.arrival_ms):
            return self._expire(first.arrival_ms)
        outcome = self._in_flight = self._handle_queued(first)
        left = REQUESTS_PER_APPEND - 1 if self._kind.may_share_append(first.request) else 0
        while (
            left
            and len(outcome.records) < RECORDS_PER_BATCH
            and (following := next(iter(self._queue.values()), None)) is not None
            and self._kind.may_share_append(following.request)
            and not self._is_due(following.arrival_ms)
        ):
            left -= 1
            try:
                more = self._handle_queued(following)
            except Exception:
                # The shard is loaded again, which settles what is in flight. The replies would be forgotten.
                send(outcome.replies)
                raise
            outcome = self._in_flight = Outcome(
                outcome.records + more.records,
                outcome.replies + more.replies,
                outcome.settlements + more.settlements,
            )
        return outcome

    def _handle_queued(self, queued: Queued) -> Outcome[Any]:
        """Take a request from the queue and handle it."""
        del self._queue[queued.caller]
        try:
            return self._handle(queued.request, queued.caller)
        except Exception:
            # It is in the queue no more, and perhaps not in the shard: nobody else would answer it.
            queued.caller.answer(queued.caller.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    # ------------------------------------------------------------------ load and unload

    async def load(self) -> None:
        """Rebuild the shard from the log. Whatever goes wrong, this is tried again."""
        # A new shard, so that nothing of an earlier one mixes with the log.
        shard = self._kind.make()
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            await self._replay_log(shard)
            # Another broker may have been elected while this one read.
            if self._runtime.leads(self):
                # The shard has to be in place before its first records are carried out, because these are replayed
                # into it.
                self._shard = shard
                self._carry_out(shard.loaded(**self._runtime.times()))
                self._runtime.mind(shard)
                self._note_load()
        except (KafkaError, OSError) as error:
            self._load_later(error)
        except Exception as error:
            logger.exception("bug: partition %d of %s, while loading", self.partition, self._kind.topic)
            self._load_later(error)

    async def _replay_log(self, shard: ShardT) -> None:
        reading = cast("AsyncGenerator[bytes, None]", self._log.read_batches(self.partition))
        slice_end_s = time.perf_counter() + LOAD_SLICE_S
        async with aclosing(reading):  # so that a load that is cancelled closes what it reads
            async for batches in reading:
                for header, start, _ in iter_batches(batches):
                    for _ in replay_batch(self._kind, shard, header, batches, start):
                        if time.perf_counter() >= slice_end_s:
                            await trio.lowlevel.checkpoint()
                            slice_end_s = time.perf_counter() + LOAD_SLICE_S

    def _load_later(self, problem: Exception) -> None:
        self._shard = None
        if not self._runtime.leads(self):
            return
        # A client that hears this looks for the coordinator again. COORDINATOR_LOAD_IN_PROGRESS would keep it here.
        self._absent = ErrorCode.NOT_COORDINATOR
        pause_s = min(LOAD_RETRY_S * 2**self._failed_loads, LOAD_RETRY_MAX_S)
        # One line for a whole series of tries.
        if not self._failed_loads:
            logger.error(
                "partition %d of %s cannot be loaded: %s; this is tried again",
                self.partition,
                self._kind.topic,
                problem,
            )
        self._failed_loads += 1
        self._runtime.spawn(self._runtime.load_after, pause_s, self)

    def _note_load(self) -> None:
        if self._failed_loads:
            topic = self._kind.topic
            logger.info("partition %d of %s is loaded after %d tries", self.partition, topic, self._failed_loads)
        self._failed_loads = 0

    def unload(self, error: ErrorCode, absent: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Stop coordinating. Requests that wait are answered with `error`, later ones with `absent`."""
        # All at once and before anybody is answered, because an answer calls back into its connection.
        shard, self._shard, self._absent, self._is_draining = self._shard, None, absent, False
        outcome, self._in_flight = self._in_flight, None
        while self._queue:
            caller, _ = self._queue.popitem(last=False)
            caller.answer(caller.refuse(error))
        if shard is None:
            return
        # A call that a bug ended halfway has collected things, which the settlements below must not send. It may have
        # taken callers out of the groups already, and then nobody else knows them.
        half = shard.discard()
        for reply in half.replies:
            assert isinstance(reply.caller, WaitingCaller)
            reply.caller.answer(reply.caller.refuse(error))
        # A settlement is called exactly once, also now.
        settlements = [*(outcome.settlements if outcome is not None else ()), *half.settlements]
        works = (partial(shard.settle, settlements, error, **self._runtime.times()), partial(shard.unload, error))
        for work in works:
            try:
                send(work())
            except Exception:  # whoever has lost the partition must not be kept from following the new leader
                logger.exception("bug: partition %d of %s, while unloading", self.partition, self._kind.topic)

    def _start_over(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The shard in memory may no longer be what the log says: send everybody away and load it again."""
        self.unload(error, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._runtime.load_soon(self)


class Runtime(Generic[ShardT]):
    """The partitions this broker leads, the task that keeps their deadlines, and the one that loads them."""

    def __init__(self, kind: ShardKind[ShardT], log: CoordinatorLog, *, wall_clock_ms: Callable[[], int]) -> None:
        self.kind = kind
        self.log = log
        self._wall_clock_ms = wall_clock_ms
        self._partitions: dict[int, PartitionRuntime[ShardT]] = {}
        self._to_load: deque[PartitionRuntime[ShardT]] = deque()
        self._nursery: trio.Nursery | None = None
        self._elected = trio.Event()
        self._wake = trio.Event()
        self._sleeping_until_ms: float = 0
        self._is_suspended = False

    @property
    def is_running(self) -> bool:
        return self._nursery is not None

    def partition(self, index: int) -> PartitionRuntime[ShardT] | None:
        return self._partitions.get(index)

    def partitions(self) -> list[PartitionRuntime[ShardT]]:
        return list(self._partitions.values())

    def leads(self, partition: PartitionRuntime[ShardT]) -> bool:
        """Whether a partition was not lost since its election."""
        # By identity: a partition that was lost and won again has a new object here.
        return self._partitions.get(partition.partition) is partition

    @property
    def is_suspended(self) -> bool:
        """Whether no deadline passes, because nobody can reach this broker or could a moment ago."""
        return self._is_suspended or self.log.is_fenced()

    def times(self) -> dict[str, int]:
        """The two clocks: one for deadlines that never jumps, and the time of day."""
        return {"now_ms": self.now_ms(), "timestamp_ms": self._wall_clock_ms()}

    def now_ms(self) -> int:
        """The time for deadlines."""
        return round(trio.current_time() * 1000)

    # ------------------------------------------------------------------ leadership

    def on_election(self, partition: int) -> None:
        """This broker leads the partition from now on: load it, again if it was loaded."""
        # What is in memory belongs to an earlier term. It may lack what another leader has written since.
        self.on_resignation(partition)
        elected = self._partitions[partition] = PartitionRuntime(partition, self)
        self.load_soon(elected)

    def load_soon(self, partition: PartitionRuntime[ShardT]) -> None:
        """Load a partition when its turn comes, and this broker is not fenced."""
        self._to_load.append(partition)
        self._elected.set()

    async def load_after(self, pause_s: float, partition: PartitionRuntime[ShardT]) -> None:
        """Load a partition after a pause."""
        await trio.sleep(pause_s)
        self.load_soon(partition)

    def on_resignation(self, partition: int) -> None:
        """Another broker leads the partition: send everybody there."""
        known = self._partitions.pop(partition, None)
        if known is not None:
            known.unload(ErrorCode.NOT_COORDINATOR)

    # ------------------------------------------------------------------ tasks

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; whoever waits then is sent away."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                nursery.start_soon(self._keep_deadlines)
                await self._load_elected()
        finally:
            # First of all, so that requests that arrive from now on hear that there is no coordinator.
            self._nursery = None
            for partition in self.partitions():
                self.on_resignation(partition.partition)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(function, *arguments)

    def mind(self, shard: ShardT | None) -> None:
        """Wake up in time for this shard."""
        deadline_ms = None if shard is None else shard.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake.set()

    async def _keep_deadlines(self) -> None:
        while True:
            # Others get a turn between two rounds, however much is due.
            await trio.lowlevel.checkpoint()
            self._wake = trio.Event()
            deadlines = [each.next_deadline_ms() for each in self._partitions.values()]
            self._sleeping_until_ms = min((each for each in deadlines if each is not None), default=float("inf"))
            with trio.move_on_at(self._sleeping_until_ms / 1000):
                await self._wake.wait()
            # Members could not reach a fenced broker, so their silence proves nothing.
            if self.log.is_fenced():
                await self._suspend()
            now_ms = self.now_ms()
            for partition in self.partitions():
                partition.expire(now_ms)
            # This task is awake and looks at all deadlines before it sleeps again, so nobody has to wake it.
            self._sleeping_until_ms = 0

    async def _suspend(self) -> None:
        """Let no deadline pass until this broker can be reached, and then begin the members' sessions anew."""
        # It stays set while sessions begin anew, which takes several turns of the event loop. No deadline passes in
        # between.
        self._is_suspended = True
        while self.log.is_fenced():
            await trio.sleep(FENCED_LOOK_S)
        for partition in self.partitions():
            await partition.resume()
        self._is_suspended = False

    async def _load_elected(self) -> None:
        while True:
            await self._elected.wait()
            self._elected = trio.Event()
            while self._to_load:
                # While this broker is fenced another one may lead the partition, and what is read here may be
                # outdated.
                while self.log.is_fenced():
                    await trio.sleep(FENCED_LOOK_S)
                partition = self._to_load.popleft()
                # The partition may have been lost while it waited for its turn.
                if self.leads(partition):
                    await partition.load()


def send(replies: list[Reply]) -> None:
    for caller, response in replies:
        assert isinstance(caller, WaitingCaller)
        caller.answer(response)


def translated(error: ErrorCode) -> ErrorCode:
    return _TRANSLATED.get(error, error)


def replay_batch(
    kind: ShardKind[ShardT], shard: ShardT, header: BatchHeader, buffer: bytes, start: int
) -> Iterator[None]:
    """Replay a batch of the log, one record at each step. Records that do not parse are passed over, with a warning."""
    # An idempotent producer has an id, too, but without a transaction its records count at once.
    producer_id = header.producer_id if header.is_transactional else -1
    yield  # compaction may have left no record
    for record in decode_records(buffer, start):
        yield
        if header.is_control:
            control_type = control_type_id(record.key)
            if control_type in (ControlType.ABORT, ControlType.COMMIT):
                shard.replay_marker(header.producer_id, committed=control_type == ControlType.COMMIT)
            continue
        try:
            decoded = kind.decode(record.key, record.value)
        except ProtocolViolation as error:
            # One bad record must not take all groups of the partition out of service.
            logger.warning("a record of %s at offset %d does not parse: %s", kind.topic, record.offset, error)
            continue
        if decoded is not None:
            shard.replay(decoded, record.offset, producer_id)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
