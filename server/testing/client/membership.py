"""A member of a consumer group of KIP-848: the coordinator assigns, and a member gives up before another one gets.

A task sends heartbeats as often as the coordinator asks for. The consumer asks for its `target`, gives up what is not in it,
and says with `own` what it has then. A member that hears that it is none any more has lost everything, and joins anew.
"""

import base64
from typing import Any

import trio

from ottla.server.testing.client.admin import Admin
from ottla.server.testing.client.answers import NOT_COORDINATOR
from ottla.server.testing.client.connections import BACKOFF_S
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.schema import Message

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
REBALANCE_TIMEOUT_MS = 60_000
FIRST_INTERVAL_S = 1.0
LEAVE_TIMEOUT_S = 5.0
NOT_A_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
Place = tuple[str, int]


class Membership:
    """Membership of one consumer in a group."""

    def __init__(self, admin: Admin, group: str, topics: tuple[str, ...]) -> None:
        self.group = group
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        self.changed = trio.Event()
        """Set when the group wants to change what this member owns; another event follows."""

        self.was_member_at = 0.0
        """Time at which the last heartbeat was sent that was answered as to a member."""

        self._admin = admin
        self._topics = topics
        self._owned: set[Place] = set()
        self._target: set[Place] = set()
        self._interval_s = FIRST_INTERVAL_S
        self._must_tell = True
        self._unknown = set(topics)  # whose ids are to be asked for
        self._coordinator: int | None = None
        self._failure: KafkaError | None = None
        self._scope: trio.CancelScope | None = None
        self._due = trio.Event()
        self._beating = trio.Lock()

    async def target(self) -> set[Place]:
        """Return the partitions that the member is to own; joins first if need be. Raises KafkaError."""
        if self._scope is None:
            chance = self._admin.connections.network.chance
            self.member_id = base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=")
            self._scope = trio.CancelScope()
            await self._admin.insist(f"group {self.group!r} joined", self._join)
            self._admin.connections.nursery.start_soon(self._run, self._scope)
        if self._failure is not None:
            raise self._failure
        return set(self._target)

    async def own(self, owned: set[Place]) -> None:
        """Tell the coordinator what the member owns, if that has changed."""
        if owned != self._owned:
            self._owned = set(owned)
            self._must_tell = True
            await self.beat()

    async def leave(self) -> None:
        """Leave the group at once; nobody has to wait for the end of the session."""
        if self._scope is None:
            return
        self._scope.cancel()
        if self.epoch > JOIN_EPOCH:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH, topic_partitions=[]
            )
            with trio.move_on_after(LEAVE_TIMEOUT_S):
                await self.ask(request)

    async def ask(self, request: Message, *, at_most: int = 1000) -> Any:
        """Return the coordinator's response; None if nobody knows."""
        if self._coordinator is None:
            self._coordinator = await self._admin.connections.coordinator(self.group)
        response = await self._admin.connections.ask(self._coordinator, request, at_most=at_most)
        if response is None:
            self._coordinator = None
        return response

    def forget_coordinator(self) -> None:
        """Look for the coordinator before the next request."""
        self._coordinator = None

    # ------------------------------------------------------------------ heartbeats

    async def _join(self) -> bool | None:
        await self.beat()
        return True if self.epoch > JOIN_EPOCH or self._failure is not None else None

    async def _run(self, scope: trio.CancelScope) -> None:
        with scope:
            while self._failure is None:
                with trio.move_on_after(self._interval_s):
                    await self._due.wait()
                await self.beat()

    async def beat(self) -> None:
        """Send a heartbeat and take its answer."""
        async with self._beating:
            for topic in self._topics:
                if topic in self._unknown:
                    await self._admin.connections.refresh(topic)
            asked_at, told = trio.current_time(), set(self._owned)
            request = self._heartbeat()
            response = await self.ask(request)
            if response is None:
                self._must_tell = True  # an answer that is lost may have had an assignment
                await trio.sleep(BACKOFF_S)
                return
            if response.error_code == ErrorCode.NONE and request.topic_partitions is not None:
                self._must_tell = told != self._owned
            self._take(response, asked_at)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        is_whole = self.epoch == JOIN_EPOCH or self._must_tell
        topics: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self._owned):
            topics.setdefault(self._admin.connections.topic_ids[topic], []).append(partition)
        owned = [TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_whole else -1,
            subscribed_topic_names=list(self._topics) if is_whole else None,
            topic_partitions=owned if is_whole else None,
        )

    def _take(self, response: Any, asked_at: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self.was_member_at = asked_at
            self.epoch = response.member_epoch
            self._interval_s = response.heartbeat_interval_ms / 1000
            if response.assignment is not None:
                self._aim_at(response.assignment)
        elif code in NOT_A_MEMBER:
            self.epoch = JOIN_EPOCH
            self._owned, self._must_tell = set(), True
            self._change(set())
        elif code in NOT_COORDINATOR:
            self._coordinator = None
        else:
            self._failure = KafkaError(code, response.error_message)
            self._change(self._target)

    def _aim_at(self, assignment: Any) -> None:
        names = {topic_id: name for name, topic_id in self._admin.connections.topic_ids.items()}
        found: set[Place] = set()
        self._unknown = set()
        for each in assignment.topic_partitions:
            name = names.get(bytes(each.topic_id))
            if name is None:  # a topic that is new here; the answer to the next whole heartbeat names it again
                self._must_tell, self._unknown = True, set(self._topics)
            else:
                found |= {(name, partition) for partition in each.partitions}
        if found != self._target:
            self._change(found)

    def _change(self, target: set[Place]) -> None:
        self._target = target
        self.changed.set()
        self.changed = trio.Event()
