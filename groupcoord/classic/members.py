"""Members of a classic group, and the group's record (key 2), which holds the whole group.

* A member is *static* when it came with a group instance id; a later member with the same instance id replaces it.
* A *pending join* member id was handed out with MEMBER_ID_REQUIRED and has not come back with a join yet.
* A *pending sync* member received the present generation and has not asked for its assignment yet.
* A member is *parked* while its JoinGroup or SyncGroup waits for the others; its session does not expire then, except
  that of a *new* member, which knows no member id to heartbeat with.

Nothing here waits, replies or knows of states: `rebalancing.py` does. Records are written with values of version 3, as
Kafka does; all versions since 0 are read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from ottla.groupcoord.effects import TEXT_LENGTH_MAX, in_pieces
from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.groupcoord.records import RecordFormat
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.messages.classic_group import JoinGroupRequest, JoinGroupResponseMember
from ottla.wire.messages.groups import DescribedGroupMember
from ottla.wire.schema import Array, Bytes, Int32, Int64, String, Struct, field

PROTOCOLS_MAX = 100
"""Limit on the protocols of a member; no real one comes near it."""
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
    """Record of a group's metadata and members; a tombstone if the value is None."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


def group_tombstone(group: str) -> GroupMetadataRecord:
    return GroupMetadataRecord(GroupMetadataKey(group=group), None)


UNKNOWN_MEMBER_ID = ""
NO_LEADER = ""

GROUP_METADATA_BYTES_MAX = 16 * 1024 * 1024
"""Metadata, or assignments, of all members of a group; no real group comes near it."""

Protocols = dict[str, bytes]
"""Name -> metadata, in the member's order of preference."""


class Member:
    """Member of a classic group, with the metadata of its last JoinGroup request."""

    __slots__ = (
        "answered_as",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.awaiting_join: Caller | None = None
        self.awaiting_sync: Caller | None = None
        self.answered_as: Caller | None = None  # whom the last reply went to, until it is seen to have gone out

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_parked(self) -> bool:
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def waits_for_a_commit(self) -> bool:
        """Return True if the last reply to the member is not sent yet."""
        if self.answered_as is not None and self.answered_as.is_answered:
            self.answered_as = None
        return self.answered_as is not None

    def cannot_be_silent(self) -> bool:
        """Return True if the member waits for a response, so that it cannot send heartbeats.

        False for a new member whose join is parked: that join must complete within one session timeout.
        """
        return self.waits_for_a_commit() or (self.is_parked and not self.is_new)

    @property
    def metadata_bytes(self) -> int:
        return sum(map(len, self.protocols.values()))

    def matches(self, protocols: Protocols) -> bool:
        """Return True if `protocols` equals the member's protocols, with equal metadata and order of preference."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        # All members support each candidate, so every member finds one.
        return next(name for name in self.protocols if name in candidates)

    def listed(self, protocol_name: str | None) -> JoinGroupResponseMember:
        """Return the member's entry in the list that the group's leader receives."""
        return JoinGroupResponseMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            metadata=self.protocols[protocol_name] if protocol_name is not None else b"",
        )

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.protocols[protocol_name] if protocol_name is not None else b"",
            member_assignment=self.assignment,
        )


class Replaced(NamedTuple):
    """State of a static member before a client took its place, restored if the log refuses the new record."""

    member_id: str
    leader_id: str | None
    """Leader of the group before the member was replaced."""
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int


class Members:
    """Members of one group by id and by instance id, with the counts on which the group decides about joins."""

    __slots__ = (
        "_speakers",
        "awaiting_join_count",
        "by_id",
        "leader_id",
        "metadata_bytes",
        "pending_join",
        "pending_sync",
        "protocol_type",
        "static",
    )

    def __init__(self, protocol_type: str | None = None, leader_id: str | None = None) -> None:
        self.by_id: dict[str, Member] = {}
        self.protocol_type = protocol_type
        self.leader_id = leader_id
        self.pending_join: set[str] = set()
        self.pending_sync: dict[str, None] = {}
        # Counted as joins come and go. A walk over the members at every join would make a rebalance quadratic.
        self.awaiting_join_count = 0
        self.metadata_bytes = 0
        self.static: dict[str, str] = {}  # group instance id -> member id
        self._speakers: dict[str, int] = {}  # protocol name -> how many members support it

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.by_id

    def has(self, member_id: str, group_instance_id: str | None) -> bool:
        """Return True if the group has a member with this member id or with this instance id."""
        return member_id in self.by_id or group_instance_id in self.static

    # ------------------------------------------------------------------ coming and going

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the caller has checked that the group supports its protocols."""
        assert member.member_id not in self.by_id
        # The first member in decides the type. An empty group keeps its last one: descriptions and the expiry of
        # offsets use it.
        if not self.by_id:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static
            self.static[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.by_id[member.member_id] = member
        self._count(member, 1)
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member, and elect another leader if the leader is removed.

        Return the member, whose parked callers must still be answered; None if no member has this id.
        """
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                del self.static[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.by_id), None)
        self.pending_join.discard(member_id)
        self.pending_sync.pop(member_id, None)
        return member

    def replace_static(self, group_instance_id: str, new_member_id: str) -> Member:
        """Give the instance id's static member a new member id. It keeps metadata, assignment and leadership."""
        old_member_id = self.static[group_instance_id]
        member = self.by_id.pop(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.by_id[new_member_id] = member
        self.static[group_instance_id] = new_member_id
        self.pending_sync.pop(old_member_id, None)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        # The old protocols have to be uncounted while the member still has them.
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def _count(self, member: Member, step: int) -> None:
        self.metadata_bytes += step * member.metadata_bytes
        for name in member.protocols:
            count = self._speakers.get(name, 0) + step
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]

    # ------------------------------------------------------------------ parked joins

    def park_join(self, member: Member, caller: Caller) -> Caller | None:
        """Park the member's join. Return the caller that was parked for this member before, or None."""
        displaced, member.awaiting_join = member.awaiting_join, caller
        if displaced is None:
            self.awaiting_join_count += 1
        return displaced

    def take_join(self, member: Member) -> Caller | None:
        """Remove and return the caller of the member's parked join; None if no join is parked."""
        caller, member.awaiting_join = member.awaiting_join, None
        if caller is not None:
            self.awaiting_join_count -= 1
        return caller

    @property
    def all_joined(self) -> bool:
        return len(self.by_id) == self.awaiting_join_count and not self.pending_join

    def not_rejoined(self) -> list[Member]:
        return [member for member in self if member.awaiting_join is None]

    # ------------------------------------------------------------------ questions

    def can_keep(self, protocols: Protocols) -> bool:
        """Tell whether the metadata of `protocols` fit into the group. A member's former metadata count, too."""
        return self.metadata_bytes + sum(map(len, protocols.values())) <= GROUP_METADATA_BYTES_MAX

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if there is a protocol in `names` that all members support."""
        if self.protocol_type != protocol_type:
            return False
        # The counts by name answer this without a walk over all members.
        size = len(self.by_id)
        return any(self._speakers.get(name, 0) == size for name in names)

    def common_protocols(self) -> set[str]:
        """Return the names of the protocols that all members support."""
        size = len(self.by_id)
        return {name for name, count in self._speakers.items() if count == size}

    def select_protocol(self) -> Generator[None, None, str]:
        """Return the protocol with most votes among those that all support; on a tie the first in Kafka's hash map."""
        candidates = self.common_protocols()
        if len(candidates) == 1:
            return next(iter(candidates))
        votes: dict[str, int] = {}

        def count(member: Member) -> None:
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1

        yield from in_pieces(self, count)
        return min(votes, key=lambda name: (-votes[name], hash_map_slot(name, len(votes))))

    def elect_joined_leader(self) -> bool:
        """Elect another leader if the leader has not rejoined. Return False if no member can lead."""
        if self.leader_id is None:
            return False
        # A leader that has not joined would never send an assignment.
        if self.by_id[self.leader_id].awaiting_join is None:
            joined = next((member for member in self if member.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        # A client may send a negative timeout, and an empty group has none.
        return max(0, max((member.rebalance_timeout_ms for member in self), default=0))


def members_of(value: GroupMetadataValue) -> Members:
    """Return the members of a group's record."""
    members = Members(value.protocol_type or None, value.leader)
    for written in value.members:
        # `add` asserts that both ids are free. One record that repeats an id must not keep the whole partition from
        # loading.
        if not members.has(written.member_id, written.group_instance_id):
            members.add(_member_of_record(written, value.protocol or ""), value.protocol_type)
    # The leader has to be a member, whatever the record says.
    if members.leader_id not in members:
        members.leader_id = next(iter(members.by_id), None)
    return members


def _member_of_record(written: MemberMetadata, protocol_name: str) -> Member:
    unknown_rebalance_timeout = written.rebalance_timeout == -1  # before version 1
    return Member(
        written.member_id,
        group_instance_id=written.group_instance_id,
        client_id=written.client_id,
        client_host=written.client_host,
        rebalance_timeout_ms=written.session_timeout if unknown_rebalance_timeout else written.rebalance_timeout,
        session_timeout_ms=written.session_timeout,
        # The record has the metadata of one protocol only. The others are back when the member joins again.
        protocols={protocol_name: written.subscription},
        assignment=written.assignment,
    )


def is_storable(request: JoinGroupRequest) -> bool:
    """Return True if the names in a JoinGroup request fit into the group's record."""
    names = [protocol.name for protocol in request.protocols]
    names += [request.protocol_type, request.group_instance_id or ""]
    return len(request.protocols) <= PROTOCOLS_MAX and max(map(len, names)) <= TEXT_LENGTH_MAX


class LoadedGroup(GroupMetadataRecord):
    """Group's record with its members. If the group is large, a thread decodes both."""

    def __init__(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        self._members = None if value is None else members_of(value)

    def take_members(self) -> Members | None:
        """Return the decoded members at the first call; None at later calls, or for a tombstone."""
        members, self._members = self._members, None
        return members


FORMATS = (
    RecordFormat(
        GROUP_METADATA_KEY,
        GroupMetadataKey,
        GroupMetadataValue,
        written=(GROUP_METADATA_VALUE_VERSION,),
        make=LoadedGroup,
        is_superseding=True,
    ),
)
