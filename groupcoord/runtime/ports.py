"""The ports of a runtime: the state machines that it runs, the log that holds their records, and what partitions need of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.groupcoord.runtime.outcome import Caller, Outcome, Reply, Rest, Settlement
from ottla.wire.errors import ErrorCode


class CoordinatorShard(Protocol):
    """The state machine of one partition. `outcome.py` says what a shell owes it.

    The shell's duties, in this order: replay the partition's records, `start_sessions`, then `loaded`. For every request
    `handle`, at `next_deadline_ms` `expire`; append what an outcome holds, call `settle`, and `replay` it when it is
    committed.
    """

    def handle(self, request: Any, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Forget this parked caller, whose connection is gone."""

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]: ...

    def next_deadline_ms(self) -> int | None: ...

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Do what is due, or much of it."""

    def stands_alone(self, now_ms: int) -> bool:
        """True if something is due that looks at what records leave behind, and so has to wait until all are committed."""

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Let everybody have a whole session from now on, some at each step."""

    def replay(self, record: Any, record_offset: int = -1, producer_id: int = -1) -> None: ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def unload(self, error: ErrorCode) -> Iterable[Reply]:
        """Answer `error` to everybody who is parked; each reply may be made when its turn comes."""

    def discard(self) -> Outcome[Any]:
        """Return what an unfinished call has collected: none of it happens. The shard is done with."""

    def unfinished(self) -> Rest | None:
        """Take the steps that the last call has left to do. Called after each call that is not a read."""


ShardT = TypeVar("ShardT", bound=CoordinatorShard)


@dataclass(frozen=True)
class ShardKind(Generic[ShardT]):
    """Kind of shards that a runtime runs."""

    topic: str
    """The internal topic, as log lines call it."""
    make: Callable[[], ShardT]
    encode: Callable[[list[Any], int], bytes]
    """A batch of records, written at this time of day (ms)."""
    decode: Callable[[bytes | None, bytes | None], Any]
    """The record of a key and a value; None: of no interest. Raises ProtocolViolation."""
    may_overlap: Callable[[Any], bool]
    """Whether a request may be handled while records are not committed yet: it looks at nothing that they leave behind."""
    may_share_append: Callable[[Any], bool]
    """Whether a request's records may be appended together with those of others like it. Such requests may overlap."""
    superseding: frozenset[bytes] = frozenset()
    """The types of keys (their first two bytes) of which only the last value counts. A value of another type may rest on the
    values of its key before it."""
    on_force: Callable[[int, ShardT], None] | None = None
    """Called when records of a partition have come into force, also when it is loaded: the shard may have work for others.
    It must change nothing in the shard but what it takes from it."""


class Appended(NamedTuple):
    """A batch that was written."""

    first_offset: int
    commit: Coroutine[Any, Any, None] | None
    """What to await until it is committed; None: it is. Raises KafkaError when nobody knows what will become of it."""


class CoordinatorLog(Protocol):
    """The partitions of an internal topic, as much as a coordinator needs of them."""

    def partition_count(self) -> int:
        """Number of partitions, or the future one if the topic does not exist."""

    def is_fenced(self) -> bool:
        """True if another broker may coordinate these partitions by now, without this one having heard of it."""

    def append(
        self, partition: int, batch: bytes, *, transaction_version: int = 0, guard: object | None = None
    ) -> Appended:
        """Write a batch. KafkaError: nothing was written.

        By the rules of this transaction version, if it ends one; with the guard of its verification, if it is part of one.
        """

    def until_committed(self, partition: int) -> Coroutine[Any, Any, None] | None:
        """The wait until no other leader can cut off what the partition holds now; None: none can.

        Both raise KafkaError if this broker does not lead it.
        """

    def read_batches(self, partition: int) -> AsyncIterator[bytes]:
        """All batches in order, some at a time: an async generator. Raises KafkaError when the partition cannot be read."""


class Host(Protocol[ShardT]):
    """The runtime, as its partitions see it."""

    @property
    def kind(self) -> ShardKind[ShardT]: ...

    @property
    def log(self) -> CoordinatorLog: ...

    @property
    def is_running(self) -> bool:
        """True if tasks can be spawned."""

    @property
    def is_suspended(self) -> bool:
        """True if no deadline passes."""

    def leads(self, partition: Any) -> bool:
        """True if a partition was not lost since its election."""

    def now_ms(self) -> int: ...

    def timestamp_ms(self) -> int: ...

    def times(self) -> dict[str, int]: ...

    def mind(self, shard: ShardT | None) -> None:
        """Wake up the deadline task in time for this shard."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None: ...

    def load_soon(self, partition: Any) -> None: ...

    async def load_after(self, pause_s: float, partition: Any) -> None: ...

    async def run_in_thread(self, function: Callable[[], Any]) -> Any: ...

    async def compute(self, function: Callable[[], Any]) -> Any: ...
