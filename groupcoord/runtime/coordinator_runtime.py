"""Runs the shards: knows which partitions this broker leads, loads them, and keeps their deadlines.

Kafka's counterpart is CoordinatorRuntime. It knows nothing of groups or transactions: a `ShardKind` says how shards are
made and how their records are written. Each partition of the internal topic that this broker leads has a
`PartitionRuntime` (`partition_runtime.py`), which alone touches the partition's shard.

Loading: a partition is loaded while this broker leads it and is not fenced. A load that fails is tried again, less and
less often, until it succeeds or the partition is lost: no event has to come for that.

While the broker is fenced clients cannot reach it, so deadlines are suspended. Afterwards members get a whole session
timeout, as after a load.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import trio

from ottla.groupcoord.runtime.answers import Caller, finished
from ottla.groupcoord.runtime.coordinator_shard import (
    FORGETTING_REFUSED,
    CoordinatorLog,
    ShardKind,
    ShardT,
    TransactionEnd,
)
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.time_slice import TimeSlice

FENCED_LOOK_S = 0.05
"""Time between two looks whether the broker is still fenced."""


class Runtime(Generic[ShardT]):
    """Runtime of the coordinator partitions that this broker leads. Its tasks handle deadlines and load partitions."""

    def __init__(
        self,
        kind: ShardKind[ShardT],
        log: CoordinatorLog,
        *,
        wall_clock_ms: Callable[[], int],
        run_in_thread: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync,
        threads: int = 2,
    ) -> None:
        self.kind = kind
        self.log = log
        self._wall_clock_ms = wall_clock_ms
        self._run_in_thread = run_in_thread
        self._threads, self._job_threads = trio.CapacityLimiter(threads), trio.CapacityLimiter(threads)
        self._partitions: dict[int, PartitionRuntime[ShardT]] = {}
        self._to_load: deque[PartitionRuntime[ShardT]] = deque()
        self._nursery: trio.Nursery | None = None
        self._elected, self._loaded = trio.Event(), trio.Event()
        self._wake = trio.Event()
        self._sleeping_until_ms: float = 0
        self._is_suspended = False

    @property
    def is_running(self) -> bool:
        return self._nursery is not None

    def check_running(self) -> None:
        """Raise KafkaError COORDINATOR_NOT_AVAILABLE unless the coordinator is running."""
        if self._nursery is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def partition_for(self, key: Any) -> int:
        """Return the internal topic's partition whose leader coordinates `key`, such as a group's id."""
        return self.kind.key_hash(key) % self.log.partition_count()

    def led_partition(self, index: int) -> PartitionRuntime[ShardT]:
        """Return the partition `index`. Raises KafkaError if this broker does not coordinate it now."""
        self.check_running()
        partition = self._partitions.get(index)
        if partition is None or self.is_suspended:
            # A fenced broker may have been replaced without knowing it, so it answers nothing.
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def shard_of(self, key: Any) -> ShardT:
        """Return the shard of `key`, to be read only. Raises KafkaError if this broker does not coordinate the key."""
        return self.led_partition(self.partition_for(key)).shard(self.now_ms())

    def submit(self, key: Any, request: Any, caller: Caller) -> Given[Any]:
        """Submit a request to the shard of `key`. Return the response or a pending answer."""
        try:
            return self.led_partition(self.partition_for(key)).submit(request, caller)
        except KafkaError as error:
            return caller.refuse(error.code)

    def led_shards(self) -> list[ShardT]:
        """Return all shards of this broker. Raises KafkaError while any of them is being loaded."""
        self.check_running()
        now_ms = self.now_ms()
        # A partition that could not be loaded must not keep what all others hold from being listed.
        led = [each for each in self.partitions() if each.absent is not ErrorCode.NOT_COORDINATOR]
        return [partition.shard(now_ms) for partition in led]

    def partitions(self) -> list[PartitionRuntime[ShardT]]:
        return list(self._partitions.values())

    def leads(self, partition: PartitionRuntime[ShardT]) -> bool:
        """Tell whether this broker has led the partition ever since its runtime `partition` was created."""
        # By identity: a partition that was lost and won again has a new object here.
        return self._partitions.get(partition.partition) is partition

    @property
    def is_suspended(self) -> bool:
        """True while deadlines are suspended: this broker is fenced, or was fenced and restarts the sessions."""
        return self._is_suspended or self.log.is_fenced()

    def times(self) -> dict[str, int]:
        """Return the current times in ms: `now_ms` for deadlines, and `timestamp_ms` of the wall clock."""
        return {"now_ms": self.now_ms(), "timestamp_ms": self._wall_clock_ms()}

    def timestamp_ms(self) -> int:
        """Return the wall-clock time in ms."""
        return self._wall_clock_ms()

    def now_ms(self) -> int:
        """Return the time for deadlines in ms, from a monotonic clock."""
        return round(trio.current_time() * 1000)

    # ------------------------------------------------------------------ transactions

    def end_transaction(self, partition: int, end: TransactionEnd) -> Given[ErrorCode]:
        """Write a transaction's marker to a partition; the shard replays the marker after its commit."""
        try:
            return self.led_partition(partition).submit(end, Caller(lambda error: error))
        except KafkaError as error:
            return error.code

    # ------------------------------------------------------------------ leadership

    def on_election(self, partition: int) -> None:
        """Load a partition that this broker has become the leader of, even if it is loaded already."""
        # What is in memory belongs to an earlier term. It may lack what another leader has written since.
        self.on_resignation(partition)
        elected = self._partitions[partition] = PartitionRuntime(partition, self)
        self.load_soon(elected)

    def load_soon(self, partition: PartitionRuntime[ShardT]) -> None:
        """Queue a partition for loading. The queue rests while this broker is fenced."""
        self._to_load.append(partition)
        self._elected.set()

    async def until_loaded(self, partition: int) -> None:
        """Wait until a partition that this broker leads has been loaded, or could not be."""
        while (led := self._partitions.get(partition)) is None or led.absent is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await self._loaded.wait()

    async def load_after(self, pause_s: float, partition: PartitionRuntime[ShardT]) -> None:
        """Queue a partition for loading after a pause in seconds."""
        await trio.sleep(pause_s)
        self.load_soon(partition)

    def on_resignation(self, partition: int) -> None:
        """Unload a partition that another broker now leads, and answer its clients with NOT_COORDINATOR."""
        known = self._partitions.pop(partition, None)
        if known is not None:
            known.unload(ErrorCode.NOT_COORDINATOR)

    # ------------------------------------------------------------------ tasks

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the runtime's task in a nursery. Requests are accepted from this call on, before the task runs."""
        self._nursery = nursery
        nursery.start_soon(self.run)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; then unload all partitions and refuse the waiting callers."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                nursery.start_soon(self._keep_deadlines)
                await self._load_elected()
            finally:
                # Inside the nursery, which stays open until this is done: connections that end at the same time may still
                # ask. First of all, so that requests that arrive from now on hear that there is no coordinator.
                self._nursery = None
                for partition in self.partitions():
                    self.on_resignation(partition.partition)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(function, *arguments)

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        """Run short work (less than a second) in a thread, for a client that waits for its result."""
        async with self._threads:
            return await self._run_in_thread(function)

    async def compute(self, function: Callable[[], Any]) -> Any:
        """Run work that may take minutes in a thread. It does not occupy the threads of `run_in_thread`."""
        async with self._job_threads:
            return await self._run_in_thread(function)

    def mind(self, shard: ShardT | None) -> None:
        """Wake the deadline task if the shard's next deadline is earlier than the task's planned wake-up time."""
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
            # Times are rounded: what is due may lie half a millisecond ahead, and a clock that stands still never gets there.
            if self._sleeping_until_ms > self.now_ms():
                with trio.move_on_at(self._sleeping_until_ms / 1000):
                    await self._wake.wait()
            # Members could not reach a fenced broker, so their silence proves nothing.
            if self.log.is_fenced():
                await self._suspend()
            # This task is awake and looks at all deadlines before it sleeps again, so nobody has to wake it.
            self._sleeping_until_ms = 0
            time_slice = TimeSlice()
            for partition in self.partitions():
                partition.expire(self.now_ms())
                # Much may be due in each of them.
                await time_slice.yield_if_over()

    async def _suspend(self) -> None:
        """Suspend deadlines until this broker is no longer fenced; then restart all members' sessions."""
        # It stays set while sessions begin again, which takes several turns of the event loop. No deadline passes in
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
            time_slice = TimeSlice()
            while self._to_load:
                # While this broker is fenced another one may lead the partition, and what is read here may be
                # outdated.
                while self.log.is_fenced():
                    await trio.sleep(FENCED_LOOK_S)
                partition = self._to_load.popleft()
                # The partition may have been lost while it waited for its turn.
                if self.leads(partition):
                    await partition.load()
                    self._loaded.set()
                    self._loaded = trio.Event()
                    # A partition may have been loaded without a wait, and a thousand of them would be one step.
                    await time_slice.yield_if_over()


RuntimeT = TypeVar("RuntimeT", bound=Runtime[Any])


class Coordinator(Generic[RuntimeT]):
    """Base class of coordinators, which keep their state in the partitions of an internal topic."""

    def __init__(self, runtime: RuntimeT) -> None:
        self._runtime = runtime

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the runtime's tasks in a nursery. Requests before and after get COORDINATOR_NOT_AVAILABLE."""
        self._runtime.start_in(nursery)

    def on_election(self, partition: int) -> None:
        """Load a partition of the internal topic; this broker is its leader from now on."""
        self._runtime.on_election(partition)

    def on_resignation(self, partition: int) -> None:
        """Unload a partition of the internal topic; this broker is no longer its leader."""
        self._runtime.on_resignation(partition)

    def partition_for(self, key: Any) -> int:
        """Return the internal topic's partition whose leader coordinates `key`, such as a group's id."""
        return self._runtime.partition_for(key)

    async def until_loaded(self, partition: int) -> None:
        """Wait until a partition of the internal topic that this broker leads has been loaded, or could not be."""
        await self._runtime.until_loaded(partition)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


TopicsT = TypeVar("TopicsT")

FORGETTING_RETRY_S = 1.0


class TopicForgetter(Generic[TopicsT]):
    """Remover of deleted topics' state from all shards of a runtime.

    `request_of` makes the request to a shard to remove some state. It is repeated until its response is 0.
    """

    def __init__(self, runtime: Runtime[Any], request_of: Callable[[TopicsT], Any]) -> None:
        self._runtime = runtime
        self._request_of = request_of
        self._waiting: dict[PartitionRuntime[Any], deque[TopicsT]] = {}

    async def forget(self, topics: TopicsT) -> None:
        """Remove the topics' state from all partitions. If the log refuses that, retry in the background."""
        for partition in self._runtime.partitions():
            if not await self._forget(topics, partition):
                waiting = self._waiting.setdefault(partition, deque())
                waiting.append(topics)
                # One task for each partition, however many topics are deleted while the log refuses.
                if len(waiting) == 1:
                    self._runtime.spawn(self._forget_persistently, partition)

    async def _forget(self, topics: TopicsT, partition: PartitionRuntime[Any]) -> bool:
        """Remove the topics' state from a partition. Return False if the log refused, or no shard is loaded."""
        request = self._request_of(topics)
        while True:
            caller = Caller(lambda error: FORGETTING_REFUSED)
            count: int = await finished(partition.submit(request, caller))
            if count <= 0:
                return count != FORGETTING_REFUSED
            await trio.lowlevel.checkpoint()

    async def _forget_persistently(self, partition: PartitionRuntime[Any]) -> None:
        """Retry a partition's removals every second, until the shard is loaded and the log accepts them."""
        waiting = self._waiting[partition]
        try:
            while waiting and self._runtime.leads(partition):
                if await self._forget(waiting[0], partition):
                    waiting.popleft()
                else:
                    await trio.sleep(FORGETTING_RETRY_S)
        finally:
            del self._waiting[partition]
