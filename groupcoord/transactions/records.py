"""The records of `__transaction_state`, in Kafka's own format.

A key starts with two bytes naming its type, a value with two bytes naming its version; the rest is declared here as
Kafka's JSON declares it. A null value means that the transactional id is forgotten.

    key 0      a transactional id
    value 0    written while a cluster's transaction.version is 0, and all that Kafka before 4.0 reads
    value 1    flexible; adds the producer ids before and after, and the version that the client speaks

A record is the whole state of its id. Only `last_producer_epoch` is not in it, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ottla.groupcoord.transactions.metadata import (
    EMPTY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Partitions,
    TransactionMetadata,
    TransactionState,
)
from ottla.wire.codecs import codec
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, String, Struct, field

TRANSACTION_LOG_KEY = 0
VALUE_VERSION_MAX = 1

_prefix = struct.Struct(">h").pack
_read_prefix = struct.Struct(">h").unpack_from
_KEY_PREFIX = _prefix(TRANSACTION_LOG_KEY)
SUPERSEDING = frozenset({_KEY_PREFIX})
"""Each record has the whole state of its id (`ShardKind.superseding`)."""


class TransactionLogKey(Struct, versions="0", flexible="none"):
    transactional_id: str = field(String)


class PartitionsSchema(Struct):
    topic: str = field(String)
    partition_ids: list[int] = field(Array(Int32))


class TransactionLogValue(Struct, versions="0-1", flexible="1+"):
    producer_id: int = field(Int64)
    previous_producer_id: int = field(Int64, versions="1+", tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = field(Int64, versions="1+", tag=1, default=NO_PRODUCER_ID)
    producer_epoch: int = field(Int16)
    next_producer_epoch: int = field(Int16, versions="1+", tag=3, default=NO_PRODUCER_EPOCH)
    transaction_timeout_ms: int = field(Int32)
    transaction_status: int = field(Int8)
    transaction_partitions: list[PartitionsSchema] | None = field(Array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(Int64)
    transaction_start_timestamp_ms: int = field(Int64)
    client_transaction_version: int = field(Int16, versions="1+", tag=2, default=0)


class TransactionRecord(NamedTuple):
    """Record of a transactional id's new metadata. With None as metadata it is a tombstone, which deletes the id."""

    transactional_id: str
    metadata: TransactionMetadata | None
    value_version: int = VALUE_VERSION_MAX


def load_codecs() -> None:
    """Load the record codecs. Call this in a thread, because it reads files or generates code."""
    for record, version in ((TransactionLogKey, 0), (TransactionLogValue, 0), (TransactionLogValue, 1)):
        for kind in ("encode", "decode"):
            codec(record, version, kind)


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Encode a record as key and value for the log; the value of a tombstone is None."""
    key = _key_of(record.transactional_id)
    if record.metadata is None:
        return key, None
    version = record.value_version
    return key, _prefix(version) + _value_of(record.metadata).encode(version)


@lru_cache(maxsize=256)  # an id has three records for each of its transactions
def _key_of(transactional_id: str) -> bytes:
    return _KEY_PREFIX + TransactionLogKey(transactional_id=transactional_id).encode(0)


def encode_records(records: Iterable[TransactionRecord], timestamp_ms: int) -> bytes:
    """Encode records as one uncompressed batch."""
    return encode_pairs(map(encode_record, records), timestamp_ms)


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Decode key and value to a record; None if the record type is unknown.

    Raises ProtocolViolation if the value is malformed.
    """
    if key is None or len(key) < 2 or _read_prefix(key)[0] != TRANSACTION_LOG_KEY:
        return None
    transactional_id = TransactionLogKey.decode(key, 0, start=2).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _read_prefix(value)[0] if len(value) >= 2 else -1
    # The runtime passes over this record with a warning. A value that is read wrongly would do silent harm.
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise ProtocolViolation(f"a transaction record of value version {version}, newest known {VALUE_VERSION_MAX}")
    decoded = TransactionLogValue.decode(value, version, start=2)
    return TransactionRecord(transactional_id, _metadata_of(decoded), version)


def _value_of(metadata: TransactionMetadata) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is EMPTY else _by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
        client_transaction_version=metadata.client_transaction_version,
    )


def _by_topic(metadata: TransactionMetadata) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in partitions_by_topic(metadata).items()]


def partitions_by_topic(metadata: TransactionMetadata) -> dict[str, list[int]]:
    """Return the transaction's indexes by topic, both sorted, so that equal states are encoded equally."""
    return Partitions.of(metadata.partitions).in_order()


def _metadata_of(value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise ProtocolViolation(f"a transaction in state {value.transaction_status}") from None
    topics: dict[str, frozenset[int]] = {}
    for each in () if state is EMPTY else value.transaction_partitions or ():
        if each.partition_ids:
            topics[each.topic] = topics.get(each.topic, frozenset()).union(each.partition_ids)
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=Partitions(topics),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )
