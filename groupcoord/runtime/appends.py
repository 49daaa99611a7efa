"""Appends to the log of an internal topic: their batches, those in flight, and the errors of the log.

A crash, or a new leader, cuts a log between two batches and never inside one. So what has to be in the log as a whole is one
batch, as in Kafka. A large batch is compressed, which every reader of the topic understands. When 10,000 members go over to
another protocol their batch shrinks to an eighth, and fits into the megabyte that `max.message.bytes` allows by default.

An append is *in flight* until it is committed. Then its records are put in force and its replies go out. Appends are
committed in the order in which they were written. A reply made while appends are in flight waits for the last of them,
because the reply may depend on their changes (Kafka's CoordinatorRuntime: the deferred events behind the last written
offset).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import trio

from ottla.groupcoord.runtime.answers import Reply, send
from ottla.groupcoord.runtime.coordinator_shard import Appended, Outcome
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.record_encoding import build_batch
from ottla.wire.records import RECORDS_OFFSET, read_header

RECORDS_PER_BATCH = 500
COMPRESSED_FROM = 64 * 1024
"""Bytes of a long outcome's batch. Nearly all outcomes are much smaller, and stand in the log as Kafka's do."""
COMPRESSED_TO = 64 * 1024 * 1024
"""Bytes of the longest batch that is compressed, so that every load can decompress it: readers of batches refuse 100 MiB. A longer
one stays as it is, and the log refuses it for its size. Long names of very many members compress to nearly nothing."""
COMPRESSION_LEVEL = 9
"""The lowest level of Zstandard that looks back 4 MiB. The records of one member stand far apart in a long batch."""

Encode = Callable[[list[Any], int], bytes]
Pieces = Iterator[tuple[list[Any], bytes]]
"""Batches of an outcome, each with its records."""


def is_long(outcome: Outcome[Any]) -> bool:
    """True if an outcome has more records than one step handles."""
    return len(outcome.records) > RECORDS_PER_BATCH


def must_be_whole(outcome: Outcome[Any]) -> bool:
    """True if the outcome's records must form one batch."""
    return not is_long(outcome) or (outcome.is_atomic and not outcome.is_cuttable)


def pieces_of(outcome: Outcome[Any], encode: Encode, timestamp_ms: int) -> Pieces:
    """Yield several batches, each encoded when its turn comes."""
    for start in range(0, len(outcome.records), RECORDS_PER_BATCH):
        piece = outcome.records[start : start + RECORDS_PER_BATCH]
        yield piece, encode(piece, timestamp_ms)


async def batches_of(
    outcome: Outcome[Any],
    encode: Encode,
    timestamp_ms: int,
    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> Pieces:
    """The batches of a long outcome: one that is made in a thread, or several, each encoded when its turn comes."""
    if must_be_whole(outcome):
        batch = await run_in_thread(partial(whole_batch, outcome, encode, timestamp_ms))
        return iter([(outcome.records, batch)])
    return pieces_of(outcome, encode, timestamp_ms)


def whole_batch(outcome: Outcome[Any], encode: Encode, timestamp_ms: int) -> bytes:
    """One batch, compressed if it is large. Call it in a thread."""
    batch = encode(outcome.records, timestamp_ms)
    if not COMPRESSED_FROM <= len(batch) <= COMPRESSED_TO:
        return batch
    return build_batch(memoryview(batch)[RECORDS_OFFSET:], read_header(batch), Compression.ZSTD, COMPRESSION_LEVEL)


class InFlightAppend:
    """One append: a wait for its commit, its records, and the replies to send then."""

    __slots__ = ("commit", "first_offset", "is_awaited", "records", "replies")

    def __init__(self, appended: Appended, records: list[Any]) -> None:
        self.first_offset, commit = appended
        self.commit: Coroutine[Any, Any, None] = _no_wait() if commit is None else commit
        self.is_awaited = False
        self.records = records
        self.replies: list[Reply] = []


class InFlightAppends:
    """The appends of one partition that are not committed, in the order of the log."""

    def __init__(self) -> None:
        self._appends: deque[InFlightAppend] = deque()
        self._all_committed = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._appends)

    def add(self, append: InFlightAppend) -> None:
        self._appends.append(append)

    def reply_after(self, replies: list[Reply]) -> None:
        """Send replies after all records appended so far are committed."""
        if self._appends:
            self._appends[-1].replies += replies
        else:
            send(replies)

    async def first_committed(self) -> InFlightAppend:
        """Wait until the first append is committed. Raises what its commit raises."""
        append = self._appends[0]
        append.is_awaited = True
        await append.commit
        return append

    def remove_first(self) -> None:
        self._appends.popleft()
        if not self._appends:
            self._all_committed.set()
            self._all_committed = trio.Event()

    async def wait_until_none(self) -> None:
        """Return when all are committed or abandoned."""
        if self._appends:
            await self._all_committed.wait()

    def abandon(self) -> list[InFlightAppend]:
        """Return and forget all appends in flight, so that the caller can answer their clients."""
        appends, self._appends = list(self._appends), deque()
        for append in appends:
            # A coroutine that nobody has begun to await has to be closed. The other one ends with its task.
            if not append.is_awaited:
                append.commit.close()
        self._all_committed.set()
        self._all_committed = trio.Event()
        return appends


async def _no_wait() -> None:
    """Return immediately; used for records that are already committed."""


TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Of a batch."""

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


def translated(error: ErrorCode) -> ErrorCode:
    return _TRANSLATED.get(error, error)
