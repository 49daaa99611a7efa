"""The records of committed offsets.

    key 0, 1   offset of (group, topic, partition)   key 0 is of brokers before 0.9; its values read as value version 0

Written are values of version 4 (version 1 when the client asked for a retention of its own), as Kafka does; all versions
since 0 are read.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.groupcoord.records import RecordFormat
from ottla.wire.schema import ZERO_UUID, Int32, Int64, String, Struct, Uuid, field

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1

NO_EXPIRY = -1


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


class OffsetRecord(NamedTuple):
    """A committed offset, or with value None the end of one."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


def offset_tombstone(group: str, topic: str, partition: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def _version_of(value: OffsetCommitValue) -> int:
    # Only version 1 has room for an expiry.
    return 4 if value.expire_timestamp == NO_EXPIRY else 1


FORMATS = (
    RecordFormat(
        OFFSET_COMMIT_KEY,
        OffsetCommitKey,
        OffsetCommitValue,
        written=(4, 1),
        version_of=_version_of,
        make=OffsetRecord,
        former_key_types=(LEGACY_OFFSET_COMMIT_KEY,),
        is_superseding=True,
    ),
)
