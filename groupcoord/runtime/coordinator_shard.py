"""Interface between a runtime and the state machines that it runs: shards, the outcomes of their calls, and the log.

A shard never writes and never waits. A call returns an `Outcome`: records to append, replies that do not depend on them, and
settlements. A settlement is called exactly once, when it is known whether the log has taken the records: with NONE, or with
the error that kept them from being appended. Whatever must not happen if they are refused (a reply, a state) belongs in a
settlement. The runtime calls nothing that changes a shard between the outcome and its settlement; only heartbeats and reads
may pass.

What takes long is left to do: the call returns after a first step, and the runtime takes the others (`Rest`), giving way to
other tasks in between. Until the last one is taken it calls nothing else of the shard but reads.

An atomic outcome is one batch, so that a crash leaves all of it in the log or nothing. A long one is compressed. If it is too
large even so the log refuses it, as Kafka's does. Records of which each beginning is good (`is_cuttable`) may go into several
batches. If the log refuses one of these when others are written, no settlement can take back a part: the runtime loads the
shard again from the log.

A crash, or a new leader, cuts a log between two batches and never inside one. So what has to be in the log as a whole is one
batch, as in Kafka. When 10,000 members go over to another protocol their compressed batch shrinks to an eighth, and fits into
the megabyte that `max.message.bytes` allows by default.

The records are not committed yet by then. So the runtime keeps every reply until all that was appended before it is
committed, and puts the records in force (`replay`) at that moment.

Records may be part of a transaction. Their batch says so, and they are replayed with their producer's id. The transaction has
been verified before (`CommitVerifier`), and the log takes the batch only with the guard that came of it. A transaction
coordinator sends the end of a transaction (`TransactionEnd`) to every partition that it wrote to. The runtime writes the
marker itself, behind all that was appended before it. When the marker is committed the shard replays it (`replay_marker`), as
it does at a load.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.record_encoding import build_batch
from ottla.wire.records import ATTRIBUTES_OFFSET, RECORDS_OFFSET, TRANSACTIONAL_FLAG, read_header

_CRC_AT, _PRODUCER_AT = 17, 43
_crc, _attributes, _producer = struct.Struct(">I"), struct.Struct(">h"), struct.Struct(">qh")


class Transaction(NamedTuple):
    """Transaction of a producer, to which records to append belong. The log verifies it by `guard`."""

    producer_id: int
    producer_epoch: int
    guard: object

    def stamped(self, batch: bytes) -> bytes:
        """Return a copy of a record batch that belongs to this transaction; it has no sequence number."""
        stamped = bytearray(batch)
        (attributes,) = _attributes.unpack_from(stamped, ATTRIBUTES_OFFSET)
        _attributes.pack_into(stamped, ATTRIBUTES_OFFSET, attributes | TRANSACTIONAL_FLAG)
        _producer.pack_into(stamped, _PRODUCER_AT, self.producer_id, self.producer_epoch)
        _crc.pack_into(stamped, _CRC_AT, crc32c(memoryview(stamped)[ATTRIBUTES_OFFSET:]))
        return bytes(stamped)


class TransactionalRecord(NamedTuple):
    """Record that belongs to a producer's open transaction."""

    record: Any
    producer_id: int


class TransactionEnd(NamedTuple):
    """Commit or abort of a producer's transaction, with the epoch of the sending coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int

    def marker(self, timestamp_ms: int) -> bytes:
        """Encode the transaction marker as a control batch."""
        return _encoded(self, timestamp_ms)


@lru_cache(maxsize=1)  # each partition of a transaction gets the same, one after the other
def _encoded(end: TransactionEnd, timestamp_ms: int) -> bytes:
    control_type = ControlType.COMMIT if end.committed else ControlType.ABORT
    return encode_end_txn_marker(
        EndTxnMarker(control_type, end.coordinator_epoch),
        timestamp_ms=timestamp_ms,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
    )


RECORDS_PER_BATCH = 500
COMPRESSED_FROM = 64 * 1024
"""Bytes of a long outcome's batch. Nearly all outcomes are much smaller, and stand in the log as Kafka's do."""
COMPRESSED_TO = 64 * 1024 * 1024
"""Bytes of the longest batch that is compressed, so that every load can decompress it: readers of batches refuse 100 MiB. A longer
one stays as it is, and the log refuses it for its size. Long names of very many members compress to nearly nothing."""
COMPRESSION_LEVEL = 9
"""The lowest level of Zstandard that looks back 4 MiB. The records of one member stand far apart in a long batch."""

Encode = Callable[[list[Any], int], bytes]

RecordT = TypeVar("RecordT")

Settlement = Callable[[ErrorCode], None]

FORGETTING_REFUSED = -1
"""The answer to a request to forget something if the log has refused the records. Else the answer is a count."""


class Job(NamedTuple):
    """Long computation. A thread runs `compute`, which must use only immutable objects."""

    compute: Callable[[], Any]
    request: Callable[[Any], Any]
    """The request that the shard gets with the result, or with None if a bug kept it from being computed."""
    narrow: Callable[[Any], Awaitable[Any]] | None = None
    """Change the result before that, on the event loop."""


class Outcome(NamedTuple, Generic[RecordT]):
    """Result of a shard's call: records to append, replies to send, settlements to call after the append."""

    records: list[RecordT]
    replies: list[Reply]
    settlements: list[Settlement]
    is_atomic: bool = False
    """The records are in force already, so the log has to take all of them or none."""
    transaction: Transaction | None = None
    """Transaction of the records, which fit into one batch then; None: they belong to none."""
    jobs: Sequence[Job] = ()
    """Computed beside the event loop, whatever becomes of the records. Each result comes back as a request."""
    parts: Sequence[Outcome[RecordT]] = ()
    """Outcomes that this one combines. They are independent, so each may be appended on its own."""
    is_cuttable: bool = False
    """Each beginning of the records leaves a good state when it is loaded, so they may go into several batches."""


Rest = Generator[list[Reply], None, Outcome[Any]]
"""Rest of a call: yields the replies of each step, and returns the outcome of the whole call."""


def together(parts: Sequence[Outcome[RecordT]]) -> Outcome[RecordT]:
    """Combine independent outcomes into one, whose records are appended in one batch."""
    return Outcome(
        [record for part in parts for record in part.records],
        [reply for part in parts for reply in part.replies],
        [settlement for part in parts for settlement in part.settlements],
        jobs=[job for part in parts for job in part.jobs],
        parts=parts,
    )


async def batches_of(
    outcome: Outcome[Any],
    encode: Encode,
    timestamp_ms: int,
    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> Iterator[tuple[list[Any], bytes]]:
    """Return a long outcome's batches, each with its records.

    There is only one batch, encoded in a thread, if the records are few or must stay together.
    """
    records = outcome.records
    if len(records) <= RECORDS_PER_BATCH or (outcome.is_atomic and not outcome.is_cuttable):
        batch = await run_in_thread(partial(whole_batch, outcome, encode, timestamp_ms))
        return iter([(records, batch)])
    pieces = (records[start : start + RECORDS_PER_BATCH] for start in range(0, len(records), RECORDS_PER_BATCH))
    return ((piece, encode(piece, timestamp_ms)) for piece in pieces)


def whole_batch(outcome: Outcome[Any], encode: Encode, timestamp_ms: int) -> bytes:
    """Encode an outcome's records as one batch, compressed if large. Call this in a thread."""
    batch = encode(outcome.records, timestamp_ms)
    if not COMPRESSED_FROM <= len(batch) <= COMPRESSED_TO:
        return batch
    return build_batch(memoryview(batch)[RECORDS_OFFSET:], read_header(batch), Compression.ZSTD, COMPRESSION_LEVEL)


class CoordinatorShard(Protocol):
    """State machine of one partition of an internal topic (Kafka's CoordinatorShard).

    The runtime replays the partition's records, then calls `start_sessions` and `loaded`. It calls `handle` for every
    request, and `expire` at `next_deadline_ms`. It appends an outcome's records, calls `settle`, and calls `replay` for
    each record after the commit.
    """

    def handle(self, request: Any, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Forget a parked caller whose connection is closed."""

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]: ...

    def next_deadline_ms(self) -> int | None: ...

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]:
        """Handle due deadlines; if there are many, a limited number."""

    def stands_alone(self, now_ms: int) -> bool:
        """Return True if the due work reads committed state, so that it must wait until all appends are committed."""

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Restart every member's session at full length, a limited number of members in each step."""

    def replay(self, record: Any, record_offset: int = -1, producer_id: int = -1) -> None: ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[Any]: ...

    def unload(self, error: ErrorCode) -> Iterable[Reply]:
        """Answer `error` to all parked callers. The replies are built one by one, as they are sent."""

    def discard(self) -> Outcome[Any]:
        """Return the outcome of an unfinished call, before the shard is dropped."""

    def unfinished(self) -> Rest | None:
        """Remove and return the last call's remaining steps; None if there are none.

        The runtime calls this after each call that is not a read.
        """


ShardT = TypeVar("ShardT", bound=CoordinatorShard)


@dataclass(frozen=True)
class ShardKind(Generic[ShardT]):
    """Properties of a coordinator's shards, as its runtime needs them."""

    topic: str
    """The internal topic, as log lines call it."""
    make: Callable[[], ShardT]
    encode: Encode
    """A batch of records, written at this time of day (ms)."""
    decode: Callable[[bytes | None, bytes | None], Any]
    """The record of a key and a value; None: of no interest. Raises ProtocolViolation."""
    may_overlap: Callable[[Any], bool]
    """Whether a request may be handled while records are not committed yet: it looks at nothing that they leave behind."""
    may_share_append: Callable[[Any], bool]
    """Whether a request's records may be appended together with those of others like it. Such requests may overlap."""
    key_hash: Callable[[Any], int] = absolute_string_hash
    """Hash of the key of a request, of which the partition follows. It is Kafka's own, because brokers of both makes in one
    cluster have to agree on the coordinator."""
    superseding: frozenset[bytes] = frozenset()
    """The types of keys (their first two bytes) of which only the last value counts. A value of another type may rest on the
    values of its key before it."""
    on_force: Callable[[int, ShardT], None] | None = None
    """Called when records of a partition have come into force, also when it is loaded: the shard may have work for others.
    It must change nothing in the shard but what it takes from it."""


class Appended(NamedTuple):
    """Result of an append: its first offset, and the awaitable of its commit (None: committed already)."""

    first_offset: int
    commit: Coroutine[Any, Any, None] | None
    """Awaitable that ends at the commit; None: the append is committed. Raises KafkaError if the outcome of the append is
    unknown."""


class CoordinatorLog(Protocol):
    """Operations on an internal topic that a coordinator needs."""

    def partition_count(self) -> int:
        """Return the number of the topic's partitions; before the topic is created, the configured number."""

    def is_fenced(self) -> bool:
        """Return True if another broker may be the coordinator by now, without this broker's knowledge."""

    def partition(self, index: int) -> CoordinatorPartition:
        """Return a partition, to use while this broker leads it. Raises KafkaError if another broker does."""


class CoordinatorPartition(Protocol):
    """Interface of a coordinator to one partition of its internal topic."""

    def append(
        self, batch: bytes, now_ms: int, *, transaction_version: int = 0, guard: object | None = None
    ) -> Appended:
        """Write a batch, whose records have the time of day `now_ms`. Raises KafkaError if nothing was written.

        `transaction_version` chooses the rules for a batch that ends a transaction. `guard` results from verifying the
        transaction of a transactional batch.
        """

    def until_committed(self) -> Coroutine[Any, Any, None] | None:
        """Return an awaitable of the commit of the present records; None if all are committed.

        The call and the awaitable raise KafkaError if this broker does not lead. No leader truncates committed records.
        """

    def read_batches(self) -> AsyncIterator[bytes]:
        """Yield all batches in order, several in one piece. Raises KafkaError if the partition cannot be read."""


TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Errors with which the log refuses a batch for its size."""

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
"""Error of the log -> error for the client, whom the log's error would mislead."""


def translated(error: ErrorCode) -> ErrorCode:
    return _TRANSLATED.get(error, error)


class Host(Protocol[ShardT]):
    """Interface of the runtime, as its partitions use it."""

    @property
    def kind(self) -> ShardKind[ShardT]: ...

    @property
    def log(self) -> CoordinatorLog: ...

    @property
    def is_running(self) -> bool:
        """True if tasks can be spawned."""

    @property
    def is_suspended(self) -> bool:
        """True while deadlines are suspended."""

    def leads(self, partition: Any) -> bool:
        """Tell whether this broker has led the partition ever since its runtime `partition` was created."""

    def now_ms(self) -> int: ...

    def timestamp_ms(self) -> int: ...

    def times(self) -> dict[str, int]: ...

    def mind(self, shard: ShardT | None) -> None:
        """Wake the deadline task in time for the shard's next deadline."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None: ...

    def load_soon(self, partition: Any) -> None: ...

    async def load_after(self, pause_s: float, partition: Any) -> None: ...

    async def run_in_thread(self, function: Callable[[], Any]) -> Any: ...

    async def compute(self, function: Callable[[], Any]) -> Any: ...
