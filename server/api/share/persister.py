"""The persister of share partitions' state: its requests to the share coordinators and their answers, in Kafka's terms.

A share partition is read once, when this broker begins to lead it for a group, and written with every change. The
coordinator may be this broker; requests to others go over the network. If a coordinator is not available (it moves, it
loads, its topic is being created) the request is sent again a few times. Then the last answer counts, so that every caller gets one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.in_flight import RecordState, StateBatch
from ottla.groupcoord.share.partition.share_partition import SharePartition, StateWrite
from ottla.replication.cluster.metadata_cache import SHARE_GROUP_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.coordinators.share_coordinators import RETRIABLE, WAITS_S, PeerPool
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Given, PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import share_group_state
from ottla.wire.messages.share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

_SHORT_MAX = (1 << 15) - 1
UNINITIALIZED = -1
"""Start offset of a share partition from which no member has fetched yet."""

_TO_MEMBERS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # There is another leader: the member has to find it.
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
FENCING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which a share partition has to be reloaded."""

READ_VERSION, WRITE_VERSION = 0, 1
Background = Callable[[Callable[[], Awaitable[None]]], None]


class SharePersister(Protocol):
    """Client of the share coordinators, which store share-partition state; failed requests get an error response."""

    def read(self, request: ReadShareGroupStateRequest) -> Given[ReadShareGroupStateResponse]: ...

    def write(self, request: WriteShareGroupStateRequest) -> Given[WriteShareGroupStateResponse]: ...


class StoredState(NamedTuple):
    """State of a share partition as stored by the share coordinator."""

    state_epoch: int
    start_offset: int
    batches: list[StateBatch]


def read_request(partition: SharePartition) -> ReadShareGroupStateRequest:
    """Return a request that reads the state and fences earlier leaders of the partition."""
    group_id, topic_id, index = partition.key
    data = share_group_state.ReadStatePartition(partition=index, leader_epoch=partition.leader_epoch)
    return ReadShareGroupStateRequest(
        group_id=group_id, topics=[share_group_state.ReadStateData(topic_id=topic_id, partitions=[data])]
    )


def state_of(partition: SharePartition, response: ReadShareGroupStateResponse) -> StoredState:
    """Return the state in a response. Raises KafkaError, with an error code for the member, if the read failed."""
    result = _only(partition, response.results)
    _raise(result.error_code)
    try:
        batches = [
            StateBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
            for each in result.state_batches
        ]
    except ValueError:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The stored state has an unknown delivery state") from None
    return StoredState(result.state_epoch, result.start_offset, batches)


def write_request(partition: SharePartition, write: StateWrite) -> WriteShareGroupStateRequest:
    """Return a request that stores the changes in `write`."""
    group_id, topic_id, index = partition.key
    changed = share_group_state.WriteStatePartition(
        partition=index,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[
            share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=min(count, _SHORT_MAX)
            )
            for first, last, state, count in write.batches
        ],
    )
    return WriteShareGroupStateRequest(
        group_id=group_id, topics=[share_group_state.WriteStateData(topic_id=topic_id, partitions=[changed])]
    )


def error_of(partition: SharePartition, response: WriteShareGroupStateResponse) -> ErrorCode:
    """Return the error of a write as the member gets it, or NONE."""
    try:
        _raise(_only(partition, response.results).error_code)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _only(partition: SharePartition, results: Sequence[Any]) -> Any:
    """Return the only result of a response. Raises KafkaError if it is not for this share partition."""
    found: list[Any] = (
        results[0].partitions if len(results) == 1 and results[0].topic_id == partition.key.topic_id else []
    )
    if len(found) != 1 or found[0].partition != partition.key.partition:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator answered for another partition")
    return found[0]


def _raise(code: int) -> None:
    error = ErrorCode.of(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(_TO_MEMBERS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR))


# ---------------------------------------------------------------------- the share coordinators


class _Later(PendingAnswer[Any]):
    """Pending response to a request that a background task sends."""

    __slots__ = ("_response",)

    def complete(self, response: Any) -> None:
        self._response = response
        self.become_ready()

    def response(self) -> Any:
        return self._response

    def abandon(self) -> None:
        """Do nothing when the client disconnects, because the state must be stored all the same."""


class RoutedPersister:
    """Persister that sends requests to the coordinator of each share partition.

    `start` runs a function in the background.
    """

    def __init__(self, broker: BrokerParts, start: Background) -> None:
        self._broker, self._start = broker, start
        self._connections = PeerPool(broker, "share-state")

    def read(self, request: ReadShareGroupStateRequest) -> Given[ReadShareGroupStateResponse]:
        """Request the stored state of one share partition; return the response, or a pending response."""
        return self._send(_Read(request))

    def write(self, request: WriteShareGroupStateRequest) -> Given[WriteShareGroupStateResponse]:
        """Request a change of one share partition's stored state; return the response, or a pending response."""
        return self._send(_Write(request))

    def _send(self, operation: _Read | _Write) -> Given[Any]:
        later = _Later()
        # A coordinator on this broker usually answers at once, and no task has to be woken for it.
        if self._coordinator(operation) == self._broker.node_id:
            answer = operation.send_to(self._broker)
            if not isinstance(answer, PendingAnswer | Awaitable) and operation.error_of(answer) not in RETRIABLE:
                return answer
            self._start(partial(self._send_in_task, operation, later, answer))
        else:
            self._start(partial(self._send_in_task, operation, later, None))
        return later

    def _coordinator(self, operation: _Read | _Write) -> int | None:
        """Return the id of the broker that coordinates the share partition; None if there is none at present."""
        cluster = self._broker.cluster
        # Until the topic exists its partition count is unknown.
        if cluster.topics.get(SHARE_GROUP_STATE_TOPIC) is None:
            return None
        partition = cluster.partition(
            SHARE_GROUP_STATE_TOPIC, self._broker.share_coordinator.partition_for(operation.key)
        )
        return None if partition is None or partition.leader < 0 else partition.leader

    async def _send_in_task(self, operation: _Read | _Write, later: _Later, answer: Any) -> None:
        """Send the request until a final response arrives, which completes `later`.

        `answer`: response to an attempt that was made already; None: none was made.
        """
        try:
            later.complete(await self._answer(operation, answer))
        finally:
            # Also when the broker stops: no caller may wait for ever.
            if not later.is_ready:
                later.complete(operation.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def _answer(self, operation: _Read | _Write, answer: Any) -> Any:
        for wait_s in (*WAITS_S, None):
            try:
                response = await (self._try(operation) if answer is None else finished(answer))
            except PeerUnavailable:
                response = operation.refused(ErrorCode.NETWORK_EXCEPTION)
            except KafkaError as error:
                response = operation.refused(error.code)
            if wait_s is None or operation.error_of(response) not in RETRIABLE:
                return response
            answer = None
            await trio.sleep(wait_s)
        raise AssertionError("the last try has returned")

    async def _try(self, operation: _Read | _Write) -> Any:
        coordinator = self._coordinator(operation)
        if coordinator is None:
            await self._broker.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator == self._broker.node_id:
            return await finished(operation.send_to(self._broker))
        return await self._connections.ask(coordinator, operation.request, operation.version)


class _Read:
    """Request to read the state of one share partition."""

    version = READ_VERSION

    def __init__(self, request: ReadShareGroupStateRequest) -> None:
        self.request = request
        self.key = _key_of(request)

    def send_to(self, broker: BrokerParts) -> Any:
        return broker.share_coordinator.read(self.request, api_version=self.version)

    def refused(self, error: ErrorCode) -> ReadShareGroupStateResponse:
        result = share_group_state.ReadStatePartitionResult(
            partition=self.key.partition, error_code=error, state_epoch=0, start_offset=0, state_batches=[]
        )
        return ReadShareGroupStateResponse(
            results=[share_group_state.ReadStateResult(topic_id=self.key.topic_id, partitions=[result])]
        )

    def error_of(self, response: ReadShareGroupStateResponse) -> ErrorCode:
        return _error_of(response)


class _Write:
    """Request to write the state of one share partition."""

    version = WRITE_VERSION

    def __init__(self, request: WriteShareGroupStateRequest) -> None:
        self.request = request
        self.key = _key_of(request)

    def send_to(self, broker: BrokerParts) -> Any:
        return broker.share_coordinator.write(self.request, api_version=self.version)

    def refused(self, error: ErrorCode) -> WriteShareGroupStateResponse:
        result = share_group_state.StatePartitionResult(partition=self.key.partition, error_code=error)
        return WriteShareGroupStateResponse(
            results=[share_group_state.WriteStateResult(topic_id=self.key.topic_id, partitions=[result])]
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
