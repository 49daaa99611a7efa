"""Control batches: markers that end a transaction in a partition.

A control batch has one record. Its key is a version and a type, its value a version and the epoch of the coordinator that
has decided.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.wire.compression import Compression
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import build_batch
from ottla.wire.record_walk import Buffer
from ottla.wire.records import (
    CONTROL_FLAG,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    invalid,
)

_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """Type of a control record in a partition. KRaft's metadata log has further types."""

    ABORT = 0
    COMMIT = 1


_CONTROL_TYPES = tuple(ControlType)
_PLAIN_MARKER = struct.Struct(">5shhBhiB")
_PLAIN_MARKER_FRONT = b"\x20\0\0\0\x08"
"""Front of a record with the length of a marker: no attributes, no deltas, and a key of four bytes."""


class EndTxnMarker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


def encode_end_txn_marker(
    marker: EndTxnMarker,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Encode the control batch that ends a transaction in one partition."""
    area = _PLAIN_MARKER.pack(_PLAIN_MARKER_FRONT, 0, marker.control_type, 12, 0, marker.coordinator_epoch, 0)
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC_V2, 0, TRANSACTIONAL_FLAG | CONTROL_FLAG, 0, timestamp_ms, timestamp_ms,
        producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    return build_batch(area, header, Compression.NONE)


def control_type_id(key: bytes | None) -> int:
    """Decode the type in a control record's key; callers must skip unknown types."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise invalid("Control record key has less than 4 bytes")
    version, type_id = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise invalid(f"Invalid version found for control record: {version}")
    return int(type_id)


def end_txn_marker_in(batch: Buffer) -> EndTxnMarker | None:
    """Return the transaction marker in a control batch; None if it has none, or an unreadable one."""
    # As Ottla and Kafka write it, where all is in its place. A transaction has as many of them as partitions.
    if len(batch) == RECORDS_OFFSET + _PLAIN_MARKER.size:
        front, key_version, type_id, value_size, version, coordinator_epoch, headers = _PLAIN_MARKER.unpack_from(
            batch, RECORDS_OFFSET
        )
        is_plain = (front, key_version, value_size, version, headers) == (_PLAIN_MARKER_FRONT, 0, 12, 0, 0)
        if is_plain and 0 <= type_id <= 1:
            return EndTxnMarker(_CONTROL_TYPES[type_id], coordinator_epoch)
    for record in decode_records(batch):  # of which there is one
        try:
            return decode_end_txn_marker(record)
        except KafkaError:
            return None
    return None


def decode_end_txn_marker(record: Record) -> EndTxnMarker:
    type_id = control_type_id(record.key)
    if type_id not in (ControlType.ABORT, ControlType.COMMIT):
        raise invalid(f"Control record of type {type_id} does not end a transaction")
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise invalid("End transaction marker has less than 6 bytes")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    if version < 0:
        raise invalid(f"Invalid version found for end transaction marker: {version}")
    return EndTxnMarker(ControlType(type_id), coordinator_epoch)
