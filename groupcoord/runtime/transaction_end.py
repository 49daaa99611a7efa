"""The end of a transaction, as a runtime hears of it and writes it.

A transaction coordinator tells every partition that a transaction wrote to, and a partition of an internal topic is one of
them: a group's offsets may have been committed in the transaction. The runtime writes the marker itself, behind all that
was appended before it. When the marker is committed the shard hears of it (`replay_marker`), as it does at a load.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker


class TransactionEnd(NamedTuple):
    """How a producer's transaction has ended, and which coordinator says so."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int

    def marker(self, timestamp_ms: int) -> bytes:
        """The control batch that says this in a log."""
        return _encoded(self, timestamp_ms)


@lru_cache(maxsize=1)  # each partition of a transaction gets the same, one after the other
def _encoded(end: TransactionEnd, timestamp_ms: int) -> bytes:
    control_type = ControlType.COMMIT if end.committed else ControlType.ABORT
    return encode_end_txn_marker(
        EndTxnMarker(control_type, end.coordinator_epoch),
        timestamp_ms=timestamp_ms,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
    )
