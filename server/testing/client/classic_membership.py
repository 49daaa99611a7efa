"""Membership of a consumer in a classic group: one of the members assigns, in ranges.

Before a member joins again, it gives up all that it has, as Java's eager clients do: the next `poll` of its consumer does that. Its
heartbeats go on until then.
"""

from typing import Any

import trio

from ottla.server.cli.client.assignment import PROTOCOL_TYPE, RANGE, range_assignment
from ottla.server.cli.client.cluster import by_topic
from ottla.server.testing.client.admin import Admin
from ottla.server.testing.client.answers import NOT_COORDINATOR
from ottla.server.testing.client.connections import BACKOFF_S, REQUEST_TIMEOUT_S
from ottla.server.testing.client.membership import REBALANCE_TIMEOUT_MS, Membership
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_subscription,
)
from ottla.wire.schema import Message

NO_GENERATION = -1
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_S = 1.0
VERSION = bytes(2)
"""Version of subscriptions and assignments that are sent, which stands before them."""

LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
Assignment = dict[str, list[int]]
"""Partitions by topic."""


def encode_assignment(assignment: Assignment) -> bytes:
    """Return an assignment in the consumer protocol, as SyncGroup carries it."""
    topics = [TopicPartition(topic=topic, partitions=partitions) for topic, partitions in assignment.items()]
    return VERSION + ConsumerProtocolAssignment(assigned_partitions=topics).encode(0)


def decode_assignment(data: bytes) -> set[tuple[str, int]]:
    """Return the topics and partitions of an assignment; no bytes are no partitions. Raises ProtocolViolation."""
    if not data:
        return set()
    if len(data) < 2 or data[0] & 0x80:
        raise ProtocolViolation(f"not an assignment of the consumer protocol: {data[:20]!r}")
    topics = ConsumerProtocolAssignment.decode(data, 0, start=2).assigned_partitions
    return {(each.topic, partition) for each in topics for partition in each.partitions}


class ClassicMembership(Membership):
    """Membership in a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

    at_most = 5

    def __init__(self, admin: Admin, group: str, topics: tuple[str, ...]) -> None:
        super().__init__(admin, group, topics)
        self.epoch = NO_GENERATION
        # A JoinGroup is answered when all members have joined, and what is asked behind it on a connection waits.
        self.connections = admin.connections.beside()
        self._is_joining = True
        self._joined: JoinGroupResponse | None = None  # an answer whose SyncGroup is to be sent

    async def leave(self) -> None:
        self.connections.close()  # as a JoinGroup may be under way on it
        await super().leave()
        self.connections.close()

    def _leaving(self) -> Message | None:
        if not self.member_id:
            return None
        return LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])

    async def _step(self) -> None:
        self._pause_s = HEARTBEAT_S
        if self._joined is not None:
            try:
                await self._sync(self._joined)
            except ProtocolViolation as violation:
                self._fail(violation)  # of another member's subscription, or of the leader's assignment
        elif self._is_joining and not self._owned:
            await self._join()
        elif self.epoch != NO_GENERATION:
            await self._beat()

    async def _join(self) -> None:
        subscription = VERSION + ConsumerProtocolSubscription(topics=list(self._topics)).encode(0)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=subscription)],
        )
        response, code = await self._asked(request, REBALANCE_TIMEOUT_MS / 1000 + REQUEST_TIMEOUT_S)
        if code is ErrorCode.NONE:
            self._joined, self._pause_s = response, 0.0
            self.member_id, self.epoch = response.member_id, response.generation_id
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self._pause_s = response.member_id, 0.0
        elif code is not None:
            self._take_error(code)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id:
            subscriptions = {each.member_id: decode_subscription(each.metadata).topics for each in joined.members}
            metadata = await self._admin.metadata(*{topic: None for each in subscriptions.values() for topic in each})
            counts = {str(each.name): len(each.partitions) for each in metadata.topics if not each.error_code}
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(by_topic(each)))
                for member, each in range_assignment(subscriptions, counts).items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=assignments,
        )
        asked_at = trio.current_time()
        response, code = await self._asked(request, REBALANCE_TIMEOUT_MS / 1000)
        if code is ErrorCode.NONE:
            self._joined, self._is_joining, self.was_member_at = None, False, asked_at
            self._change(decode_assignment(bytes(response.assignment)))
        elif code is not None and code not in NOT_COORDINATOR:
            self._joined = None
            self._take_error(code)

    async def _beat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        asked_at = trio.current_time()
        _, code = await self._asked(request, REQUEST_TIMEOUT_S)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.was_member_at = asked_at
        if code is not None and code is not ErrorCode.NONE:
            self._take_error(code)

    async def _asked(self, request: Message, timeout_s: float) -> tuple[Any, ErrorCode | None]:
        response = await self.ask(request, at_most=self.at_most, timeout_s=timeout_s)
        if response is None:
            self._pause_s = BACKOFF_S
            return None, None
        return response, ErrorCode.of(response.error_code)

    def _take_error(self, code: ErrorCode) -> None:
        self._pause_s = BACKOFF_S
        if code in NOT_COORDINATOR:
            self.forget_coordinator()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS or code in LOST:
            if self._owned:
                self._pause_s = HEARTBEAT_S  # until the consumer has given up what it has
            if code in LOST:
                self.epoch = NO_GENERATION
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            if not self._is_joining:
                self._is_joining = True
                self._change(set())
        else:
            self._fail(KafkaError(code))
