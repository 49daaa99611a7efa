"""A share partition at the leader of its partition: what the machine needs of log, share coordinator and clock.

It loads the machine, stores what changes, frees what is held too long, and lets those who wait for records try again
when there are some: the log has grown, or members gave records back. It ends when this broker does not lead the partition
any more, when another leader or the deletion of the group has fenced it, or when no member of the group is left here;
then the next fetch begins with another one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.groupcoord.share.partition.share_partition import Phase, SharePartition, StateWrite
from ottla.replication.log.time_search import TimestampSearch
from ottla.replication.reminders import Reminders
from ottla.server.share.persisting import (
    FENCING,
    UNINITIALIZED,
    SharePersister,
    StoredState,
    error_of,
    read_request,
    state_of,
    write_request,
)
from ottla.server.share.start_offsets import look_up, search, timestamp_of
from ottla.wire.answers import Given, PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ottla.groupcoord.share.partition.group_settings import ShareGroupSettings
    from ottla.groupcoord.share.partition.in_flight import DeadLetter
    from ottla.replication.partition.partition import Partition
    from ottla.server.net.deadlines import Deadline, Deadlines
    from ottla.wire.messages.read_share_group_state import ReadShareGroupStateResponse
    from ottla.wire.messages.write_share_group_state import WriteShareGroupStateResponse

logger = logging.getLogger("ottla.share")
_reminders = Reminders()

WAITERS_AT_ONCE = 4
"""So many try in the step that brings records, which may be an append. All others try in a task."""


class WaitsForRecords(Protocol):
    """A share fetch that waits."""

    def try_now(self, share: LeaderShare) -> None:
        """There may be records of this share partition."""

    def on_failure(self, share: LeaderShare, error: ErrorCode) -> None:
        """There will be none of this share partition."""


class Surroundings(Protocol):
    """What a share partition needs here."""

    @property
    def persister(self) -> SharePersister: ...

    @property
    def deadlines(self) -> Deadlines: ...

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """What is in force for a group."""

    def now_ms(self) -> int:
        """The time of day."""

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something in the background."""

    def send_dead_letter(self, share: LeaderShare, letter: DeadLetter) -> None:
        """Tell the group's dead-letter queue of records; `on_dead_letter` of the machine is called afterwards."""

    def drop(self, share: LeaderShare) -> None:
        """Forget a share partition that has ended."""


def locks_now_ms() -> int:
    """The time by which locks end: it does not jump."""
    return int(trio.current_time() * 1000)


class LeaderShare:
    """See the module's docstring."""

    def __init__(self, surroundings: Surroundings, key: SharePartitionKey, partition: Partition) -> None:
        self.partition = partition
        self.machine = SharePartition(key, partition.leader_epoch, surroundings.settings_of)
        self._surroundings = surroundings
        self._waiters: dict[WaitsForRecords, None] = {}
        self._is_serving = self._is_offering = self._has_news = False
        self._is_unwanted = False
        self._deadline: Deadline | None = None
        self._deadline_ms = 0
        self.failure = ErrorCode.NONE  # why it has ended
        partition.watchers.add(self._look)

    @property
    def key(self) -> SharePartitionKey:
        return self.machine.key

    def __repr__(self) -> str:
        return f"LeaderShare({self.machine!r})"

    # ------------------------------------------------------------------ loading

    def load(self) -> None:
        """Begin; called once."""
        answer = self._surroundings.persister.read(read_request(self.machine))
        if isinstance(answer, PendingAnswer) and not answer.is_ready:
            answer.on_ready = partial(self._guarded, partial(self._on_read, answer))
        else:
            self._on_read(answer)

    def _on_read(self, answer: Given[ReadShareGroupStateResponse]) -> None:
        response = _taken(answer)
        if self.machine.phase is not Phase.INITIALIZING:
            return  # it has ended meanwhile
        try:
            stored = state_of(self.machine, response)
            if stored.start_offset == UNINITIALIZED:
                timestamp = timestamp_of(self.machine.settings.auto_offset_reset, self._surroundings.now_ms())
                found = look_up(self.partition, timestamp)
                if isinstance(found, TimestampSearch):
                    self._surroundings.start(partial(self._search, stored, timestamp, found))
                    return
                stored = stored._replace(start_offset=found)
        except KafkaError as error:
            self._fail(error)
        else:
            self._begin(stored)

    async def _search(self, stored: StoredState, timestamp: int, found: TimestampSearch) -> None:
        try:
            offset = await search(self.partition, timestamp, found)
        except KafkaError as error:
            if self.machine.phase is Phase.INITIALIZING:
                self._fail(error)
        else:
            if self.machine.phase is Phase.INITIALIZING:
                self._begin(stored._replace(start_offset=offset))

    def _begin(self, stored: StoredState) -> None:
        try:
            self.machine.load(*stored)
        except KafkaError as error:
            self._end(error.code)
        else:
            self.after()

    def _fail(self, error: KafkaError) -> None:
        _reminders.tell(("load", self.key), logger.info, "The share partition %s cannot be loaded: %s", self.key, error)
        self.machine.fail()
        self._end(error.code)

    # ------------------------------------------------------------------ the end

    def fence(self, error: ErrorCode) -> None:
        """It does not count any more what this broker knows."""
        if self.machine.phase in (Phase.INITIALIZING, Phase.ACTIVE):
            self.machine.fence()
            self._end(error)

    def retire(self) -> None:
        """No member of the group is left here: end, as soon as what they said is stored."""
        self._is_unwanted = True
        self._retire_if_stored()

    def keep(self) -> None:
        """A member of the group is here again."""
        self._is_unwanted = False

    def _retire_if_stored(self) -> None:
        if self._is_unwanted and not self.machine.is_storing:
            self.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, error: ErrorCode) -> None:
        self.failure = error
        self.partition.watchers.discard(self._look)
        if self._deadline is not None:
            self._surroundings.deadlines.cancel(self._deadline)
            self._deadline = None
        self._surroundings.drop(self)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.on_failure(self, error)

    # ------------------------------------------------------------------ after each call of the machine

    def after(self) -> None:
        """Do what a call of the machine has left to do."""
        machine = self.machine
        while (write := machine.take_write()) is not None:
            answer = self._surroundings.persister.write(write_request(machine, write))
            if isinstance(answer, PendingAnswer) and not answer.is_ready:
                answer.on_ready = partial(self._guarded, partial(self._on_written, write, answer))
                break
            self._settle(write, answer)
        letters, machine.dead_letters = machine.dead_letters, []
        for letter in letters:
            self._surroundings.send_dead_letter(self, letter)
        self._arm()
        self.serve()
        self._retire_if_stored()

    def _on_written(self, write: StateWrite, answer: PendingAnswer[WriteShareGroupStateResponse]) -> None:
        self._settle(write, answer)
        self.after()

    def _settle(self, write: StateWrite, answer: Given[WriteShareGroupStateResponse]) -> None:
        response = _taken(answer)
        error = error_of(self.machine, response)
        if error is not ErrorCode.NONE:
            text = "The state of the share partition %s could not be stored: %s"
            _reminders.tell(("store", self.key), logger.info, text, self.key, error.name)
        self.machine.settle(write, error, locks_now_ms())
        if error in FENCING:
            self.fence(error)

    def _arm(self) -> None:
        at_ms = self.machine.next_deadline_ms()
        if at_ms is None or not self.machine.is_active:
            return
        if self._deadline is not None:
            # One that is too early finds nothing due and asks again.
            if self._deadline_ms <= at_ms:
                return
            self._surroundings.deadlines.cancel(self._deadline)
        self._deadline_ms = at_ms
        wait_s = max(0, at_ms - locks_now_ms() + 1) / 1000
        self._deadline = self._surroundings.deadlines.add(wait_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        self._guarded(self._expire)

    def _expire(self) -> None:
        self.machine.expire(locks_now_ms())
        self.after()

    # ------------------------------------------------------------------ those who wait

    def wait(self, waiter: WaitsForRecords) -> None:
        """Let a fetch try again whenever there may be records."""
        self._waiters[waiter] = None

    def leave(self, waiter: WaitsForRecords) -> None:
        self._waiters.pop(waiter, None)

    def has_records(self) -> bool:
        """Whether a fetch would find something."""
        machine = self.machine
        return machine.is_active and machine.next_fetch_offset() < self._end_offset() and machine.can_acquire()

    def _end_offset(self) -> int:
        partition = self.partition
        return partition.last_stable_offset if self.machine.settings.reads_committed else partition.high_watermark

    def serve(self) -> None:
        """Let those who wait try in the order in which they came, as long as there is something: some now, others soon."""
        if self._is_serving:
            # A fetch that acquires calls `after`, and that this: those behind it have their turn anyway. But what came
            # before that stays news for those in front of it.
            self._has_news = self._has_news or not self._is_offering
            return
        if not self._waiters or not self.has_records():
            return
        self._is_serving = True
        waiting = tuple(self._waiters)
        try:
            for waiter in waiting[:WAITERS_AT_ONCE]:
                if not self._offer(waiter):
                    break
            else:
                if len(waiting) > WAITERS_AT_ONCE:
                    self._surroundings.start(partial(self._serve_others, waiting[WAITERS_AT_ONCE:]))
                    return
        except BaseException:
            self._is_serving = False
            raise
        self._is_serving = False

    async def _serve_others(self, waiters: Iterable[WaitsForRecords]) -> None:
        """Let the others try, and all again if there is something new meanwhile."""
        time_slice = TimeSlice()
        try:
            while True:
                for waiter in waiters:
                    if not self._offer(waiter):
                        break
                    await time_slice.yield_if_over()
                if not self._has_news:
                    return
                self._has_news = False
                waiters = tuple(self._waiters)
                await time_slice.yield_if_over()
        except Exception:
            logger.exception("bug: the share partition %s is given up", self.key)
            self.fence(ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            self._is_serving = self._has_news = False

    def _offer(self, waiter: WaitsForRecords) -> bool:
        """Let one try who still waits; False: there is nothing left."""
        if not self.has_records():
            return False
        if waiter in self._waiters:
            self._is_offering = True
            try:
                waiter.try_now(self)
            finally:
                self._is_offering = False
        return True

    def _look(self) -> None:
        """The partition has changed somehow. This is called in the middle of an append, which must not fail."""
        self._guarded(self._follow)

    def _guarded(self, step: Callable[[], None]) -> None:
        """A bug here ends this share partition, which the next fetch loads anew, and nothing else."""
        try:
            step()
        except Exception:
            logger.exception("bug: the share partition %s is given up", self.key)
            self.fence(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _follow(self) -> None:
        partition = self.partition
        if partition.is_deleted:
            self.fence(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.log.log_directory.failure is not None:
            self.fence(ErrorCode.KAFKA_STORAGE_ERROR)
        elif not partition.is_leader:
            self.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self.serve()


def _taken(answer: Given[ResponseT]) -> ResponseT:
    """The response of an answer that is ready."""
    if not isinstance(answer, PendingAnswer):
        return answer
    answer.on_ready = None  # which knows the answer itself
    response = answer.response()
    assert response is not None  # share coordinators answer everything
    return response
