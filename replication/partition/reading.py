"""Reads of a partition: their results, look-ups of offsets, aborted transactions and diverging epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
from ottla.replication.log.log_reader import EMPTY, LogRead, LogReader
from ottla.replication.log.storage import FileRegion
from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampedOffset, TimestampSearch
from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog


class ReadInfo(NamedTuple):
    """Result of a read; `aborted_transactions` is None unless the isolation level is read_committed.

    `diverging_epoch` is (epoch, end offset) if the reader's log has diverged from this log; there are no records then.
    `bytes_available` and `is_behind` are copied from the `LogRead`.
    """

    records: FileRegion | bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    aborted_transactions: list[AbortedTransaction] | None = None
    diverging_epoch: tuple[int, int] | None = None
    bytes_available: int = 0
    is_behind: bool = False


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
    """Look up the offset for a timestamp or a special value such as -1 (latest), below `bound`.

    `is_behind`: a new leader does not know yet how much was committed before its epoch; some lookups then raise
    OFFSET_NOT_AVAILABLE. A long lookup returns a search: `run` it in a thread and call again with `search`.
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


def diverging_epoch_of(log: PartitionLog, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Return the largest epoch that both logs may share, and its end in this log; None if the logs agree (KIP-595).

    Raises KafkaError (OFFSET_OUT_OF_RANGE) if this log cannot tell.
    """
    # What is unknown here comes first, as in Kafka: an end offset that is a guess would make the follower drop good
    # records.
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_EPOCH_OFFSET:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"Could not determine the end offset of epoch {last_fetched_epoch}"
        )
    # The epochs of what was deleted are forgotten, so below the log start they prove nothing.
    if fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {fetch_offset} is below the log start offset")
    # The fetcher has records of an epoch that this log never had, or more of that epoch than there was.
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    return None


def divergence_from_leader(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return the offset from which to truncate this log; in the leader's log `epoch` ends at `end_offset`."""
    local_epoch, local_end = log.end_offset_for_epoch(epoch)
    # An epoch this replica never saw: it parts where its own last epoch before that one ends, and asks again.
    known_end = log.log_end_offset if local_epoch == UNDEFINED_EPOCH else local_end
    # Nothing below the start of the log can be dropped.
    return max(min(known_end, end_offset), log.log_start_offset)


ABORTED_MAX = 3_000


def with_aborted(
    log: LogReader, fetch_offset: int, read: LogRead, aborted_max: int, *, at_least_one_batch: bool
) -> tuple[LogRead, list[AbortedTransaction]]:
    """Return the aborted transactions of a committed read, and a shorter read if there are more than `aborted_max`.

    A read of 50 MB may contain 350,000 aborted transactions, at 150 bytes each with one record. The reader gets fewer
    records then, and reads again. More than `aborted_max` are returned only if one batch needs them.
    """
    if not read.region:
        return read, []
    found = log.aborted_transactions(fetch_offset, read.end_offset, aborted_max)
    less = read
    if found.end_offset < read.end_offset:
        size = len(read.region)
        less = log.read(fetch_offset, size, upper_bound=found.end_offset, at_least_one_batch=at_least_one_batch)
        # Compaction has left nothing so far ahead. The reader gets the batch behind it, or it would ask for ever.
        if not less.region and at_least_one_batch:
            less = log.read(fetch_offset, 1, upper_bound=read.end_offset, at_least_one_batch=True)
            found = log.aborted_transactions(fetch_offset, less.end_offset)
    transactions = found.transactions
    # All of them reach into the first batch, so no part of what was read has fewer.
    if len(transactions) > aborted_max and not at_least_one_batch:
        return read._replace(region=EMPTY, end_offset=fetch_offset), []
    # What there is for a reader without a limit stays the same: this limit must not make a fetch wait for more.
    return read._replace(region=less.region, end_offset=less.end_offset), transactions
