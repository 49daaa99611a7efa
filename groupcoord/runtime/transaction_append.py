"""Records that are part of a transaction: the batch says so, and they are replayed with their producer's id.

The transaction has been verified before (`CommitVerifier` in `ports.py`), and the log takes the batch only with the guard that
came of it. The shard hears of the transaction's end by its marker (`transaction_end.py`).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla.wire.checksum import crc32c
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
