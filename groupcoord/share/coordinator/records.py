"""The records of `__share_group_state`, in Kafka's own format.

A key starts with two bytes naming its type, a value with two bytes naming its version; the rest is declared here as
Kafka's JSON declares it.

    key 0   snapshot   all that is known of a share partition; a null value ends it
    key 1   update     what has changed since the last snapshot

The topic is not compacted: an update does not replace the one before it. What snapshots have made redundant is cut off
at the start of the log (`pruning.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.wire.codecs import codec
from ottla.wire.errors import ProtocolViolation
from ottla.wire.records import encode_pairs
from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, String, Struct, Uuid, field

SNAPSHOT_KEY = 0
UPDATE_KEY = 1
VALUE_VERSION = 0
UNINITIALIZED_COUNT = -1

_prefix = struct.Struct(">h").pack
_read_prefix = struct.Struct(">h").unpack_from


class ShareSnapshotKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    topic_id: bytes = field(Uuid)
    partition: int = field(Int32)


class RecordedBatch(Struct):
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    delivery_state: int = field(Int8)
    delivery_count: int = field(Int16)


class ShareSnapshotValue(Struct, versions="0", flexible="0+"):
    snapshot_epoch: int = field(Int32)
    state_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="0+", tag=0, default=UNINITIALIZED_COUNT)
    create_timestamp: int = field(Int64)
    write_timestamp: int = field(Int64)
    state_batches: list[RecordedBatch] = field(Array(RecordedBatch))


class ShareUpdateKey(Struct, versions="0", flexible="none"):
    group_id: str = field(String)
    topic_id: bytes = field(Uuid)
    partition: int = field(Int32)


class ShareUpdateValue(Struct, versions="0", flexible="0+"):
    snapshot_epoch: int = field(Int32)
    leader_epoch: int = field(Int32)
    start_offset: int = field(Int64)
    delivery_complete_count: int = field(Int32, versions="0+", tag=0, default=UNINITIALIZED_COUNT)
    state_batches: list[RecordedBatch] = field(Array(RecordedBatch))


class SnapshotRecord(NamedTuple):
    """All that is known of a share partition, or with value None its end."""

    key: SharePartitionKey
    value: ShareSnapshotValue | None


class UpdateRecord(NamedTuple):
    """What has changed since the last snapshot of a share partition."""

    key: SharePartitionKey
    value: ShareUpdateValue


ShareRecord = SnapshotRecord | UpdateRecord


def load_codecs() -> None:
    """Load the codecs of the records. Call it in a thread: it reads files, or generates code."""
    for record in (ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue):
        for kind in ("encode", "decode"):
            codec(record, 0, kind)


def tombstone(key: SharePartitionKey) -> SnapshotRecord:
    return SnapshotRecord(key, None)


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    group_id, topic_id, partition = record.key
    if isinstance(record, SnapshotRecord):
        snapshot_key = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
        key = _prefix(SNAPSHOT_KEY) + snapshot_key.encode(0)
        if record.value is None:
            return key, None
        return key, _prefix(VALUE_VERSION) + record.value.encode(VALUE_VERSION)
    update_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return _prefix(UPDATE_KEY) + update_key.encode(0), _prefix(VALUE_VERSION) + record.value.encode(VALUE_VERSION)


def decode_record(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    """The record of a key and a value, or None for a type of record that is not ours to understand."""
    if key is None or len(key) < 2:
        return None
    (key_type,) = _read_prefix(key)
    if key_type == SNAPSHOT_KEY:
        name = ShareSnapshotKey.decode(key, 0, start=2)
        found = SharePartitionKey(name.group_id, name.topic_id, name.partition)
        if value is None:
            return SnapshotRecord(found, None)
        return SnapshotRecord(found, ShareSnapshotValue.decode(value, _value_version(value), start=2))
    # An update without a value would change nothing.
    if key_type == UPDATE_KEY and value is not None:
        changed = ShareUpdateKey.decode(key, 0, start=2)
        found = SharePartitionKey(changed.group_id, changed.topic_id, changed.partition)
        return UpdateRecord(found, ShareUpdateValue.decode(value, _value_version(value), start=2))
    return None


def _value_version(value: bytes) -> int:
    version: int = _read_prefix(value)[0] if len(value) >= 2 else -1
    # The runtime passes over this record with a warning. A value that is read wrongly would do silent harm.
    if version != VALUE_VERSION:
        raise ProtocolViolation(f"a record of share state of value version {version}, known is {VALUE_VERSION}")
    return version


def encode_records(records: Iterable[ShareRecord], timestamp_ms: int) -> bytes:
    """One uncompressed batch of these records, to be appended to their partition."""
    return encode_pairs(map(encode_record, records), timestamp_ms)
