"""Where a share group begins in a partition that it has never fetched from: its share.auto.offset.reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.group_settings import BY_DURATION, duration_ms
from ottla.replication.log.time_search import TimestampSearch
from ottla.replication.partition.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NOT_FOUND
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition

EARLIEST = "earliest"

_searches = trio.CapacityLimiter(2)


def timestamp_of(reset: str, now_ms: int) -> int:
    """What to look up in the log."""
    if reset == EARLIEST:
        return EARLIEST_TIMESTAMP
    if not reset.startswith(BY_DURATION):
        return LATEST_TIMESTAMP
    duration = duration_ms(reset.removeprefix(BY_DURATION))
    assert duration is not None, "checked when it was set"
    return max(0, now_ms - duration)


def look_up(partition: Partition, timestamp: int, search: TimestampSearch | None = None) -> int | TimestampSearch:
    """The offset; a search if a thread has to look for it. KafkaError: it is not known (yet)."""
    found = partition.list_offset(timestamp, search=search)
    if isinstance(found, TimestampSearch):
        return found
    if found == NOT_FOUND:
        # A record may come that is new enough; the member asks again.
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "No record is as new as share.auto.offset.reset asks for")
    return found.offset


async def search(partition: Partition, timestamp: int, found: TimestampSearch) -> int:
    """The same with the help of a thread."""
    result: int | TimestampSearch = found
    while isinstance(result, TimestampSearch):
        await trio.to_thread.run_sync(result.run, limiter=_searches)
        result = look_up(partition, timestamp, result)
    return result
