"""The ports of a runtime: the state machines that it runs, and the log that holds their records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ottla.groupcoord.runtime.outcome import Caller, Outcome, Reply, Settlement
from ottla.wire.errors import ErrorCode


class CoordinatorShard(Protocol):
    """The state machine of one partition. `outcome.py` says what a shell owes it.

    The shell's duties, in this order: replay the partition's records, then `loaded`. For every request `handle`, at
    `next_deadline_ms` `expire`; append what an outcome holds, call `settle`, and `replay` it when it is committed.
    """

    def handle(self, request: Any, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Nobody waits for the answer of this parked caller any more."""

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]: ...

    def next_deadline_ms(self) -> int | None: ...

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Do what is due, or much of it."""

    def stands_alone(self, now_ms: int) -> bool:
        """Whether something is due that looks at what records leave behind, and so has to wait until all are committed."""

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Let everybody have a whole session from now on, some at each step."""

    def replay(self, record: Any, record_offset: int = -1, producer_id: int = -1) -> None: ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def unload(self, error: ErrorCode) -> list[Reply]: ...

    def discard(self) -> Outcome[Any]:
        """What a call that did not end has collected: none of it happens."""


ShardT = TypeVar("ShardT", bound=CoordinatorShard)


@dataclass(frozen=True, slots=True)
class ShardKind(Generic[ShardT]):
    """What a runtime runs."""

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


class CoordinatorLog(Protocol):
    """The partitions of an internal topic, as much as a coordinator needs of them."""

    def partition_count(self) -> int:
        """How many there are, or will be once the topic exists."""

    def is_fenced(self) -> bool:
        """Whether another broker may coordinate these partitions by now, without this one having heard of it."""

    def append(self, partition: int, batch: bytes) -> Coroutine[Any, Any, None] | None:
        """Write a batch. Returns None if it is committed already, else what to await until it is.

        Raises KafkaError when nothing was written; the awaitable raises it when it is not known what will become of it.
        """

    def read_batches(self, partition: int) -> AsyncIterator[bytes]:
        """All committed batches in order, some at a time: an async generator. Raises KafkaError when the partition cannot be read."""
