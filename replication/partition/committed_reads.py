"""What a reader of committed records gets: records, and the aborted transactions among them that it has to skip.

A transaction of one record takes 150 bytes of a log, so a read of 50 MB might have to tell of 350,000 that were aborted. A
reader of so many gets fewer records, and comes again.
"""

from __future__ import annotations

from ottla.replication.log.aborted_transactions import AbortedTransaction
from ottla.replication.log.log_reader import EMPTY, LogRead, LogReader

ABORTED_MAX = 3_000


def with_aborted(
    log: LogReader, fetch_offset: int, read: LogRead, aborted_max: int, *, at_least_one_batch: bool
) -> tuple[LogRead, list[AbortedTransaction]]:
    """What was read, or less of it, with its aborted transactions: more than `aborted_max` only if one batch has to come."""
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
