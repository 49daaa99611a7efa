"""The state of a classic group between two rebalances: state and generation, record, description, answers to its members.

`rebalancing.py` changes the state; offsets, descriptions, expiry and the log ask here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from enum import Enum
from typing import Self

from ottla.groupcoord.classic.members import (
    GROUP_METADATA_BYTES_MAX,
    NO_LEADER,
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    Member,
    MemberMetadata,
    Members,
    Protocols,
    group_tombstone,
    members_of,
)
from ottla.groupcoord.effects import Effects, Steps, TimerKey, in_pieces
from ottla.groupcoord.group import LastRebalance
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.messages.classic_group import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.groups import DescribedGroup, ListedGroup

CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_TYPE = "classic"

SUBSCRIPTION_BYTES_MAX = 1024 * 1024
"""Subscriptions beyond this are not read: the group then counts as subscribed to everything."""

SESSION, JOIN, SYNC = "session", "join", "sync"


class GroupState(Enum):
    """State of a classic group; the values are Kafka's names, which clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

# Kafka's moves between states. A move that is missing here is a bug: `_transition_to` fails then, and the runtime
# loads the shard again from the log.
ENTERED_FROM = {
    PREPARING_REBALANCE: {STABLE, COMPLETING_REBALANCE, EMPTY},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    EMPTY: {PREPARING_REBALANCE},
    DEAD: {STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY},
}


class ClassicState:
    """State, generation and members of one classic group."""

    __slots__ = (
        "_effects",
        "_subscribed_topics",
        "_subscriptions",
        "generation_id",
        "group_id",
        "is_ending",
        "last_rebalance",
        "members",
        "protocol_name",
        "state",
        "state_timestamp_ms",
    )

    def __init__(self, group_id: str, effects: Effects) -> None:
        self._effects = effects
        self.group_id = group_id
        self.state = EMPTY
        # The time of day, because the record keeps it and offsets still expire by it after a restart.
        self.state_timestamp_ms: int | None = effects.timestamp_ms
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.members = Members()
        self._subscriptions: list[bytes] | None = None  # of the members of this generation; None: nothing is known
        self._subscribed_topics: frozenset[str] | None = None  # what they say, once somebody asked
        self.is_ending = False  # its tombstone is appended
        self.last_rebalance: LastRebalance | None = None  # for people; None: none since this broker coordinates it

    # ------------------------------------------------------------------ state and timers

    def _transition_to(self, state: GroupState) -> None:
        assert self.state in ENTERED_FROM[state], f"{self.group_id!r}: {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = self._effects.timestamp_ms

    def _schedule(self, kind: str, delay_ms: int, member_id: str = "") -> None:
        # `now_ms` never jumps. By the time of day all sessions would end at once when somebody sets the clock.
        self._effects.timers.schedule(TimerKey(kind, self.group_id, member_id), self._effects.now_ms + delay_ms)

    def _cancel(self, kind: str, member_id: str = "") -> None:
        self._effects.timers.cancel(TimerKey(kind, self.group_id, member_id))

    def _refresh_session(self, member: Member) -> None:
        self._schedule(SESSION, member.session_timeout_ms, member.member_id)

    def start_sessions(self) -> Steps:
        """Start a full session for each member of a loaded group."""
        return in_pieces(list(self.members), self._refresh_session)

    def cancel_timers(self) -> None:
        deque(self.end_deadlines(), maxlen=0)

    def end_deadlines(self) -> Steps:
        """Cancel all deadlines of the group in steps, each with a limited number of deadlines."""
        self._cancel(JOIN)
        self._cancel(SYNC)
        # A handed-out member id has a session, too. A deadline that is left behind would hit a later group of the
        # same name.
        ids = [*self.members.by_id, *self.members.pending_join]
        yield from in_pieces(ids, lambda member_id: self._cancel(SESSION, member_id))

    def waited_ms(self) -> int:
        """Return the time in ms since the last rebalance began, by the wall clock."""
        assert self.last_rebalance is not None
        return max(self._effects.timestamp_ms - self.last_rebalance.timestamp_ms, 0)

    # ------------------------------------------------------------------ what the members read

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.members.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _remember_subscriptions(self) -> None:
        """Keep the encoded subscriptions of this generation's members; they are parsed when first read."""
        self._subscribed_topics = None
        self._subscriptions = None
        # Members of other protocols send metadata in a form of their own, from which no topics can be read.
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            # Nobody is in, so the group certainly reads no topic, and any of its offsets may go.
            self._subscriptions = []
        elif self.protocol_name is not None:
            # The bytes are kept unread, so that no rebalance pays for parsing them.
            self._subscriptions = [member.protocols[self.protocol_name] for member in self.members]

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that this generation of a consumer group reads; None if any member's metadata cannot be parsed."""
        if self._subscribed_topics is None and self._subscriptions is not None:
            self._subscribed_topics = _topics_of(self._subscriptions)
            if self._subscribed_topics is None:
                # They cannot be read now or later: let the bytes go, and do not parse them again at every question.
                self._subscriptions = None
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics
        # In doubt a consumer group counts as subscribed, so that no offset is lost that a member still needs.
        return self.uses_consumer_protocol if topics is None else topic in topics

    # ------------------------------------------------------------------ who may join

    def has_room_for(self, member_id: str) -> bool:
        """Tell whether the group has room for a member. During a rebalance, those that rejoin first get the room."""
        # group.max.size is at least 1, so the first member always fits.
        if self.state is EMPTY:
            return True
        member = self.members.by_id.get(member_id)
        size_max = self._effects.config.group_max_size
        if self.state is PREPARING_REBALANCE:
            already_in = member is not None and member.awaiting_join is not None
            return already_in or self.members.awaiting_join_count < size_max
        return member is not None or len(self.members) < size_max

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Tell whether all members support one of `protocols`. An empty group supports any that are not empty."""
        # The first member of an empty group chooses for the others, but it has to choose something.
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.members.supports(protocol_type, protocols)

    # ------------------------------------------------------------------ what others may do to its offsets

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Return the error of an offset commit, or NONE.

        A member must name the current generation. Other clients may commit only to an empty group or in a transaction.
        """
        # Tools that reset offsets, and consumers that choose their partitions themselves, commit without being
        # members.
        if generation_id < 0 and self.state is EMPTY:
            return ErrorCode.NONE
        # The commit names no member, and the group has members whose offsets it would overwrite.
        if generation_id < 0 and not member_id and group_instance_id is None:
            # In a transaction it may: before version 3 TxnOffsetCommit names no member.
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, group_instance_id)
        if error:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        # It comes from a producer, which knows nothing of the state of the group, and shows nothing of the member.
        if is_transactional:
            return ErrorCode.NONE
        # The member knows the new generation but not yet its partitions, so it cannot know what it may commit. In
        # PreparingRebalance it may: members commit what they have read before they join again.
        if self.state is COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        # As in Kafka a commit shows that the member is alive, just as a heartbeat does.
        self._refresh_session(self.members.by_id[member_id])
        return ErrorCode.NONE

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE if the ids are those of one member, else an error.

        FENCED_INSTANCE_ID: the instance id now belongs to another member.
        """
        # The instance id comes first. A client whose place was taken must hear that it is fenced, so that it stops.
        # If it heard that it is unknown, it would join again and fence the other one.
        if group_instance_id is not None:
            static_member_id = self.members.static.get(group_instance_id)
            if static_member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static_member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        """Return the error of a SyncGroup request, or NONE."""
        error = self.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        # Clients before version 5 name neither, which contradicts nothing.
        for asked, ours in (
            (request.protocol_type, self.members.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if asked is not None and ours is not None and asked != ours:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if sum(len(each.assignment) for each in request.assignments) > GROUP_METADATA_BYTES_MAX:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # what the log's refusal of such a record would become
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else ErrorCode.NONE

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        # Only members with epochs say who they are when they fetch offsets.
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        # Of a consumer group the shard refuses only the topics that members read. Of other groups nobody can tell
        # these.
        if self.state is EMPTY or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    @property
    def is_forgettable(self) -> bool:
        # A client that was handed a member id comes back with it any moment.
        return self.state is EMPTY and not self.members.pending_join

    def delete(self) -> None:
        # `ClassicGroupManager._end` ends the group when this is committed.
        self.is_ending = True
        self._effects.append(group_tombstone(self.group_id))

    def tombstone(self) -> GroupMetadataRecord:
        """Return the tombstone of the group's record; written when a group of another type replaces this group."""
        return group_tombstone(self.group_id)

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        """Return the time in ms from which an offset's retention counts; None if the group's offsets are kept now."""
        # No member was ever in: a consumer that chooses its partitions itself keeps its offsets here.
        if self.members.protocol_type is None:
            return commit_timestamp_ms
        # A group that pauses keeps its offsets for the retention time, even if its last commits are old.
        if self.state is EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        # The shard keeps the topics that members read. What is left over goes when its own time is up.
        if self.state is STABLE and self.uses_consumer_protocol and self.subscribed_topics is not None:
            return commit_timestamp_ms
        # During a rebalance, and with another protocol, nobody can tell what the members read: nothing expires.
        return None

    # ------------------------------------------------------------------ how it looks

    @property
    def group_type(self) -> str:
        return GROUP_TYPE

    @property
    def state_name(self) -> str:
        return self.state.value

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.members.protocol_type or "",
            group_state=self.state.value,
            group_type=GROUP_TYPE,
        )

    def described(self) -> DescribedGroup:
        """Return the group's DescribeGroups entry; protocol and metadata are shown only in state Stable."""
        protocol_name = self.protocol_name if self.state is STABLE else None
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.members.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[member.described(protocol_name) for member in self.members],
        )

    # ------------------------------------------------------------------ how it is written

    def creation_record(self, protocol_type: str | None = None) -> GroupMetadataRecord:
        """Return the record of a group without members: a new group, or a group whose last member has left."""
        return self._record(protocol_type or "", None, None, [])

    def written(self, assignments: Mapping[str, bytes] | None = None) -> Generator[None, None, GroupMetadataRecord]:
        """Return the record of the group's current state. `assignments`, if given, replace the members' own ones."""
        members: list[MemberMetadata] = []

        def add(member: Member) -> None:
            # Members are written only after a rebalance has chosen a protocol.
            assert self.protocol_name is not None
            members.append(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols[self.protocol_name],
                    assignment=member.assignment if assignments is None else assignments[member.member_id],
                )
            )

        yield from in_pieces(self.members, add)
        return self._record(self.members.protocol_type or "", self.protocol_name, self.members.leader_id, members)

    def _record(
        self, protocol_type: str, protocol: str | None, leader: str | None, members: list[MemberMetadata]
    ) -> GroupMetadataRecord:
        timestamp_ms = self.state_timestamp_ms
        value = GroupMetadataValue(
            protocol_type=protocol_type,
            generation=self.generation_id,
            protocol=protocol,
            leader=leader,
            current_state_timestamp=-1 if timestamp_ms is None else timestamp_ms,
            members=members,
        )
        return GroupMetadataRecord(GroupMetadataKey(group=self.group_id), value)

    @classmethod
    def of_record(
        cls, group_id: str, value: GroupMetadataValue, effects: Effects, members: Members | None = None
    ) -> Self:
        """Restore a group from its record: Stable, or Empty without members. `members`: already decoded, or None."""
        group = cls(group_id, effects)
        timestamp_ms = value.current_state_timestamp
        # -1 stands for no time: values before version 2 have none.
        group.state_timestamp_ms = None if timestamp_ms == -1 else timestamp_ms
        group.generation_id = value.generation
        group.protocol_name = value.protocol
        group.members = members_of(value) if members is None else members
        if group.members:
            # A record with members was written when a rebalance ended. So they go on from there and need not join
            # again.
            group.state = STABLE
            group.protocol_name = value.protocol or ""
        group._remember_subscriptions()
        return group

    @classmethod
    def stable(cls, group_id: str, generation_id: int, effects: Effects) -> Self:
        """Return a Stable group to replace one of another type. Then add its members and call `choose_protocol`."""
        group = cls(group_id, effects)
        group.generation_id = generation_id
        group.state = STABLE
        return group

    def choose_protocol(self) -> Steps:
        """Choose the protocol that all members support. Call this after all members are added."""
        self.protocol_name = yield from self.members.select_protocol()
        self._remember_subscriptions()


def _topics_of(subscriptions: list[bytes]) -> frozenset[str] | None:
    """Return the topics that the encoded subscriptions name; None if they are too long or one cannot be parsed."""
    # Parsing holds the event loop, so more than this is not parsed.
    if sum(map(len, subscriptions)) > SUBSCRIPTION_BYTES_MAX:
        return None
    topics: set[str] = set()
    try:
        for blob in subscriptions:
            if len(blob) < 2:
                return None
            # Newer versions only append fields, so version 0 finds the topics of all of them.
            topics.update(ConsumerProtocolSubscription.decode(blob, 0, start=2).topics)
    except ProtocolViolation:
        return None
    return frozenset(topics)


def joined(
    group: ClassicState,
    member: Member,
    caller: Caller,
    *,
    skip_assignment: bool = False,
    listed: list[JoinGroupResponseMember] | None = None,
) -> JoinGroupResponse:
    """Return a member's JoinGroup response. Only the leader's has the member list; `listed` is that list if built."""
    members: list[JoinGroupResponseMember] = []
    if group.members.leader_id == member.member_id:
        members = [each.listed(group.protocol_name) for each in group.members] if listed is None else listed
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation_id,
        protocol_type=group.members.protocol_type,
        protocol_name=_protocol_name(group.protocol_name, caller.api_version),
        leader=group.members.leader_id or NO_LEADER,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def refused_join(member_id: str, error: ErrorCode, api_version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        protocol_name=_protocol_name(None, api_version),
        leader=NO_LEADER,
        member_id=member_id,
        members=[],
    )


def synced(group: ClassicState, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.members.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def refused_sync(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def _protocol_name(name: str | None, api_version: int) -> str | None:
    """Return the protocol name for a JoinGroup response. For None that is null since version 7, and "" before."""
    return name or (None if api_version >= 7 else "")
