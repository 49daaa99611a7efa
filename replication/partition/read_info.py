"""What a read of a partition found."""

from __future__ import annotations

from typing import NamedTuple

from ottla.replication.log.aborted_transactions import AbortedTransaction
from ottla.replication.log.storage import FileRegion


class ReadInfo(NamedTuple):
    """See the module's docstring. `aborted_transactions` is None unless only committed data was asked for.

    `diverging_epoch` is (epoch, end offset) when the reader's log has left ours; then there are no records.
    `bytes_available` and `is_behind` are a `LogRead`'s.
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
