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
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.wire.codecs import codec
from ottla.wire.errors import ProtocolViolation
from ottla.wire.records import encode_pairs
from ottla.wire.schema import Array, Int8, Int16, Int32, Int64, String, Struct, Uuid, field
from ottla.wire.settings import parse_integer, trimmed

# The length of 16 bytes in Base64, without padding or with all of it.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")

SNAPSHOT_KEY = 0
UPDATE_KEY = 1
VALUE_VERSION = 0
UNINITIALIZED_COUNT = -1
_prefix = struct.Struct(">h").pack
_read_prefix = struct.Struct(">h").unpack_from


class SharePartitionKey(NamedTuple):
    """Name of a share partition: a group, and a partition of a topic that the group reads together."""

    group_id: str
    topic_id: bytes
    partition: int

    def coordinator_key_end(self) -> str:
        """The part behind the group id of the key in FindCoordinator.

        The hash of the whole key chooses the partition of the state topic.
        """
        topic_id = base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f":{topic_id}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey | None:
    """Parse a FindCoordinator key; None if it is invalid. A group id may hold colons, so parse from the end."""
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
    """The whole state of a share partition, or with value None its end."""

    key: SharePartitionKey
    value: ShareSnapshotValue | None


class UpdateRecord(NamedTuple):
    """Changes since the last snapshot of a share partition."""

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
    """Encode key and value."""
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
    """Decode a record; None if its type is unknown."""
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
    """Encode the records as one uncompressed batch."""
    return encode_pairs(map(encode_record, records), timestamp_ms)
