"""Which offset belongs to a timestamp, or to a number that stands for a place in the log (ListOffsets). Sans-IO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampedOffset, TimestampSearch
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

NOT_FOUND = TimestampedOffset(-1, -1, -1)


def look_up(
    log: PartitionLog,
    timestamp: int,
    *,
    bound: int,
    leader_epoch: int,
    is_behind: bool,
    search: TimestampSearch | None = None,
) -> TimestampedOffset | TimestampSearch:
    """The answer to a reader that sees the log up to `bound`. NOT_FOUND: there is no such record.

    `is_behind`: a new leader does not know yet what was committed before its epoch; some answers have to wait for that.
    Where that takes long the answer is a search, which is to `run` in a thread; then ask again with it.
    """
    # The start does not depend on what is committed, so a leader that `is_behind` answers as well.
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        epoch = log.epoch_for_offset(log.log_start_offset)
        return TimestampedOffset(-1, log.log_start_offset, -1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return NOT_FOUND
    if timestamp == LATEST_TIMESTAMP:
        # The leader before may have shown a higher end. A consumer must not see the end of a log go back.
        if is_behind:
            raise _not_available(log)
        return TimestampedOffset(-1, bound, leader_epoch)
    if timestamp < MAX_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"No timestamp means {timestamp}")
    # While the thread searched, the replica may have moved to another log directory.
    if search is None or search.log is not log:
        search = TimestampSearch(log, timestamp, log.config.max_decompressed_message_bytes)
    if not search.advance():
        return search
    found = search.found
    if found is None or found.offset >= bound:
        # The record may be committed already, so that the client would be wrong to believe that there is none.
        if found is not None and is_behind:
            raise _not_available(log)
        return NOT_FOUND
    return found


def _not_available(log: PartitionLog) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"The high watermark of {log.topic}-{log.partition} is behind the start of its leader's epoch",
    )
