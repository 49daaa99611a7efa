"""Where two logs of a partition part: that of one who fetches from here, or this one from its leader's (KIP-320, KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.log.epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog


def diverging_epoch_of(log: PartitionLog, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """The largest epoch that both may have, with its end here; None if what was fetched is also here."""
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
    """Where this log leaves the leader's, which ends at `end_offset` in `epoch`: what is from there on has to be dropped."""
    local_epoch, local_end = log.end_offset_for_epoch(epoch)
    # An epoch this replica never saw: it parts where its own last epoch before that one ends, and asks again.
    known_end = log.log_end_offset if local_epoch == UNDEFINED_EPOCH else local_end
    # Nothing below the start of the log can be dropped.
    return max(min(known_end, end_offset), log.log_start_offset)
