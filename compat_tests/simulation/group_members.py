"""Members of groups that rebalance, of both protocols: they own partitions and write down which, and read nothing.

They come and go: a member leaves, or is gone without a word, and comes back as a new one. What a member owns it gives up before
it says so; if it hears that it is none any more, it has lost everything then, and perhaps long before.
"""

import base64
import json
import random
from itertools import count
from typing import Any

import trio

from ottla.server.testing.client.connections import BACKOFF_S, Connections
from ottla.server.testing.history.group_events import Disowned, Owned
from ottla.server.testing.history.history import Recorder
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, TopicPartitions

CONSUMER_HEARTBEAT_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 1, 5, 3, 3, 3
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
LIFE_S = 30.0  # on average
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 10_000, 12_000
CLASSIC_HEARTBEAT_S = 1.0
NOT_A_MEMBER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class _Member:
    """What both kinds do alike: to live and to own."""

    def __init__(self, client: Connections, record: Recorder, group: str, topic: str, partitions: int) -> None:
        self.owned: set[int] = set()
        self.is_over = False
        self._client = client
        self._add = record.add
        self._group, self._topic, self._partitions = group, topic, partitions
        self._chance = random.Random(client.name + str(client.network.chance.random()))
        self._lives = count()
        self._name = self._member_id = ""
        self._was_member = 0.0  # when it asked last what was answered as to a member

    async def run(self) -> None:
        """One life after the other, until it is told to come to an end."""
        while not self.is_over:
            self._name = f"{self._client.name}/{next(self._lives)}"
            self._member_id = ""
            end = trio.current_time() + self._chance.expovariate(1 / LIFE_S)
            await self._live(lambda end=end: self.is_over or trio.current_time() > end)  # type: ignore[misc]
            self._disown(set(self.owned))
            if self._chance.random() < 0.5:
                await self._leave()
            await trio.sleep(self._chance.uniform(0.0, 5.0))

    async def _live(self, is_over: Any) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    def _own(self, partitions: set[int], epoch: int) -> None:
        self.owned |= partitions
        for each in sorted(partitions):
            self._add(Owned, self._group, self._name, epoch, self._topic, each)

    def _disown(self, partitions: set[int]) -> None:
        self.owned -= partitions
        for each in sorted(partitions):
            self._add(Disowned, self._group, self._name, self._topic, each, self._was_member)

    async def _ask(self, request: Any, version: int, timeout_s: float = 8.0) -> Any:
        coordinator = await self._client.coordinator(self._group)
        return await self._client.ask(coordinator, request, version, timeout_s)


class SimConsumerMember(_Member):
    """Of KIP-848: the broker assigns, and a member revokes before another one owns."""

    async def _live(self, is_over: Any) -> None:
        self._member_id = base64.urlsafe_b64encode(self._chance.randbytes(16)).decode().rstrip("=")
        self._epoch = JOIN_EPOCH
        must_tell = True
        while not is_over():
            asked = trio.current_time()
            response = await self._heartbeat(must_tell=must_tell)
            code = None if response is None else ErrorCode(response.error_code)
            must_tell = True  # an answer that is lost may have had an assignment
            if code is ErrorCode.NONE:
                must_tell = self._go_on(response, asked)
                if not must_tell:
                    await trio.sleep(response.heartbeat_interval_ms / 1000 * self._chance.uniform(0.3, 1.0))
            elif code in NOT_A_MEMBER:
                self._disown(set(self.owned))
                self._epoch = JOIN_EPOCH
            await trio.sleep(BACKOFF_S)

    def _go_on(self, response: Any, asked: float) -> bool:
        """Take an answer; whether the broker has to hear at once what is owned now."""
        self._was_member = asked
        before = set(self.owned)
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            target = {index for topic in topics for index in topic.partitions}
            self._disown(self.owned - target)
        else:
            target = before
        is_new_epoch = response.member_epoch != self._epoch
        self._epoch = response.member_epoch
        self._own(target if is_new_epoch else target - self.owned, self._epoch)
        return self.owned != before

    async def _heartbeat(self, *, must_tell: bool) -> Any:
        topic_id = await self._client.topic_id(self._topic)
        is_joining = self._epoch == JOIN_EPOCH
        mine = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining or must_tell else -1,
            subscribed_topic_names=[self._topic] if is_joining or must_tell else None,
            topic_partitions=mine if is_joining or must_tell else None,
        )
        return await self._ask(request, CONSUMER_HEARTBEAT_VERSION)

    async def _leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=LEAVE_EPOCH, topic_partitions=[]
        )
        await self._ask(request, CONSUMER_HEARTBEAT_VERSION)


class SimClassicMember(_Member):
    """Of the classic protocol: one of the members assigns, and all give up everything before they join again."""

    async def _live(self, is_over: Any) -> None:
        while not is_over():
            joined = await self._join()
            if joined is not None:
                assigned = await self._sync(joined)
                if assigned is not None:
                    self._own(assigned, joined.generation_id)
                    await self._stay(joined.generation_id, is_over)
            await trio.sleep(BACKOFF_S)

    async def _join(self) -> Any:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="simulated",
            protocols=[JoinGroupRequestProtocol(name="in turns", metadata=b"")],
        )
        response = await self._ask(request, JOIN_VERSION, timeout_s=REBALANCE_TIMEOUT_MS / 1000 + 8.0)
        code = None if response is None else ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        elif code in NOT_A_MEMBER:
            self._member_id = ""
        return response if code is ErrorCode.NONE else None

    async def _sync(self, joined: Any) -> set[int] | None:
        members = [each.member_id for each in joined.members]  # only the leader is told them
        assignments = [
            SyncGroupRequestAssignment(
                member_id=each, assignment=json.dumps(list(range(number, self._partitions, len(members)))).encode()
            )
            for number, each in enumerate(members)
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=assignments,
        )
        asked = trio.current_time()
        response = await self._ask(request, SYNC_VERSION, timeout_s=REBALANCE_TIMEOUT_MS / 1000)
        if response is None or response.error_code:
            return None
        self._was_member = asked
        return set(json.loads(bytes(response.assignment) or b"[]"))

    async def _stay(self, generation_id: int, is_over: Any) -> None:
        """Until there is to be another generation."""
        code = None
        request = HeartbeatRequest(group_id=self._group, generation_id=generation_id, member_id=self._member_id)
        while not is_over():
            asked = trio.current_time()
            response = await self._ask(request, HEARTBEAT_VERSION)
            code = None if response is None else ErrorCode(response.error_code)
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._was_member = asked
            if code is ErrorCode.REBALANCE_IN_PROGRESS or code in NOT_A_MEMBER:
                break
            await trio.sleep(CLASSIC_HEARTBEAT_S)
        self._disown(set(self.owned))
        if code in NOT_A_MEMBER:
            self._member_id = ""

    async def _leave(self) -> None:
        if self._member_id:
            members = [MemberIdentity(member_id=self._member_id)]
            await self._ask(LeaveGroupRequest(group_id=self._group, members=members), LEAVE_VERSION)
