"""A member of a classic group, as which a consumer instance subscribes to topics.

States
    joining     JoinGroup and SyncGroup are under way. The broker may let both wait until all members have come.
    stable      partitions are assigned; a heartbeat every HEARTBEAT_S finds out when others come or go
    failed      the group refuses the member, or no coordinator is found: reading raises `problem` until it joins again

Before a member rejoins it gives up its partitions: `on_revoked` commits what was read of them. Then `on_assigned` has the
new ones. The leader shares out partitions by range, as Kafka's consumers do by default; so members of other makes can be in
the same group. It looks every METADATA_S whether topics have got more partitions, or whether others match a pattern.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import trio

from ottla.server.cli.client.assignment import (
    SESSION_S,
    assigned,
    join_request,
    range_assignment,
    sync_request,
    topics_in,
)
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S
from ottla.server.rest.client.cluster import KafkaCluster, Partition
from ottla.server.rest.errors import KafkaFailure, RestError, check
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
)
from ottla.wire.schema import Message

T = TypeVar("T")

logger = logging.getLogger("ottla.rest")

REBALANCE_S, HEARTBEAT_S, RETRY_S, METADATA_S = 60.0, 3.0, 0.5, 30.0
LEAVE_S = 5.0
_REJOINING = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)

FindTopics = Callable[[], Awaitable[Sequence[str]]]
"""Topics of the subscription that exist now. Raises RestError."""


class Membership:
    """Membership of a consumer instance in its group. `run` joins the group and sends heartbeats."""

    def __init__(
        self,
        cluster: KafkaCluster,
        group: str,
        find_topics: FindTopics,
        on_assigned: Callable[[Sequence[Partition]], Awaitable[None]],
        on_revoked: Callable[[], Awaitable[None]],
    ) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.problem: RestError | None = None
        self._cluster, self._group = cluster, group
        self._find_topics, self._on_assigned, self._on_revoked = find_topics, on_assigned, on_revoked
        self._leads: dict[str, int] | None = None
        """Partitions of the topics that this member has shared out as the leader."""
        self._topics: Sequence[str] = ()

    async def run(self) -> None:
        """Join the group and remain a member until cancelled."""
        while True:
            try:
                await self._join()
                self.problem = None
                await self._stay()
            except KafkaFailure as error:
                self._note(error)
            except RestError as error:
                self._fail(error)
            await self._on_revoked()
            self._leads = None
            if self.problem is not None:
                await trio.sleep(RETRY_S)

    def _note(self, error: KafkaFailure) -> None:
        if error.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation_id = -1
            self.member_id = "" if error.error == ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        if error.error not in _REJOINING:
            self._fail(error)

    def _fail(self, error: RestError) -> None:
        if self.problem is None:
            logger.warning("a member of group %r: %s", self._group, error)
        self.problem = error

    async def leave(self) -> None:
        """Leave the group, so that the group need not wait for the session timeout."""
        if not self.member_id:
            return
        identity = MemberIdentity(member_id=self.member_id, reason="the consumer instance is deleted")
        request = LeaveGroupRequest(group_id=self._group, member_id=self.member_id, members=[identity])
        with trio.move_on_after(LEAVE_S):
            try:
                await self._cluster.ask_coordinator(self._group, request, lambda answer: check(answer.error_code))
            except RestError as error:
                logger.info("a member of group %r could not leave: %s", self._group, error)

    # --- joining

    async def _join(self) -> None:
        self._topics = sorted(await self._find_topics())
        joined = await self._joined()
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        shares: dict[str, list[Partition]] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = await self._shared_out(joined)
        blob = await self._synced(joined, shares)
        await self._on_assigned(assigned(blob))

    async def _joined(self) -> JoinGroupResponse:
        def take(answer: JoinGroupResponse) -> JoinGroupResponse:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            check(answer.error_code)
            return answer

        while True:
            request = join_request(self._group, self.member_id, self._topics, REBALANCE_S)
            try:
                return await self._ask(request, take, joins=True, timeout_s=REBALANCE_S + ANSWER_TIMEOUT_S)
            except KafkaFailure as error:
                if error.error != ErrorCode.MEMBER_ID_REQUIRED:
                    raise

    async def _synced(self, joined: JoinGroupResponse, shares: Mapping[str, Sequence[Partition]]) -> bytes:
        def take(answer: Any) -> bytes:
            check(answer.error_code)
            return bytes(answer.assignment)

        request = sync_request(self._group, joined, shares)
        return await self._ask(request, take, joins=True, timeout_s=REBALANCE_S + ANSWER_TIMEOUT_S)

    async def _ask(self, request: Message, take: Callable[[Any], T], *, joins: bool = False, timeout_s: float) -> T:
        return await self._cluster.ask_coordinator(self._group, request, take, joins=joins, timeout_s=timeout_s)

    async def _shared_out(self, joined: JoinGroupResponse) -> dict[str, list[Partition]]:
        wanted = {each.member_id: topics_in(bytes(each.metadata)) for each in joined.members}
        self._leads = await self._counts(sorted({topic for topics in wanted.values() for topic in topics}))
        return range_assignment(wanted, self._leads)

    async def _counts(self, topics: Sequence[str]) -> dict[str, int]:
        if not topics:
            return {}
        answer = await self._cluster.refreshed(topics)
        return {each.name or "": len(each.partitions) for each in answer.topics if not each.error_code}

    # --- staying

    async def _stay(self) -> None:
        """Send heartbeats until the group rebalances or the topics change. Raises RestError."""
        looked_at_s = trio.current_time()
        failing_since_s: float | None = None
        while True:
            await trio.sleep(HEARTBEAT_S)
            try:
                await self._beat()
                failing_since_s = None
                if trio.current_time() - looked_at_s > METADATA_S:
                    looked_at_s = trio.current_time()
                    if await self._has_changed():
                        return
            except RestError as error:
                if isinstance(error, KafkaFailure) and (error.error in _REJOINING or not error.error.retriable):
                    raise
                failing_since_s = failing_since_s or trio.current_time()
                if trio.current_time() - failing_since_s > SESSION_S:
                    raise

    async def _beat(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation_id, member_id=self.member_id)
        await self._ask(request, lambda answer: check(answer.error_code), timeout_s=SESSION_S / 3)

    async def _has_changed(self) -> bool:
        """Return True if the subscribed topics have changed.

        In the group's leader, also if a topic's number of partitions has changed.
        """
        if sorted(await self._find_topics()) != list(self._topics):
            return True
        return self._leads is not None and await self._counts(list(self._leads)) != self._leads
