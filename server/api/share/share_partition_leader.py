"""A share partition at the leader of its partition: the state machine with its log, share coordinator and clock.

It loads the machine, stores changes, frees records whose lock has expired, and lets waiting fetches try again when there are
records: the log has grown, or members gave records back. It ends when this broker does not lead the partition any more, when
another leader or the deletion of the group has fenced it, or when no member of the group is left here; then the next fetch
begins with another one. A group that has never fetched from the partition starts at its share.auto.offset.reset.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.groupcoord.group_settings import BY_DURATION, duration_ms
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.share_partition import Phase, SharePartition, StateWrite
from ottla.replication.log.time_search import TimestampSearch
from ottla.replication.partition.reading import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NOT_FOUND
from ottla.replication.reminders import Reminders
from ottla.server.api.share.persister import (
    FENCING,
    UNINITIALIZED,
    SharePersister,
    StoredState,
    error_of,
    read_request,
    state_of,
    write_request,
)
from ottla.wire.answers import Given, PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ottla.groupcoord.share.partition.in_flight import DeadLetter
    from ottla.groupcoord.share.partition.state import ShareGroupSettings
    from ottla.replication.partition.partition import Partition
    from ottla.server.network.deadlines import Deadline, Deadlines
    from ottla.wire.messages.share_group_state import ReadShareGroupStateResponse, WriteShareGroupStateResponse

# ---------------------------------------------------------------------- start offsets


EARLIEST = "earliest"

_searches = trio.CapacityLimiter(2)

logger = logging.getLogger("ottla.share")
_reminders = Reminders()
WAITERS_AT_ONCE = 4
"""Fetches that try in the step that brings records, which may be an append. The others try in a task."""


def timestamp_of(reset: str, now_ms: int) -> int:
    """Return the timestamp to look up in the log for this value of share.auto.offset.reset."""
    if reset == EARLIEST:
        return EARLIEST_TIMESTAMP
    if not reset.startswith(BY_DURATION):
        return LATEST_TIMESTAMP
    duration = duration_ms(reset.removeprefix(BY_DURATION))
    assert duration is not None, "checked when it was set"
    return max(0, now_ms - duration)


def look_up(partition: Partition, timestamp: int, search: TimestampSearch | None = None) -> int | TimestampSearch:
    """Return the offset for a timestamp, or a search that a thread must run first.

    `search`: a search that has run. Raises KafkaError if there is no offset for the timestamp yet.
    """
    found = partition.list_offset(timestamp, search=search)
    if isinstance(found, TimestampSearch):
        return found
    if found == NOT_FOUND:
        # A record that is new enough may come; the member retries.
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "No record is as new as share.auto.offset.reset asks for")
    return found.offset


async def search(partition: Partition, timestamp: int, found: TimestampSearch) -> int:
    """Return the offset for a timestamp; searches of the log run in a thread."""
    result: int | TimestampSearch = found
    while isinstance(result, TimestampSearch):
        await trio.to_thread.run_sync(result.run, limiter=_searches)
        result = look_up(partition, timestamp, result)
    return result


# ---------------------------------------------------------------------- the leader


class FetchWaiter(Protocol):
    """Share fetch that waits for records."""

    def try_now(self, share: SharePartitionLeader) -> None:
        """Try again because the share partition may have records."""

    def on_failure(self, share: SharePartitionLeader, error: ErrorCode) -> None:
        """Handle the end of a share partition; `error`: why it has ended."""


class Host(Protocol):
    """Interface of the share partition manager for its share partitions."""

    @property
    def persister(self) -> SharePersister: ...

    @property
    def deadlines(self) -> Deadlines: ...

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the group's settings that are in force."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds."""

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in the background."""

    def send_dead_letter(self, share: SharePartitionLeader, letter: DeadLetter) -> None:
        """Send records to the group's dead-letter queue; afterwards call `on_dead_letter` of the state machine."""

    def drop(self, share: SharePartitionLeader) -> None:
        """Forget a share partition that has ended."""


def locks_now_ms() -> int:
    """Return the monotonic time by which acquisition locks expire, in milliseconds."""
    return int(trio.current_time() * 1000)


class SharePartitionLeader:
    """Share partition at its leader: connects the state machine with the log, the share coordinator and the clock."""

    def __init__(self, host: Host, key: SharePartitionKey, partition: Partition) -> None:
        self.partition = partition
        self.machine = SharePartition(key, partition.leader_epoch, host.settings_of)
        self._host = host
        self._waiters: dict[FetchWaiter, None] = {}
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
        return f"SharePartitionLeader({self.machine!r})"

    # ------------------------------------------------------------------ loading

    def load(self) -> None:
        """Load the stored state. Call this once."""
        answer = self._host.persister.read(read_request(self.machine))
        if isinstance(answer, PendingAnswer) and not answer.is_ready:
            answer.on_ready = partial(self._guarded, partial(self._on_read, answer))
        else:
            self._on_read(answer)

    def _on_read(self, answer: Given[ReadShareGroupStateResponse]) -> None:
        response = _response_of(answer)
        if self.machine.phase is not Phase.INITIALIZING:
            return  # it has ended meanwhile
        try:
            stored = state_of(self.machine, response)
            if stored.start_offset == UNINITIALIZED:
                timestamp = timestamp_of(self.machine.settings.auto_offset_reset, self._host.now_ms())
                found = look_up(self.partition, timestamp)
                if isinstance(found, TimestampSearch):
                    self._host.start(partial(self._search, stored, timestamp, found))
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
        """End this share partition, because its state is outdated or unusable. `error`: result for waiting fetches."""
        if self.machine.phase in (Phase.INITIALIZING, Phase.ACTIVE):
            self.machine.fence()
            self._end(error)

    def retire(self) -> None:
        """End this share partition when all changes are stored, because no member of the group fetches here now."""
        self._is_unwanted = True
        self._retire_if_stored()

    def keep(self) -> None:
        """Cancel `retire`, because a member of the group fetches here again."""
        self._is_unwanted = False

    def _retire_if_stored(self) -> None:
        if self._is_unwanted and not self.machine.is_storing:
            self.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, error: ErrorCode) -> None:
        self.failure = error
        self.partition.watchers.discard(self._look)
        if self._deadline is not None:
            self._host.deadlines.cancel(self._deadline)
            self._deadline = None
        self._host.drop(self)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.on_failure(self, error)

    # ------------------------------------------------------------------ after each call of the machine

    def after(self) -> None:
        """Carry out the state machine's pending writes, dead letters and deadline; call this after each use of it."""
        machine = self.machine
        while (write := machine.take_write()) is not None:
            answer = self._host.persister.write(write_request(machine, write))
            if isinstance(answer, PendingAnswer) and not answer.is_ready:
                answer.on_ready = partial(self._guarded, partial(self._on_written, write, answer))
                break
            self._settle(write, answer)
        letters, machine.dead_letters = machine.dead_letters, []
        for letter in letters:
            self._host.send_dead_letter(self, letter)
        self._arm()
        self.serve()
        self._retire_if_stored()

    def _on_written(self, write: StateWrite, answer: PendingAnswer[WriteShareGroupStateResponse]) -> None:
        self._settle(write, answer)
        self.after()

    def _settle(self, write: StateWrite, answer: Given[WriteShareGroupStateResponse]) -> None:
        response = _response_of(answer)
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
            # A deadline that is too early finds no lock expired and is set again.
            if self._deadline_ms <= at_ms:
                return
            self._host.deadlines.cancel(self._deadline)
        self._deadline_ms = at_ms
        wait_s = max(0, at_ms - locks_now_ms() + 1) / 1000
        self._deadline = self._host.deadlines.add(wait_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        self._guarded(self._expire)

    def _expire(self) -> None:
        self.machine.expire(locks_now_ms())
        self.after()

    # ------------------------------------------------------------------ waiting fetches

    def wait(self, waiter: FetchWaiter) -> None:
        """Register a waiting fetch; it is retried whenever records may be available."""
        self._waiters[waiter] = None

    def leave(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)

    def has_records(self) -> bool:
        """True if a fetch could acquire records."""
        machine = self.machine
        return machine.is_active and machine.next_fetch_offset() < self._end_offset() and machine.can_acquire()

    def _end_offset(self) -> int:
        partition = self.partition
        return partition.last_stable_offset if self.machine.settings.reads_committed else partition.high_watermark

    def serve(self) -> None:
        """Let waiting fetches acquire records in order of arrival: the first few now, the others in a task."""
        if self._is_serving:
            # A fetch that acquires calls `after`, which calls this: the fetches behind it try anyway. But records that
            # came before it are still news to the fetches in front of it.
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
                    self._host.start(partial(self._serve_others, waiting[WAITERS_AT_ONCE:]))
                    return
        except BaseException:
            self._is_serving = False
            raise
        self._is_serving = False

    async def _serve_others(self, waiters: Iterable[FetchWaiter]) -> None:
        """Let the other waiting fetches acquire records; repeat if new records have arrived."""
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

    def _offer(self, waiter: FetchWaiter) -> bool:
        """Let one waiting fetch acquire records; False if there are none."""
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
        """Handle a change of the partition. This is called in the middle of an append, so it must not raise."""
        self._guarded(self._follow)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run `step`. If a bug makes it raise, only this share partition ends; the next fetch loads it again."""
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


def _response_of(answer: Given[ResponseT]) -> ResponseT:
    """Return the response: `answer` itself, or the response of a ready pending answer."""
    if not isinstance(answer, PendingAnswer):
        return answer
    answer.on_ready = None  # it refers to the answer
    response = answer.response()
    assert response is not None  # the persister answers every request
    return response
