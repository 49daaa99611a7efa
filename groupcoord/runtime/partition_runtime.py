"""One partition of an internal topic: its requests, their appends, and the replies that wait for commits.

A request is handled at once, against everything that was handled before it. Its records are appended, what they mean for
the living state is settled, and its reply waits until they are committed (`flights.py`). Where the log commits at once
all of that happens within one call, without a task switch. Commits of offsets that come while a flight is under way are
gathered, and share one append when it lands.

Some requests and deadlines look at what records leave behind: they delete offsets and groups, or read offsets that have
to be stable. These stand alone (`ShardKind.may_overlap`). Before them all flights land, and nothing is handled until
their own have landed. What comes meanwhile stands in a line, which a task works off.

Failures: an append that the log refuses is known of before the next request is handled, so nothing rests on it: it is
answered as Kafka translates it, and its settlement takes back what it meant. One that was written but could not be
committed leaves the shard in doubt, and so does a bug: everybody who waits is sent away, and the shard is loaded again
from the log. So no snapshot of earlier states has to be kept, as Kafka does for it.

Time: what was due when a request arrived happens before the request is handled, so that it is judged as if every deadline
had been kept to the millisecond.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol

import trio

from ottla.groupcoord.runtime.callers import WaitingCaller, refuse, send
from ottla.groupcoord.runtime.flights import Flight, Flights
from ottla.groupcoord.runtime.outcome import Outcome
from ottla.groupcoord.runtime.ports import CoordinatorLog, ShardKind, ShardT
from ottla.groupcoord.runtime.replaying import replay_log
from ottla.groupcoord.runtime.turns import Turn
from ottla.wire.answers import Given, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.groupcoord")

RECORDS_PER_BATCH = 500
REQUESTS_PER_APPEND = 500
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


Pieces = Iterator[tuple[list[Any], bytes]]
"""Batches of an outcome, each with its records."""


class Queued(NamedTuple):
    """A request that stands in line, and when it came."""

    request: Any
    caller: WaitingCaller[Any]
    arrival_ms: int


class Host(Protocol[ShardT]):
    """What runs the partitions: the `Runtime`."""

    @property
    def kind(self) -> ShardKind[ShardT]: ...

    @property
    def log(self) -> CoordinatorLog: ...

    @property
    def is_suspended(self) -> bool:
        """Whether no deadline passes."""

    def leads(self, partition: Any) -> bool:
        """Whether a partition was not lost since its election."""

    def now_ms(self) -> int: ...

    def times(self) -> dict[str, int]: ...

    def mind(self, shard: ShardT | None) -> None:
        """Wake up in time for this shard."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None: ...

    def load_soon(self, partition: Any) -> None: ...

    async def load_after(self, pause_s: float, partition: Any) -> None: ...


# Its states, by `_shard` and `_has_line`:
#
#     shard   line   a request                                          a deadline
#     none    no     is refused with `_absent`                          there is none
#     there   no     is handled at once; forms a line if it must wait   the same
#     there   yes    stands in line for `_work_off`                     is kept by `_work_off`, before what came after it
#
# A load brings the shard; `unload` takes it away, at any await. A failed load or commit, or a bug, makes another load.
class PartitionRuntime(Generic[ShardT]):
    """One partition of the internal topic that this broker leads, from its election on."""

    def __init__(self, partition: int, runtime: Host[ShardT]) -> None:
        self.partition = partition
        self._kind = runtime.kind
        self._runtime = runtime
        self._log = runtime.log
        self._shard: ShardT | None = None
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # why there is no shard
        self._queue: OrderedDict[WaitingCaller[Any], Queued] = OrderedDict()
        self._has_line = False
        self._flights = Flights()
        self._is_landing = False
        self._gathered: Outcome[Any] = Outcome([], [], [])  # commits that share the next append
        self._unsettled: list[Outcome[Any]] = []  # what is being appended, batch by batch
        self._failed_loads = 0  # since the last one that succeeded

    # ------------------------------------------------------------------ requests

    def shard(self, now_ms: int) -> ShardT:
        """The shard, for reading at this time: what was due has happened, unless it has to wait for a commit."""
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
        # More may be due than one call does. The request must not overtake it.
        if self._is_due(now_ms) or (self._flights and not self._kind.may_overlap(request)):
            self._form_line()
        if self._has_line:
            self._queue[caller] = Queued(request, caller, now_ms)
            return caller.waits_for(self)
        try:
            self._take_up(request, caller)
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
        if self._has_line:
            # Something stands alone, so the shard must not be touched. A request that has left the line is carried out.
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
        # The task that works off the line keeps the deadlines as well, each before the requests that came after it.
        if self._shard is None or self._has_line or not self._is_due(now_ms):
            return
        if self._flights and self._shard.stands_alone(now_ms):
            self._form_line()
            return
        try:
            stands_alone = self._shard.stands_alone(now_ms)
            self._carry_out(self._expire(now_ms))
            if stands_alone and self._flights:
                self._form_line()
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
        # As of the given time, which for a request in line is that of its arrival.
        return self._shard.expire(**self._runtime.times() | {"now_ms": now_ms})

    async def resume(self) -> None:
        """Members could not reach this broker for a while: they get a whole session, as after a load."""
        if self._shard is not None:
            for _ in self._shard.start_sessions(self._runtime.now_ms()):
                await trio.lowlevel.checkpoint()

    def next_deadline_ms(self) -> int | None:
        """When `expire` can do something; while there is a line its task keeps the deadlines."""
        return None if self._shard is None or self._has_line else self._shard.next_deadline_ms()

    # ------------------------------------------------------------------ handle, append, settle

    def _take_up(self, request: Any, caller: WaitingCaller[Any]) -> None:
        """Handle a request and append what comes of it."""
        assert self._shard is not None
        outcome = self._shard.handle(request, caller, **self._runtime.times())
        if self._flights and self._kind.may_share_append(request):
            self._gather(outcome)
            return
        self._carry_out(outcome)
        if self._flights and not self._kind.may_overlap(request):
            self._form_line()

    def _carry_out(self, outcome: Outcome[Any]) -> None:
        """Append what the shard wants to be appended. What is longer than a batch is appended by the task of the line."""
        # These depend on none of its records, but on what was handled before.
        self._flights.give(outcome.replies)
        if not outcome.records:
            return
        # `unload` settles this outcome if the shard is lost on the way.
        self._unsettled.append(outcome)
        pieces = self._pieces(outcome.records)
        if len(outcome.records) > RECORDS_PER_BATCH:
            self._form_line(pieces, outcome)
        elif self._append_next(pieces, outcome):
            self._settle(outcome, ErrorCode.NONE)

    def _append_next(self, pieces: Pieces, outcome: Outcome[Any]) -> bool:
        """Append one batch. False if there is none left, or if the log refused it and the outcome was settled so."""
        try:
            records, batch = next(pieces)
        except StopIteration:
            return False
        try:
            commit = self._log.append(self.partition, batch)
        except KafkaError as error:
            self._settle(outcome, translated(error.code))
            return False
        if commit is None and not self._flights:
            self._replay(records)
            return True
        # One that is committed at once lands behind those before it, too.
        self._flights.take_off(Flight(_no_wait() if commit is None else commit, records))
        if not self._is_landing:
            self._runtime.spawn(self._land, self._shard)
            self._is_landing = True
        return True

    def _pieces(self, records: list[Any]) -> Pieces:
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
        """The fate of an append is known, as far as it decides on the living state: the replies wait for the commit."""
        assert self._shard is not None
        if error:
            logger.warning("partition %d: %d records refused: %s", self.partition, len(outcome.records), error.name)
        self._flights.give(self._shard.settle(outcome.settlements, error, **self._runtime.times()))
        # Last: after a bug in a settlement `unload` answers all of them.
        self._unsettled = [each for each in self._unsettled if each is not outcome]

    # ------------------------------------------------------------------ flights

    def _gather(self, outcome: Outcome[Any]) -> None:
        """Keep a commit of offsets for the next append, which it shares with others."""
        self._flights.give(outcome.replies)
        gathered = self._gathered
        if len(gathered.records) + len(outcome.records) > RECORDS_PER_BATCH:
            self._append_gathered()
            gathered = self._gathered
        gathered.records.extend(outcome.records)
        gathered.settlements.extend(outcome.settlements)
        if len(gathered.settlements) >= REQUESTS_PER_APPEND:
            self._append_gathered()

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, Outcome([], [], [])
        self._carry_out(gathered)

    async def _land(self, shard: ShardT) -> None:
        """Wait for one commit after the other, put the records in force, and send the replies."""
        # Before this task starts, and during any await, the partition may be unloaded, and even loaded again. Then the
        # task must touch nothing any more.
        turn = Turn()
        try:
            while self._shard is shard and self._flights:
                flight = await self._flights.first_committed()
                if self._shard is not shard:
                    return
                self._replay(flight.records)
                # Before the flight counts as landed: who waits for all of them waits for these, too.
                self._append_gathered()
                send(flight.replies)
                self._flights.land()
                # A follower that comes back commits all flights at once.
                await turn.give_way()
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
        # If the shard was lost, `unload` has reset the flag, and a new shard may have such a task of its own.
        if self._shard is shard:
            self._is_landing = False

    # ------------------------------------------------------------------ the line

    def _form_line(self, pieces: Pieces | None = None, outcome: Outcome[Any] | None = None) -> None:
        """From now on requests stand in line, behind this long outcome if there is one."""
        if not self._has_line:
            self._runtime.spawn(self._work_off, self._shard, pieces, outcome)
            self._has_line = True
        else:
            assert outcome is None  # the task appends what is handled in line by itself

    async def _work_off(self, shard: ShardT, pieces: Pieces | None, outcome: Outcome[Any] | None) -> None:
        """Take one after the other from the line until it is empty. Ends early when the shard is unloaded."""
        if self._shard is not shard:  # before this task has started
            return
        # Several in a turn. If each took one, clients that ask again at once would keep a line for ever.
        turn = Turn()
        try:
            if pieces is not None and outcome is not None:
                await self._append_all(pieces, outcome)
            # A line is formed behind something that stands alone, or before it.
            await self._flights.until_landed()
            while self._shard is shard and (self._queue or self._waits_to_stand_alone()):
                await self._next_in_line()
                # Meanwhile callers may leave the line.
                await turn.give_way()
        except Exception:
            logger.exception("bug: partition %d of %s, a request in line", self.partition, self._kind.topic)
            if self._shard is shard:
                self._start_over()
        # If the shard was lost, `unload` has reset the flag, and a new shard may have a line of its own.
        if self._shard is shard:
            self._has_line = False
            self._runtime.mind(shard)

    def _waits_to_stand_alone(self) -> bool:
        now_ms = self._runtime.now_ms()
        return self._shard is not None and self._is_due(now_ms) and self._shard.stands_alone(now_ms)

    async def _next_in_line(self) -> None:
        """Handle what is due, or the first in the line. One that stands alone has nothing before and beside it."""
        shard = self._shard
        assert shard is not None
        # Only looked at: it is handled when everything is done that has to come before it.
        first = next(iter(self._queue.values()), None)
        now_ms = self._runtime.now_ms() if first is None else first.arrival_ms
        is_due = first is None or self._is_due(now_ms)
        stands_alone = shard.stands_alone(now_ms) if is_due else not self._kind.may_overlap(first and first.request)
        if stands_alone and self._flights:
            await self._flights.until_landed()
            return  # the line may be another one by now
        if is_due:
            outcome = self._expire(now_ms)
        else:
            assert first is not None
            outcome = self._handle_first(first)
        if len(outcome.records) > RECORDS_PER_BATCH:
            self._flights.give(outcome.replies)
            self._unsettled.append(outcome)
            await self._append_all(self._pieces(outcome.records), outcome)
        elif not is_due and self._flights and self._kind.may_share_append(first and first.request):
            self._gather(outcome)
        else:
            self._carry_out(outcome)
        if stands_alone:
            await self._flights.until_landed()

    def _handle_first(self, first: Queued) -> Outcome[Any]:
        """Take the first request from the line and handle it."""
        assert self._shard is not None
        del self._queue[first.caller]
        try:
            return self._shard.handle(first.request, first.caller, **self._runtime.times())
        except Exception:
            # It stands in line no more, and perhaps not in the shard: nobody else would answer it.
            first.caller.answer(first.caller.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    async def _append_all(self, pieces: Pieces, outcome: Outcome[Any]) -> None:
        """Append a long outcome, others having a turn between two batches."""
        shard = self._shard
        while self._append_next(pieces, outcome):
            await trio.lowlevel.checkpoint()
            if self._shard is not shard:
                return  # `unload` has settled it
        # Settled already: the log has refused a batch.
        if any(each is outcome for each in self._unsettled):
            self._settle(outcome, ErrorCode.NONE)

    # ------------------------------------------------------------------ load and unload

    async def load(self) -> None:
        """Rebuild the shard from the log. Whatever goes wrong, this is tried again."""
        if self._shard is not None:
            return  # somebody else has asked for it, too
        # A new shard, so that nothing of an earlier one mixes with the log.
        shard = self._kind.make()
        self._absent = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            await replay_log(self._kind, shard, self._log, self.partition)
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
        shard, self._shard, self._absent = self._shard, None, absent
        self._has_line = self._is_landing = False
        unsettled, self._unsettled = self._unsettled, []
        gathered, self._gathered = self._gathered, Outcome([], [], [])
        flights = self._flights.give_up()
        for flight in flights:
            refuse(flight.replies, error)
        while self._queue:
            caller, _ = self._queue.popitem(last=False)
            caller.answer(caller.refuse(error))
        if shard is None:
            return
        # A call that a bug ended halfway has collected things, which the settlements below must not send. It may have
        # taken callers out of the groups already, and then nobody else knows them.
        half = shard.discard()
        refuse(half.replies, error)
        # A settlement is called exactly once, also now.
        settlements = [each for outcome in (*unsettled, gathered, half) for each in outcome.settlements]
        works = [partial(shard.settle, [each], error, **self._runtime.times()) for each in settlements]
        works.append(partial(shard.unload, error))
        for work in works:
            try:
                send(work())
            except Exception:  # whoever has lost the partition must not be kept from following the new leader
                logger.exception("bug: partition %d of %s, while unloading", self.partition, self._kind.topic)

    def _start_over(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The shard in memory may no longer be what the log says: send everybody away and load it again."""
        self.unload(error, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._runtime.load_soon(self)


def translated(error: ErrorCode) -> ErrorCode:
    return _TRANSLATED.get(error, error)


async def _no_wait() -> None:
    """The commit of what is committed already."""
