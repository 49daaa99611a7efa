"""Reading a partition of an internal topic into its shard, in slices."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

from ottla.groupcoord.runtime.ports import CoordinatorLog, NotLoaded, ShardKind, ShardT
from ottla.groupcoord.runtime.turns import Turn
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.errors import ProtocolViolation
from ottla.wire.records import BatchHeader, decode_records, iter_batches

logger = logging.getLogger("ottla.groupcoord")


async def replay_log(
    kind: ShardKind[ShardT],
    shard: ShardT,
    log: CoordinatorLog,
    partition: int,
    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> None:
    """Put everything that the log holds in force. Raises what reading raises."""
    reading = cast("AsyncGenerator[bytes, None]", log.read_batches(partition))
    turn = Turn()
    async with aclosing(reading):  # so that a load that is cancelled closes what it reads
        async for batches in reading:
            for header, start, _ in iter_batches(batches):
                for missing in replay_batch(kind, shard, header, batches, start):
                    if missing is not None:
                        await run_in_thread(missing.load)
                    # A look at the clock for each record, and no coroutine.
                    if turn.is_over():
                        await turn.give_way()


def replay_batch(
    kind: ShardKind[ShardT], shard: ShardT, header: BatchHeader, buffer: bytes, start: int
) -> Iterator[NotLoaded | None]:
    """Replay a batch of the log, one record at each step. Records that do not parse are passed over, with a warning.

    A step may ask for code that a record needs.
    """
    # An idempotent producer has an id, too, but without a transaction its records count at once.
    producer_id = header.producer_id if header.is_transactional else -1
    yield None  # compaction may have left no record
    for record in decode_records(buffer, start, header=header, headers_max=0):
        yield None
        if header.is_control:
            control_type = control_type_id(record.key)
            if control_type in (ControlType.ABORT, ControlType.COMMIT):
                shard.replay_marker(header.producer_id, committed=control_type == ControlType.COMMIT)
            continue
        try:
            try:
                decoded = kind.decode(record.key, record.value)
            except NotLoaded as missing:
                yield missing
                missing.take_up()
                decoded = kind.decode(record.key, record.value)
        except ProtocolViolation as error:
            # One bad record must not take all groups of the partition out of service.
            logger.warning("a record of %s at offset %d does not parse: %s", kind.topic, record.offset, error)
            continue
        if decoded is not None:
            shard.replay(decoded, record.offset, producer_id)
