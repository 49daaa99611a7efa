"""The records of `__share_group_state` in Kafka's own format, and the key that names a share partition.

A key starts with two bytes naming its type, a value with two bytes naming its version; the rest is declared here as
Kafka's JSON declares it.

    key 0   snapshot   the whole state of a share partition; a null value ends it
    key 1   update     changes since the last snapshot

The topic is not compacted: an update does not replace the one before it. Records that snapshots have made redundant are
deleted at the start of the log (`RedundantPrefix`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.groupcoord.records import KeyedRecord, RecordFormat, RecordFormats
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, String, Struct, Uuid, field
from ottla.wire.settings import parse_integer, trimmed
from ottla.wire.text import uuid_text

# The length of 16 bytes in Base64, without padding or with all of it.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")

SNAPSHOT_KEY = 0
UPDATE_KEY = 1
UNINITIALIZED_COUNT = -1


class SharePartitionKey(NamedTuple):
    """Key of a share partition: a share group's id, and a topic partition that the group reads."""

    group_id: str
    topic_id: bytes
    partition: int

    def coordinator_key_end(self) -> str:
        """Return the FindCoordinator key without its group id. The whole key's hash chooses the state partition."""
        topic_id = uuid_text(self.topic_id)
        return f":{topic_id}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey | None:
    """Return the share partition of a FindCoordinator key; None if the key is invalid.

    The key is parsed from its end, because a group id may contain colons.
    """
    # As Java's split: empty parts at the end do not count.
    parts = text.rstrip(":").rsplit(":", 2)
    if len(parts) < 3:
        return None
    group_id, topic_id, digits = parts
    partition = parse_integer(digits)
    if partition is None or _TOPIC_ID.fullmatch(topic_id) is None or not trimmed(group_id):
        return None
    return SharePartitionKey(group_id, base64.urlsafe_b64decode(topic_id[:22] + "=="), partition)


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
    """Record with the full state of a share partition. Value None is a tombstone, which deletes the state."""

    key: SharePartitionKey
    value: ShareSnapshotValue | None


class UpdateRecord(NamedTuple):
    """Record with the changes of a share partition since the last snapshot record."""

    key: SharePartitionKey
    value: ShareUpdateValue


ShareRecord = SnapshotRecord | UpdateRecord


def tombstone(key: SharePartitionKey) -> SnapshotRecord:
    return SnapshotRecord(key, None)


def _key_of(key: ShareSnapshotKey | ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


FORMATS = RecordFormats(
    (
        RecordFormat(
            SNAPSHOT_KEY,
            ShareSnapshotKey,
            ShareSnapshotValue,
            make=lambda key, value: SnapshotRecord(_key_of(key), value),
        ),
        RecordFormat(
            UPDATE_KEY, ShareUpdateKey, ShareUpdateValue, make=lambda key, value: UpdateRecord(_key_of(key), value)
        ),
    )
)
load_codecs = FORMATS.load_codecs


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Encode a record as key and value for the log; the value of a tombstone is None."""
    key_class = ShareSnapshotKey if isinstance(record, SnapshotRecord) else ShareUpdateKey
    group_id, topic_id, partition = record.key
    key = key_class(group_id=group_id, topic_id=topic_id, partition=partition)
    return FORMATS.encode_record(KeyedRecord(key, record.value))


def decode_record(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    """Decode key and value to a record; None if the record type is unknown."""
    record: Any = FORMATS.decode_record(key, value)
    # An update without a value would change nothing.
    return None if isinstance(record, UpdateRecord) and value is None else record


def encode_records(records: Iterable[ShareRecord], timestamp_ms: int) -> bytes:
    """Encode records as one uncompressed batch."""
    return encode_pairs(map(encode_record, records), timestamp_ms)
