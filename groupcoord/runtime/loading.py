"""Loading and unloading of a shard: replay of its partition in slices, and refusal of all waiting callers at its end.

Most of a long log is commits that later ones have replaced. So a piece of the log, about a megabyte, is first walked for its
keys and values, and only then decoded and replayed: without the values that another value of their key follows within the
piece, if the kind says that such a value makes the one before it void (`ShardKind.superseding`). A tombstone stays, and so
does what belongs to a transaction, because these may change more than the state of their key. What came before these stays,
too. If the last value does not parse the one before it is in force, as it was when that was written.

Ten thousand members may be parked in a group when its shard is unloaded. They are answered in time slices.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Any, cast

from ottla.groupcoord.runtime.answers import Caller, Reply, refused, send
from ottla.groupcoord.runtime.coordinator_shard import (
    CoordinatorPartition,
    CoordinatorShard,
    Host,
    Outcome,
    ShardKind,
    ShardT,
)
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.record_decoding import decode_records, records_area
from ottla.wire.record_walk import keys_and_values
from ottla.wire.records import COMPRESSION_MASK, MAGIC_V2, BatchHeader, check_records, iter_batches
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.groupcoord")

STEP_BYTES = 16_384
RECORD_BYTES = 512
"""A step reads records of so many bytes, each with the time that so many bytes more would take: about 0.2 ms."""
LONG_VALUE_BYTES = 64 * 1024
"""A thread decodes a longer value: the record of a classic group names all its members. And it decompresses a longer batch."""

_Entry = tuple[int, bytes | None, bytes | None, int, "_Entry | None"]
"""Offset, key, value, the id of the producer whose transaction the record is part of, or -1, and the entry that it makes void."""
_Marker = tuple[int, bool]
"""The end of a producer's transaction, and whether it was committed."""


async def shard_from_log(log: CoordinatorPartition, runtime: Host[ShardT]) -> ShardT:
    """Return a new shard with all records of a partition replayed and its members' sessions started. Raises KafkaError."""
    shard = runtime.kind.make()  # a new one, so that nothing of an earlier one mixes with the log
    try:
        await replay_log(runtime.kind, shard, log, runtime.run_in_thread)
        time_slice = TimeSlice()
        for _ in shard.start_sessions(runtime.now_ms()):
            await time_slice.yield_if_over()
    except BaseException:
        drop(shard)
        raise
    return shard


def drop(shard: CoordinatorShard) -> None:
    """Free the groups of a shard that was never served: they may hold each other, and a load is tried again every second."""
    for _ in shard.unload(ErrorCode.NOT_COORDINATOR):
        pass


async def replay_log(
    kind: ShardKind[ShardT],
    shard: ShardT,
    log: CoordinatorPartition,
    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> None:
    """Replay all records of a partition into a shard. Raises KafkaError if the log cannot be read."""
    reading = cast("AsyncGenerator[bytes, None]", log.read_batches())
    time_slice = TimeSlice()
    async with aclosing(reading):  # so that a load that is cancelled closes what it reads
        async for batches in reading:
            for waits_for in replay_batches(kind, shard, batches):
                if waits_for is not None:
                    await run_in_thread(waits_for.load)
                # A look at the clock for each step, and no coroutine.
                if time_slice.is_over():
                    await time_slice.yield_if_over()


class _Decoding:
    """Decoding of a record or a batch that is too long for the event loop; `load` runs it in a thread."""

    def __init__(self, decode: Callable[[], Any]) -> None:
        self._decode = decode
        self._problem: Exception | None = None
        self._decoded: Any = None

    def load(self) -> None:
        try:
            self._decoded = self._decode()
        except ProtocolViolation as problem:
            self._problem = problem

    def decoded(self) -> Any:
        if self._problem is not None:
            raise self._problem
        return self._decoded


def replay_batches(kind: ShardKind[ShardT], shard: ShardT, batches: bytes) -> Iterator[_Decoding | None]:
    """Replay batches, a limited number of records in each step. Unparsable records are skipped with a warning.

    A step may yield a decoding. The caller must run it in a thread before the next step.
    """
    headers = iter_batches(batches)
    is_last = False
    while not is_last:
        entries: list[_Entry | _Marker | None] = []
        is_last = yield from _collect(kind.superseding, batches, headers, entries)
        yield from _replay(kind, shard, entries)


def _replay(
    kind: ShardKind[ShardT], shard: ShardT, entries: list[_Entry | _Marker | None]
) -> Iterator[_Decoding | None]:
    """Replay the collected records, a limited number in each step."""
    work, decode, replay = 0, kind.decode, shard.replay
    for collected in entries:
        entry = collected
        while entry is not None:
            if len(entry) == 2:
                shard.replay_marker(entry[0], committed=entry[1])
                yield None
                break
            offset, key, value, producer_id, before = entry
            size = 0 if value is None else len(value)
            try:
                if size > LONG_VALUE_BYTES:
                    yield (decoding := _Decoding(partial(decode, key, value)))
                    decoded = decoding.decoded()
                else:
                    decoded = decode(key, value)
            except ProtocolViolation as error:
                # One bad record must not take all groups of the partition out of service, nor the last good value.
                logger.warning("a record of %s at offset %d does not parse: %s", kind.topic, offset, error)
                entry = before
                continue
            if decoded is not None:
                replay(decoded, offset, producer_id)
            work += RECORD_BYTES + size
            if work > STEP_BYTES:
                work = 0
                yield None
            break
    yield None  # pieces may be short


def _collect(
    superseding: frozenset[bytes],
    batches: bytes,
    headers: Iterator[tuple[BatchHeader, int, int]],
    entries: list[_Entry | _Marker | None],
) -> Generator[_Decoding | None, None, bool]:
    """Collect the records of these batches. None stands for a value that a later record of its key supersedes.

    Return True after the last batch; False after a large compressed batch: call again for the following batches.
    """
    latest: dict[bytes, int] = {}
    work = 0
    for header, start, _ in headers:
        # An idempotent producer has an id, too, but without a transaction its records count at once.
        producer_id = header.producer_id if header.is_transactional else -1
        if header.is_control:
            entries += _markers(header, batches, start)
            continue
        area = None
        if (
            header.attributes & COMPRESSION_MASK
            and header.size_in_bytes > LONG_VALUE_BYTES
            and header.magic == MAGIC_V2
        ):
            yield (opening := _Decoding(partial(_checked_area, header, batches, start)))
            area = opening.decoded()
        for offset, key, value in _records(header, batches, start, area):
            before: _Entry | None = None
            if key is not None and key[:2] in superseding:
                if value is None or producer_id >= 0:
                    # What came before a tombstone may have brought a group to life that outlives its offsets. What came
                    # before a commit in a transaction is outlived by it, and must not come back behind it.
                    latest.pop(key, None)
                else:
                    former = latest.get(key)
                    if former is not None:
                        before, entries[former] = cast("_Entry", entries[former]), None
                    latest[key] = len(entries)
            entries.append((offset, key, value, producer_id, before))
            work += RECORD_BYTES
            if work > STEP_BYTES:
                work = 0
                yield None
        if area is not None:
            return False
        work += RECORD_BYTES
    return True


def _markers(header: BatchHeader, batches: bytes, start: int) -> Iterator[_Marker]:
    for _, key, _ in _records(header, batches, start):
        control_type = control_type_id(key)
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            yield header.producer_id, control_type == ControlType.COMMIT


def _records(
    header: BatchHeader, batches: bytes, start: int, area: bytes | None = None
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Return each record's offset, key and value, after a check of the batch. `area`: its records, checked already."""
    if header.magic != MAGIC_V2:
        return ((each.offset, each.key, each.value) for each in decode_records(batches, start, header=header))
    if area is None:
        area = _checked_area(header, batches, start)
    return keys_and_values(area, header.records_count, header.base_offset)


def _checked_area(header: BatchHeader, batches: bytes, start: int) -> bytes:
    """Return a batch's records area, decompressed and checked."""
    area = bytes(records_area(batches, header, start))
    if header.records_count:  # else compaction has left no record
        check_records(area, header.records_count)
    return area


ANSWERED_AT_ONCE = 500

Place = tuple[int, str]
"""A partition, and the name of its topic in the log."""


def last_replies(
    callers: Sequence[Caller],
    shard: CoordinatorShard | None,
    unsettled: Sequence[Outcome[Any]],
    error: ErrorCode,
    times: dict[str, int],
    place: Place,
) -> Iterator[Reply]:
    """Yield the last replies of a shard that is unloaded, each built when it is sent.

    `callers` get `error`; settlements and parked callers follow. `shard` None: only `callers` are answered.
    """
    yield from refused(callers, error)
    if shard is None:
        return
    # A call that a bug ended halfway has collected things, which the settlements below must not send. It may have taken
    # callers out of the groups already, and then nobody else knows them.
    half = shard.discard()
    yield from refused([caller for caller, _ in half.replies], error)
    # A settlement is called exactly once, also now.
    settlements = [each for outcome in (*unsettled, half) for each in outcome.settlements]
    works: list[Callable[[], Iterable[Reply]]] = [partial(shard.settle, [each], error, **times) for each in settlements]
    works.append(partial(shard.unload, error))
    for work in works:
        try:
            yield from work()
        except Exception:  # whoever has lost the partition must not be kept from following the new leader
            logger.exception("bug: unloading %s-%d failed", place[1], place[0])


class Farewell:
    """Replies to send when a shard is unloaded: some immediately, the others in time slices."""

    def __init__(self, replies: Iterator[Reply], place: Place) -> None:
        self._replies = replies
        self._place = place

    def begin(self, spawn: Callable[..., None] | None) -> None:
        """Send some replies immediately and the others in a task. `spawn` None: no task can run, so all immediately."""
        if spawn is None:
            self.send_some()
        elif self.send_some(ANSWERED_AT_ONCE):
            spawn(self.send_rest)

    def send_some(self, count: int = sys.maxsize) -> bool:
        """Send at most `count` replies. Return True if more may remain."""
        sent = 0
        for reply in islice(self._replies, count):
            sent += 1
            try:
                send((reply,))
            except Exception:  # the others have to be answered all the same
                logger.exception("bug: unloading %s-%d failed", self._place[1], self._place[0])
        return sent == count

    async def send_rest(self) -> None:
        time_slice = TimeSlice()
        try:
            while self.send_some(1):
                await time_slice.yield_if_over()
        finally:
            # Nobody else knows who is left when this is cancelled.
            self.send_some()
