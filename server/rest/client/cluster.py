"""A cluster: its brokers, the leaders of partitions and the coordinators of groups, each asked over one shared connection.

A request that a broker may let wait, such as a fetch or a join, borrows a connection of its own: a broker answers the
requests of a connection in their order. What is borrowed is kept for the next one. Writes, reads and joins have limits of
their own, so that none waits for the others. All members of a group have to join at a time, so of joins there may be
as many as there are instances.

An unreachable broker is not tried again for BREAK_S; until then requests to it fail at once.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

import trio

from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, Address
from ottla.server.cli.client.security import Security
from ottla.server.rest.client.links import Link, open_link
from ottla.server.rest.errors import Code, KafkaFailure, RestError, Unreachable, check, topic_not_found
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import Message

T = TypeVar("T")

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""

WAITING_MAX = 500
"""Writes, and reads, under way."""
JOINS_MAX = 10_000
IDLE_MAX = 64
"""Connections to a broker that are kept for later."""

BREAK_S = 0.5
RETRY_S = 0.1
METADATA_AGE_S = 30.0
"""After so long a topic may have got more partitions; Kafka's clients take five minutes."""

TOPICS_KEPT, COORDINATORS_KEPT = 10_000, 10_000
CREATION_S = 3.0
_NAMES_MAX_VERSION = 12  # of Metadata: from 13 on there is an error for all

MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)
"""Errors after which the leader is looked up again."""

COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@dataclass(slots=True)
class Topic:
    """Topic in the metadata, with sorted partitions."""

    name: str
    is_internal: bool
    partitions: list[MetadataResponsePartition]
    known_since_s: float
    by_number: Mapping[int, MetadataResponsePartition] = field(init=False)

    def __post_init__(self) -> None:
        self.partitions.sort(key=lambda each: each.partition_index)
        self.by_number = {each.partition_index: each for each in self.partitions}


class Wait(Enum):
    """Kind of request that a broker may answer late, because the request waits for something."""

    WRITE = auto()
    READ = auto()
    JOIN = auto()


_WAITING_MAX = {Wait.WRITE: WAITING_MAX, Wait.READ: WAITING_MAX, Wait.JOIN: JOINS_MAX}


class _Broker:
    """Connections to one broker."""

    def __init__(self) -> None:
        self.shared: Link | None = None
        self.opening = trio.Lock()
        self.idle: list[Link] = []
        self.failed_at_s = -BREAK_S
        self.failure = ""


class KafkaCluster:
    """Client of the cluster behind the proxy. `run` must run while the client is used."""

    def __init__(self, bootstrap: Sequence[Address], security: Security, idle_max: int = IDLE_MAX) -> None:
        self._bootstrap, self._security, self._idle_max = bootstrap, security, idle_max
        self.has_connected = False
        """A broker has accepted the login."""
        self._addresses: dict[int, Address] = {}
        self._brokers: dict[Address, _Broker] = {}
        self._topics: OrderedDict[str, Topic] = OrderedDict()
        self._coordinators: OrderedDict[str, int] = OrderedDict()
        self._waiting = {each: trio.CapacityLimiter(most) for each, most in _WAITING_MAX.items()}
        self._nursery: trio.Nursery | None = None
        self.cluster_id: str | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the client's tasks until cancelled; then close all connections."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            for broker in self._brokers.values():
                for link in (*broker.idle, *filter(None, (broker.shared,))):
                    link.close()

    # --- asking

    async def ask(
        self, node_id: int, request: Message, take: Callable[[Any], T], *, at_most: int = 1000,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:  # fmt: skip
        """Send a request to a broker in the metadata; return `take(response)`. Raises RestError."""
        link = await self._shared(self._address_of(node_id))
        return await link.ask(self.nursery, request, take, at_most=at_most, timeout_s=timeout_s)

    async def ask_waiting(
        self, wait: Wait, node_id: int, request: Message, take: Callable[[Any], T], *, at_most: int = 1000,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:  # fmt: skip
        """Send a request that may block, over an unshared connection; return `take(response)`. Raises RestError."""
        address = self._address_of(node_id)
        broker = self._broker(address)
        async with self._waiting[wait]:
            link = None
            while broker.idle and link is None:
                link = broker.idle.pop()
                if not link.is_usable:
                    link.close()
                    link = None
            if link is None:
                link = await self._opened(address)
            try:
                return await link.ask(self.nursery, request, take, at_most=at_most, timeout_s=timeout_s)
            finally:
                # If the caller is cancelled the answer is still to come.
                if link.is_usable and not link.waiting and len(broker.idle) < self._idle_max:
                    broker.idle.append(link)
                else:
                    link.close("it is not kept")

    async def ask_any(self, request: Message, take: Callable[[Any], T], *, at_most: int = 1000) -> T:
        """Send a request to any broker; return `take(response)`. Raises RestError if no broker responds."""
        known = random.sample(sorted(self._addresses.values()), len(self._addresses))
        failure: RestError | None = None
        for address in (*known, *(each for each in self._bootstrap if each not in known)):
            try:
                link = await self._shared(address)
                return await link.ask(self.nursery, request, take, at_most=at_most)
            except Unreachable as error:
                failure = failure or error
        assert failure is not None, "there is an address to begin with"
        raise failure

    async def ask_controller(self, request: Message, take: Callable[[Any], T]) -> T:
        """Send a request to the controller, perhaps by another broker; return `take(response)`. Raises RestError."""
        node_id = await self.refreshed(())
        if node_id.controller_id < 0:
            return await self.ask_any(request, take)
        return await self.ask(node_id.controller_id, request, take)

    async def ask_coordinator(
        self, group: str, request: Message, take: Callable[[Any], T], *, at_most: int = 1000, joins: bool = False,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:  # fmt: skip
        """Send a request to a group's coordinator; return `take(response)`. Raises RestError.

        `take` must raise KafkaFailure if the coordinator has moved.
        """

        async def ask() -> T:
            node_id = await self.coordinator(group)
            try:
                if joins:
                    return await self.ask_waiting(
                        Wait.JOIN, node_id, request, take, at_most=at_most, timeout_s=timeout_s
                    )
                return await self.ask(node_id, request, take, at_most=at_most, timeout_s=timeout_s)
            except (KafkaFailure, Unreachable) as error:
                if isinstance(error, Unreachable) or error.error in COORDINATOR_MOVED:
                    self._coordinators.pop(group, None)
                raise

        return await retried(ask, COORDINATOR_MOVED)

    # --- whom to ask

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None, "`run` runs"
        return self._nursery

    @property
    def known_brokers(self) -> list[int]:
        """Ids of the brokers in the latest metadata."""
        return sorted(self._addresses)

    async def refreshed(self, topics: Sequence[str] | None, *, creates: bool = False) -> MetadataResponse:
        """Request metadata of topics; None: of all topics. Raises RestError.

        `creates`: brokers create missing topics if auto.create.topics.enable.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=each) for each in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
        answer: MetadataResponse = await self.ask_any(request, lambda found: found, at_most=_NAMES_MAX_VERSION)
        # A broker that starts tells of nobody yet; what was known before may still help.
        if answer.brokers:
            self._addresses = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
            self._forget_gone()
        self.cluster_id = answer.cluster_id or self.cluster_id
        for each in answer.topics:
            self._note(each)
        return answer

    def _note(self, found: MetadataResponseTopic) -> None:
        name = found.name or ""
        if found.error_code:
            self._topics.pop(name, None)
            return
        self._topics[name] = Topic(name, found.is_internal, list(found.partitions), trio.current_time())
        self._topics.move_to_end(name)
        while len(self._topics) > TOPICS_KEPT:
            self._topics.popitem(last=False)

    async def topic(self, name: str, *, creates: bool = False) -> Topic:
        """Return a topic, cached or requested. Raises RestError.

        `creates`: a broker creates the topic if it is missing and auto.create.topics.enable is on.
        """
        known = self._topics.get(name)
        if known is not None and trio.current_time() - known.known_since_s < METADATA_AGE_S:
            return known
        until_s = trio.current_time() + CREATION_S
        while True:
            answer = await self.refreshed([name], creates=creates)
            found = next((each for each in answer.topics if each.name == name), None)
            code = ErrorCode.of(found.error_code) if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code == ErrorCode.NONE:
                return self._topics[name]
            # A broker says that a topic is unknown while it creates it. Nobody can have a topic of an invalid name.
            is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_late = trio.current_time() > until_s
            if (is_unknown and (is_late or not creates)) or code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise topic_not_found()
            if not code.retriable or is_late:
                raise KafkaFailure(code)
            await trio.sleep(RETRY_S)

    def forget_topic(self, name: str) -> None:
        """Remove a topic from the cache. Call this after the topic was deleted or a leader has moved."""
        self._topics.pop(name, None)

    async def leader(self, topic: str, number: int, *, creates: bool = False) -> int:
        """Return the broker id of a partition's leader. Raises RestError."""
        found = (await self.topic(topic, creates=creates)).by_number.get(number)
        if found is None:
            raise RestError(Code.PARTITION_NOT_FOUND, "Partition not found.")
        if found.leader_id < 0:
            self.forget_topic(topic)
            raise KafkaFailure(ErrorCode.LEADER_NOT_AVAILABLE)
        return found.leader_id

    async def leaders(self, partitions: Sequence[Partition]) -> dict[int, list[Partition]]:
        """Group partitions by leader (broker id). Raises RestError."""
        found: dict[int, list[Partition]] = {}
        for topic, number in partitions:
            found.setdefault(await self.leader(topic, number), []).append((topic, number))
        return found

    async def coordinator(self, group: str) -> int:
        """Return the broker id of a group's coordinator. Raises RestError."""
        known = self._coordinators.get(group)
        if known is not None and known in self._addresses:
            return known
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        answer = await self.ask_any(request, lambda each: each)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, found.error_message)
        self._addresses[found.node_id] = Address(found.host, found.port)
        self._coordinators[group] = found.node_id
        while len(self._coordinators) > COORDINATORS_KEPT:
            self._coordinators.popitem(last=False)
        return int(found.node_id)

    # --- connections

    def _address_of(self, node_id: int) -> Address:
        if node_id not in self._addresses:
            raise Unreachable(f"Broker {node_id} is not there.")
        return self._addresses[node_id]

    def _broker(self, address: Address) -> _Broker:
        return self._brokers.setdefault(address, _Broker())

    async def _shared(self, address: Address) -> Link:
        broker = self._broker(address)
        if broker.shared is not None and broker.shared.is_usable:
            return broker.shared
        async with broker.opening:
            if broker.shared is None or not broker.shared.is_usable:
                if broker.shared is not None:
                    broker.shared.close()
                broker.shared = await self._opened(address)
            return broker.shared

    async def _opened(self, address: Address) -> Link:
        broker = self._broker(address)
        if trio.current_time() - broker.failed_at_s < BREAK_S:
            raise Unreachable(broker.failure)
        try:
            link = await open_link(address, self._security, is_stranger=not self.has_connected)
        except Unreachable as error:
            broker.failed_at_s, broker.failure = trio.current_time(), str(error)
            raise
        self.has_connected = True
        return link

    def _forget_gone(self) -> None:
        """Close connections to brokers that have left the cluster."""
        present = {*self._addresses.values(), *self._bootstrap}
        for address in [each for each in self._brokers if each not in present]:
            broker = self._brokers[address]
            if not broker.opening.locked():
                for link in (*broker.idle, *filter(None, (broker.shared,))):
                    link.close("the broker has left the cluster")
                del self._brokers[address]


async def retried(
    question: Callable[[], Awaitable[T]], errors: Sequence[ErrorCode], timeout_s: float = ANSWER_TIMEOUT_S
) -> T:
    """Call `question`. Retry on `errors` and failed connections, for at most `timeout_s` seconds. Raises RestError."""
    until_s = trio.current_time() + timeout_s
    while True:
        try:
            return await question()
        except KafkaFailure as error:
            if error.error not in errors or trio.current_time() > until_s:
                raise
        except Unreachable as error:
            if error.is_sent or trio.current_time() > until_s:
                raise
        await trio.sleep(RETRY_S)
