"""The way to the share coordinators: one may be this broker, the others are asked over the network.

A coordinator that is not there (it moves, it loads, its topic is being made) is asked again a few times. What it says then
counts, and whoever waits gets an answer in any case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.replication.cluster.metadata_cache import SHARE_GROUP_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.coordinators.share_coordinators import RETRIABLE, WAITS_S, BrokerConnections
from ottla.server.ports import HasAdministration, HasCluster, HasMember, HasSettings, HasShareCoordinator
from ottla.wire.answers import Given, PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import read_share_group_state as reading
from ottla.wire.messages import write_share_group_state as writing
from ottla.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ottla.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

READ_VERSION, WRITE_VERSION = 0, 1

Background = Callable[[Callable[[], Awaitable[None]]], None]


class Port(HasAdministration, HasCluster, HasMember, HasSettings, HasShareCoordinator, Protocol):
    """What is needed of the broker here."""


class _Later(PendingAnswer[Any]):
    """A response that a task will have."""

    __slots__ = ("_response",)

    def complete(self, response: Any) -> None:
        self._response = response
        self.become_ready()

    def response(self) -> Any:
        return self._response

    def abandon(self) -> None:
        """The task goes on: what it stores is asked for all the same."""


class RoutedPersister:
    """See the module's docstring. `start` does work in the background."""

    def __init__(self, broker: Port, start: Background) -> None:
        self._broker = broker
        self._start = start
        self._connections = BrokerConnections(broker, "share-state")

    def read(self, request: ReadShareGroupStateRequest) -> Given[ReadShareGroupStateResponse]:
        """All that is known of one share partition."""
        return self._ask(_Read(request))

    def write(self, request: WriteShareGroupStateRequest) -> Given[WriteShareGroupStateResponse]:
        """Keep what has changed of one share partition."""
        return self._ask(_Write(request))

    def _ask(self, asked: _Asked) -> Given[Any]:
        later = _Later()
        # A coordinator on this broker usually has the answer at once, and no task has to be woken for it.
        if self._coordinator(asked) == self._broker.node_id:
            answer = asked.of(self._broker)
            if not isinstance(answer, PendingAnswer | Awaitable) and asked.error_of(answer) not in RETRIABLE:
                return answer
            self._start(partial(self._ask_on, asked, later, answer))
        else:
            self._start(partial(self._ask_on, asked, later, None))
        return later

    def _coordinator(self, asked: _Asked) -> int | None:
        """The broker that coordinates a share partition, if one does."""
        cluster = self._broker.cluster
        # Before the topic is there nobody knows how many partitions it will have.
        if cluster.topic(SHARE_GROUP_STATE_TOPIC) is None:
            return None
        partition = cluster.partition(SHARE_GROUP_STATE_TOPIC, self._broker.share_coordinator.partition_for(asked.key))
        return None if partition is None or partition.leader < 0 else partition.leader

    async def _ask_on(self, asked: _Asked, later: _Later, answer: Any) -> None:
        """Ask until there is an answer that counts; `answer`: of the first try, if it was made."""
        try:
            later.complete(await self._answer(asked, answer))
        finally:
            # Also when the broker stops: nobody is to wait for ever.
            if not later.is_ready:
                later.complete(asked.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def _answer(self, asked: _Asked, answer: Any) -> Any:
        for wait_s in (*WAITS_S, None):
            try:
                response = await (self._try(asked) if answer is None else finished(answer))
            except PeerUnavailable:
                response = asked.refused(ErrorCode.NETWORK_EXCEPTION)
            except KafkaError as error:
                response = asked.refused(error.code)
            if wait_s is None or asked.error_of(response) not in RETRIABLE:
                return response
            answer = None
            await trio.sleep(wait_s)
        raise AssertionError("the last try has returned")

    async def _try(self, asked: _Asked) -> Any:
        coordinator = self._coordinator(asked)
        if coordinator is None:
            await self._broker.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator == self._broker.node_id:
            return await finished(asked.of(self._broker))
        return await self._connections.ask(coordinator, asked.request, asked.version)


class _Asked(Protocol):
    """A request about one share partition."""

    version: int

    @property
    def request(self) -> Any: ...

    @property
    def key(self) -> SharePartitionKey: ...

    def of(self, broker: Port) -> Any:
        """Ask the coordinator on this broker."""

    def refused(self, error: ErrorCode) -> Any:
        """The response that says no more than an error."""

    def error_of(self, response: Any) -> ErrorCode: ...


class _Read:
    version = READ_VERSION

    def __init__(self, request: ReadShareGroupStateRequest) -> None:
        self.request = request
        self.key = _key_of(request)

    def of(self, broker: Port) -> Any:
        return broker.share_coordinator.read(self.request, api_version=self.version)

    def refused(self, error: ErrorCode) -> ReadShareGroupStateResponse:
        result = reading.PartitionResult(
            partition=self.key.partition, error_code=error, state_epoch=0, start_offset=0, state_batches=[]
        )
        return ReadShareGroupStateResponse(
            results=[reading.ReadStateResult(topic_id=self.key.topic_id, partitions=[result])]
        )

    def error_of(self, response: ReadShareGroupStateResponse) -> ErrorCode:
        return _error_of(response)


class _Write:
    version = WRITE_VERSION

    def __init__(self, request: WriteShareGroupStateRequest) -> None:
        self.request = request
        self.key = _key_of(request)

    def of(self, broker: Port) -> Any:
        return broker.share_coordinator.write(self.request, api_version=self.version)

    def refused(self, error: ErrorCode) -> WriteShareGroupStateResponse:
        result = writing.PartitionResult(partition=self.key.partition, error_code=error)
        return WriteShareGroupStateResponse(
            results=[writing.WriteStateResult(topic_id=self.key.topic_id, partitions=[result])]
        )

    def error_of(self, response: WriteShareGroupStateResponse) -> ErrorCode:
        return _error_of(response)


def _key_of(request: Any) -> SharePartitionKey:
    (topic,) = request.topics
    (partition,) = topic.partitions
    return SharePartitionKey(request.group_id, topic.topic_id, partition.partition)


def _error_of(response: Any) -> ErrorCode:
    for topic in response.results:
        for partition in topic.partitions:
            return ErrorCode.of(partition.error_code)
    return ErrorCode.UNKNOWN_SERVER_ERROR
