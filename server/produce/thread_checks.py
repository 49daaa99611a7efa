"""Checks of compressed or very many records, in threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.validator import check_produced
from ottla.wire.compression import TooLargeDecompressed
from ottla.wire.errors import KafkaError, result_of

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog
    from ottla.replication.log.validator import CheckedRecords

_small_checks = trio.CapacityLimiter(2)
_large_checks = trio.CapacityLimiter(1)
SMALL_CHECK_BYTES_MAX = 16 * 1024 * 1024
"""Nearly all batches decompress to less. One that does not is checked again behind all others like it, each of which
may take a hundred megabytes: a few kilobytes are enough to ask for that."""


async def checked_in_thread(log: PartitionLog, records: memoryview, now_ms: int) -> CheckedRecords | KafkaError:
    """The checked records, or why they are refused."""
    rules = log.validation_rules()
    small = rules._replace(decompressed_bytes_max=min(SMALL_CHECK_BYTES_MAX, rules.decompressed_bytes_max))
    checked: CheckedRecords | KafkaError | None = None
    for limits, limiter in ((small, _small_checks), (rules, _large_checks)):
        check = partial(check_produced, records, limits, now_ms=now_ms, topic_partition=log.name)
        checked = await trio.to_thread.run_sync(result_of, check, limiter=limiter)
        if not isinstance(checked, TooLargeDecompressed):
            break
    assert checked is not None
    return checked
