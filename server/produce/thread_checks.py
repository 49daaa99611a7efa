"""Checks of compressed or very many records, in threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.validator import check_produced
from ottla.wire.decompression import TooLargeDecompressed
from ottla.wire.errors import KafkaError, result_of

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog
    from ottla.replication.log.validator import CheckedRecords

# Two limits, so that a few bombs, one after the other, do not keep ordinary compressed batches waiting.
_small_checks = trio.CapacityLimiter(2)
_large_checks = trio.CapacityLimiter(1)
SMALL_CHECK_BYTES_MAX = 16 * 1024 * 1024
"""Nearly all batches decompress to less. One that does not is checked again behind all others like it, each of which
may take a hundred megabytes: a few kilobytes are enough to ask for that."""


async def checked_in_thread(log: PartitionLog, records: memoryview, now_ms: int) -> CheckedRecords | KafkaError:
    """The checked records, or why they are refused."""
    # The rules are taken on the event loop: the thread must not read the log, which changes meanwhile.
    rules = log.validation_rules()
    small = rules._replace(decompressed_bytes_max=min(SMALL_CHECK_BYTES_MAX, rules.decompressed_bytes_max))
    checked: CheckedRecords | KafkaError | None = None
    # The small limit comes first. Nearly every batch passes it, so the second round costs only those that are large.
    for limits, limiter in ((small, _small_checks), (rules, _large_checks)):
        check = partial(check_produced, records, limits, now_ms=now_ms, topic_partition=log.name)
        # `result_of` makes a value of an error: a raised one would keep the frames of the thread, and with them the
        # records.
        checked = await trio.to_thread.run_sync(result_of, check, limiter=limiter)
        if not isinstance(checked, TooLargeDecompressed):
            break
    assert checked is not None
    return checked
