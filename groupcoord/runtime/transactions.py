"""Transactions in the log of an internal topic: records that are part of one, and its end.

The batch of such records says so, and they are replayed with their producer's id. The transaction has been verified before
(`CommitVerifier`), and the log takes the batch only with the guard that came of it.

A transaction coordinator sends markers to every partition that a transaction wrote to, and a partition of an internal topic
is one of them: a group's offsets may have been committed in the transaction. The runtime writes the marker itself, behind all
that was appended before it. When the marker is committed the shard replays it (`replay_marker`), as it does at a load.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.wire.checksum import crc32c
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.records import ATTRIBUTES_OFFSET, TRANSACTIONAL_FLAG

_CRC_AT, _PRODUCER_AT = 17, 43
_crc, _attributes, _producer = struct.Struct(">I"), struct.Struct(">h"), struct.Struct(">qh")


class Transaction(NamedTuple):
    """A producer's transaction. `guard` shows the log that its coordinator knows of it."""

    producer_id: int
    producer_epoch: int
    guard: object

    def stamped(self, batch: bytes) -> bytes:
        """A batch of records as part of this transaction. It has no sequence: the records are a coordinator's."""
        stamped = bytearray(batch)
        (attributes,) = _attributes.unpack_from(stamped, ATTRIBUTES_OFFSET)
        _attributes.pack_into(stamped, ATTRIBUTES_OFFSET, attributes | TRANSACTIONAL_FLAG)
        _producer.pack_into(stamped, _PRODUCER_AT, self.producer_id, self.producer_epoch)
        _crc.pack_into(stamped, _CRC_AT, crc32c(memoryview(stamped)[ATTRIBUTES_OFFSET:]))
        return bytes(stamped)


class TransactionalRecord(NamedTuple):
    """A record on its way to its commit."""

    record: Any
    producer_id: int


class TransactionEnd(NamedTuple):
    """End of a producer's transaction, with the epoch of the coordinator that sends it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int

    def marker(self, timestamp_ms: int) -> bytes:
        """Encode the control batch for a log."""
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
