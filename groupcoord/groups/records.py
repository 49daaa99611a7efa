"""The records of `__consumer_offsets`, in Kafka's own format.

A key starts with two bytes naming its type, a value with two bytes naming its version; the rest is declared here as
Kafka's JSON declares it. A null value deletes what its key names.

    key 0, 1   offset of (group, topic, partition)   key 0 is of brokers before 0.9; its values read as value version 0
    key 2      metadata of a group                   one record is the whole group: protocol, generation, members
    key 3-23   groups of KIP-848, share and streams groups: not served, so left alone (compaction keeps them)

Written are offset values of version 4 (version 1 when the client asked for a retention of its own) and group values of
version 3, as Kafka 4.3 does; all versions since 0 are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.wire.codecs import codec
from ottla.wire.errors import ProtocolViolation
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import ZERO_UUID, Array, Bytes, Int32, Int64, String, Struct, Uuid, field

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

NO_EXPIRY = -1
GROUP_METADATA_VALUE_VERSION = 3

_prefix = struct.Struct(">h").pack
_read_prefix = struct.Struct(">h").unpack_from
_OFFSET_KEY_PREFIX = _prefix(OFFSET_COMMIT_KEY)
_GROUP_KEY_PREFIX = _prefix(GROUP_METADATA_KEY)


class OffsetCommitKey(Struct, versions="0", flexible="none"):
    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


class OffsetCommitValue(Struct, versions="0-4", flexible="4+"):
    offset: int = field(Int64)
    leader_epoch: int = field(Int32, versions="3+", default=-1)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    expire_timestamp: int = field(Int64, versions="1", default=NO_EXPIRY)
    topic_id: bytes = field(Uuid, versions="4+", tag=0, default=ZERO_UUID)


class GroupMetadataKey(Struct, versions="0", flexible="none"):
    group: str = field(String)


class MemberMetadata(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout: int = field(Int32, versions="1+", default=-1)
    session_timeout: int = field(Int32)
    subscription: bytes = field(Bytes)
    assignment: bytes = field(Bytes)


class GroupMetadataValue(Struct, versions="0-4", flexible="4+"):
    protocol_type: str = field(String)
    generation: int = field(Int32)
    protocol: str | None = field(String, nullable="0+")
    leader: str | None = field(String, nullable="0+")
    current_state_timestamp: int = field(Int64, versions="2+", default=-1)
    members: list[MemberMetadata] = field(Array(MemberMetadata))


class OffsetRecord(NamedTuple):
    """A committed offset, or with value None the end of one."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupMetadataRecord(NamedTuple):
    """A group as it was at the end of a rebalance, or with value None the end of a group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


GroupRecord = OffsetRecord | GroupMetadataRecord


def load_codecs() -> None:
    """Load the codecs of the records that this broker writes. Call it in a thread: it reads files, or generates code."""
    written = ((OffsetCommitKey, 0), (OffsetCommitValue, 1), (OffsetCommitValue, 4), (GroupMetadataKey, 0))
    for record, version in (*written, (GroupMetadataValue, GROUP_METADATA_VALUE_VERSION)):
        for kind in ("encode", "decode"):
            codec(record, version, kind)


def offset_tombstone(group: str, topic: str, partition: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def group_tombstone(group: str) -> GroupMetadataRecord:
    return GroupMetadataRecord(GroupMetadataKey(group=group), None)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    if isinstance(record, OffsetRecord):
        key = _OFFSET_KEY_PREFIX + record.key.encode(0)
        if record.value is None:
            return key, None
        # Only version 1 has room for an expiry.
        version = 4 if record.value.expire_timestamp == NO_EXPIRY else 1
        return key, _prefix(version) + record.value.encode(version)
    key = _GROUP_KEY_PREFIX + record.key.encode(0)
    if record.value is None:
        return key, None
    return key, _prefix(GROUP_METADATA_VALUE_VERSION) + record.value.encode(GROUP_METADATA_VALUE_VERSION)


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The record of a key and a value, or None for a type of record that is not ours to understand."""
    key_type = _leading_number(key)
    # Not one of Kafka's keys, so the runtime passes over the record.
    if key is None or key_type is None:
        return None
    if key_type in (LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY):
        offset_value = None if value is None else OffsetCommitValue.decode(value, _value_version(value, 4), start=2)
        return OffsetRecord(OffsetCommitKey.decode(key, 0, start=2), offset_value)
    if key_type == GROUP_METADATA_KEY:
        group_value = None if value is None else GroupMetadataValue.decode(value, _value_version(value, 4), start=2)
        return GroupMetadataRecord(GroupMetadataKey.decode(key, 0, start=2), group_value)
    return None


def _leading_number(data: bytes | None) -> int | None:
    if data is None or len(data) < 2:
        return None
    number: int = _read_prefix(data)[0]
    return number


def _value_version(value: bytes, newest: int) -> int:
    version = _leading_number(value)
    # The runtime passes over this record with a warning. A value that is read wrongly would do silent harm.
    if version is None or not 0 <= version <= newest:
        raise ProtocolViolation(f"a coordinator record of value version {version}, newest known {newest}")
    return version


def encode_records(records: Iterable[GroupRecord], timestamp_ms: int) -> bytes:
    """One uncompressed batch of these records, to be appended to the group's partition."""
    return encode_batch([Record(0, timestamp_ms, *encode_record(record)) for record in records])
