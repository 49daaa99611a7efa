"""Membership of a consumer in a group: the common part of both protocols, and KIP-848.

A task sends what the protocol wants next, and takes the answer. The consumer asks for its `target`, gives up what is not in it,
and says with `own` what it has then. A member that hears that it is none any more has lost everything, and joins anew.

In KIP-848 the coordinator assigns, and a member gives up a partition before another one gets it.
"""

import base64
import contextlib
from abc import ABC, abstractmethod
from typing import Any

import trio

from ottla.server.testing.client.admin import Admin
from ottla.server.testing.client.answers import NOT_COORDINATOR, NoAnswer
from ottla.server.testing.client.connections import BACKOFF_S, REQUEST_TIMEOUT_S
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.schema import Message

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
REBALANCE_TIMEOUT_MS = 60_000
LEAVE_TIMEOUT_S = 5.0
NOT_A_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
Place = tuple[str, int]


class Membership(ABC):
    """Membership of one consumer in a group, by either protocol."""

    at_most = 1000
    """Newest version of the protocol's requests that is sent."""

    def __init__(self, admin: Admin, group: str, topics: tuple[str, ...]) -> None:
        self.group = group
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        """Epoch of the member, in a classic group the generation."""

        self.changed = trio.Event()
        """Set when the group wants to change what this member owns; another event follows."""

        self.was_member_at = 0.0
        """Time at which the last request was sent that was answered as to a member."""

        self.connections = admin.connections
        self._admin = admin
        self._topics = topics
        self._owned: set[Place] = set()
        self._target: set[Place] | None = None  # None: not assigned anything yet
        self._pause_s = BACKOFF_S  # until the next request
        self._coordinator: int | None = None
        self._failure: Exception | None = None
        self._scope: trio.CancelScope | None = None
        self._due = trio.Event()
        self._beating = trio.Lock()

    async def target(self) -> set[Place]:
        """Return the partitions that the member is to own; joins first if need be. Raises KafkaError."""
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._admin.connections.nursery.start_soon(self._run, self._scope)
        while True:
            if self._failure is not None:
                raise self._failure
            if self._target is not None:
                return set(self._target)
            await self.changed.wait()

    def own(self, owned: set[Place]) -> None:
        """Say what the member owns; the coordinator is told soon if that has changed."""
        if owned != self._owned:
            self._owned = set(owned)
            self._due.set()

    async def leave(self) -> None:
        """Leave the group, or give up after some seconds. Other members then need not wait until the session ends."""
        if self._scope is None:
            return
        self._scope.cancel()
        if (request := self._leaving()) is not None:
            with trio.move_on_after(LEAVE_TIMEOUT_S), contextlib.suppress(KafkaError):
                while (response := await self.ask(request, at_most=self.at_most)) is None or (
                    response.error_code in NOT_COORDINATOR
                ):
                    self.forget_coordinator()
                    await trio.sleep(BACKOFF_S)

    async def ask(self, request: Message, *, at_most: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Return the coordinator's response; None if nobody knows."""
        if self._coordinator is None:
            self._coordinator = await self.connections.coordinator(self.group)
        response = await self.connections.ask(self._coordinator, request, timeout_s=timeout_s, at_most=at_most)
        if response is None:
            self._coordinator = None
        return response

    def forget_coordinator(self) -> None:
        """Look for the coordinator before the next request."""
        self._coordinator = None

    async def beat(self) -> None:
        """Send the next request, if one is due, and take its answer."""
        async with self._beating:
            await self._step()

    # ------------------------------------------------------------------ of the protocols

    @abstractmethod
    async def _step(self) -> None:
        """Send what is due and take its answer."""

    @abstractmethod
    def _leaving(self) -> Message | None:
        """Return the request to leave; None if the member has not joined."""

    def _fail(self, failure: Exception) -> None:
        """Let the consumer's polls raise an error."""
        self._failure = failure
        self._change(self._target)

    def _change(self, target: set[Place] | None) -> None:
        self._target = target
        self.changed.set()
        self.changed = trio.Event()

    async def _run(self, scope: trio.CancelScope) -> None:
        with scope:
            while self._failure is None:
                self._due = trio.Event()
                try:
                    with contextlib.suppress(NoAnswer):
                        await self.beat()
                except KafkaError as refusal:  # of a Metadata or FindCoordinator request
                    self._fail(refusal)
                with trio.move_on_after(self._pause_s):
                    await self._due.wait()


class ConsumerMembership(Membership):
    """Membership in a group of KIP-848."""

    def __init__(self, admin: Admin, group: str, topics: tuple[str, ...]) -> None:
        super().__init__(admin, group, topics)
        self.member_id = base64.urlsafe_b64encode(admin.connections.network.chance.randbytes(16)).decode().rstrip("=")
        # Partitions that the coordinator knows this member to own; None: the next heartbeat names all.
        self._told: set[Place] | None = None
        self._unknown = set(topics)
        """Topics whose ids a Metadata request has to find."""

    async def _step(self) -> None:
        for topic in self._topics:
            if topic in self._unknown:
                await self.connections.refresh(topic)
        asked_at, owned = trio.current_time(), set(self._owned)
        response = await self.ask(self._heartbeat(), at_most=self.at_most)
        self._pause_s = BACKOFF_S
        # An answer that is lost may have had an assignment.
        self._told = owned if response is not None and response.error_code == ErrorCode.NONE else None
        if response is not None:
            self._take(response, asked_at)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        is_whole = self.epoch == JOIN_EPOCH or self._told != self._owned
        topics: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self._owned):
            topics.setdefault(self.connections.topic_ids[topic], []).append(partition)
        owned = [TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_whole else -1,
            subscribed_topic_names=list(self._topics) if is_whole else None,
            topic_partitions=owned if is_whole else None,
        )

    def _leaving(self) -> Message | None:
        if self.epoch == JOIN_EPOCH:
            return None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH, topic_partitions=[]
        )

    def _take(self, response: Any, asked_at: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self.was_member_at = asked_at
            self.epoch = response.member_epoch
            self._pause_s = response.heartbeat_interval_ms / 1000
            if response.assignment is not None or self._target is None:
                self._aim_at(response.assignment)
        elif code in NOT_A_MEMBER:
            self.epoch = JOIN_EPOCH
            self._owned = set()
            self._change(set())
        elif code in NOT_COORDINATOR:
            self.forget_coordinator()
        else:
            self._fail(KafkaError(code, response.error_message))

    def _aim_at(self, assignment: Any) -> None:
        names = {topic_id: name for name, topic_id in self.connections.topic_ids.items()}
        found: set[Place] = set()
        self._unknown = set()
        for each in () if assignment is None else assignment.topic_partitions:
            name = names.get(bytes(each.topic_id))
            if name is None:  # a topic that is new here; the answer to the next whole heartbeat names it again
                self._told, self._unknown, self._pause_s = None, set(self._topics), BACKOFF_S
            else:
                found |= {(name, partition) for partition in each.partitions}
        if found != self._target:
            self._change(found)
