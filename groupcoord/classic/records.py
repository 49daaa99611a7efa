"""The record of a classic group: key 2. One record is the whole group: protocol, generation, members.

Written are values of version 3, as Kafka does; all versions since 0 are read.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.schema import Array, Bytes, Int32, Int64, String, Struct, field

GROUP_METADATA_KEY = 2
GROUP_METADATA_VALUE_VERSION = 3


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


class GroupMetadataRecord(NamedTuple):
    """A group as it was at the end of a rebalance, or with value None the end of a group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


def group_tombstone(group: str) -> GroupMetadataRecord:
    return GroupMetadataRecord(GroupMetadataKey(group=group), None)
