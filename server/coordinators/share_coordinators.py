"""Requests of share groups to other brokers: to share coordinators, and to leaders about the ends of their partitions.

A request about many share partitions is split by their coordinators, and the answers are put together again. One may be this
broker. Coordinators that are not there (they move, they load, their topic is being made) are asked again a few times. What
is left unanswered then has the error of the last try, so that every partition has an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.coordinator.state_requests import DeleteState, InitializeState, ReadSummary
from ottla.groupcoord.share.offset_service import EndOffset, TopicPartition
from ottla.replication.cluster.metadata_cache import NO_LEADER, SHARE_GROUP_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.time_search import TimestampedOffset
from ottla.replication.partition.reading import LATEST_TIMESTAMP
from ottla.server.ports import BrokerParts
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateData,
    DeleteStateResult,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStateResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
    ReadStateSummaryResult,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.replication.cluster.peers import Peer
    from ottla.wire.messages.list_offsets import ListOffsetsResponse
    from ottla.wire.schema import Message

TIMEOUT_S = 30.0


class PeerPool:
    """Connections to other brokers, opened for one purpose and kept for later requests."""

    def __init__(self, broker: BrokerParts, purpose: str) -> None:
        self._broker, self._purpose = broker, purpose
        self._peers: dict[int, tuple[BrokerEndpoint | None, Peer]] = {}

    async def ask(self, broker_id: int, request: Message, version: int) -> Any:
        """Send a request to another broker, without retries. Raises PeerUnavailable."""
        return await (await self._peer(broker_id)).ask(request, version, timeout_s=TIMEOUT_S)

    async def _peer(self, broker_id: int) -> Peer:
        endpoint = self._broker.cluster.endpoint(broker_id, self._broker.config.inter_broker_listener_name)
        known = self._peers.get(broker_id)
        if known is not None and known[0] == endpoint:
            return known[1]
        peer = self._broker.member.peer(broker_id, purpose=f"broker-{self._broker.node_id}-{self._purpose}")
        self._peers[broker_id] = endpoint, peer
        # Closed last: others who ask meanwhile share the new one.
        if known is not None:
            await known[1].aclose()
        return peer


LIST_OFFSETS_VERSION = 7  # Kafka 3.9 knows it
CONSUMER = -1
READ_UNCOMMITTED = 0
NO_OFFSET = -1


class LeadersEndOffsets:
    """Reader of partitions' end offsets, which it requests from their leaders."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._connections = PeerPool(broker, "end-offsets")

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        """Return the high watermarks of partitions, or an error for each partition whose high watermark is unknown."""
        time_slice = TimeSlice()
        found: dict[TopicPartition, EndOffset] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            known = self._broker.cluster.partition(topic, index)
            leader = NO_LEADER if known is None else known.leader
            if leader == self._broker.node_id:
                found[topic, index] = self._here(topic, index)
            elif leader == NO_LEADER:
                found[topic, index] = EndOffset(NO_OFFSET, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                elsewhere.setdefault(leader, []).append((topic, index))
            await time_slice.yield_if_over()
        async with trio.open_nursery() as nursery:
            for leader, asked in elsewhere.items():
                nursery.start_soon(self._ask, leader, asked, found)
        return found

    def _here(self, topic: str, index: int) -> EndOffset:
        try:
            end = self._broker.partition(topic, index).list_offset(LATEST_TIMESTAMP)
        except KafkaError as error:
            return EndOffset(NO_OFFSET, error.code)
        assert isinstance(end, TimestampedOffset)  # the end needs no search
        return EndOffset(end.offset)

    async def _ask(
        self, leader: int, asked: Collection[TopicPartition], found: dict[TopicPartition, EndOffset]
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in asked:
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP))
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        try:
            response: ListOffsetsResponse = await self._connections.ask(leader, request, LIST_OFFSETS_VERSION)
        except PeerUnavailable:
            found |= dict.fromkeys(asked, EndOffset(NO_OFFSET, ErrorCode.NETWORK_EXCEPTION))
            return
        for answered in response.topics:
            for each in answered.partitions:
                error = ErrorCode.of(each.error_code)
                found[answered.name, each.partition_index] = EndOffset(each.offset, error)


WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Between tries."""
PARTITIONS_PER_REQUEST = 1_000
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class Api(NamedTuple):
    """Message classes and functions of a share state API, to split requests by coordinator and merge responses."""

    request: type[Any]
    data: type[Any]
    result: type[Any]
    response: type[Any]
    version: int
    here: Callable[[BrokerParts, Any], Any]
    """Asks the coordinator on this broker."""
    refused: Callable[[SharePartitionKey, ErrorCode], Any]


INITIALIZE = Api(
    InitializeShareGroupStateRequest,
    InitializeStateData,
    InitializeStateResult,
    InitializeShareGroupStateResponse,
    0,
    lambda broker, request: broker.share_coordinator.initialize(request, api_version=0),
    lambda key, error: InitializeState(key, 0, 0).refused(error),
)
DELETE = Api(
    DeleteShareGroupStateRequest,
    DeleteStateData,
    DeleteStateResult,
    DeleteShareGroupStateResponse,
    0,
    lambda broker, request: broker.share_coordinator.delete(request, api_version=0),
    lambda key, error: DeleteState(key).refused(error),
)
READ_SUMMARY = Api(
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
    ReadStateSummaryResult,
    ReadShareGroupStateSummaryResponse,
    1,
    lambda broker, request: broker.share_coordinator.read_summary(request, api_version=1),
    lambda key, error: ReadSummary(key).refused(error),
)

Asked = tuple[SharePartitionKey, Any]
"""A share partition, and what is asked of it."""


class ShareCoordinators:
    """The group coordinator's client of the cluster's share coordinators."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._connections = PeerPool(broker, "share-state-sender")

    async def initialize(self, request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse:
        response: InitializeShareGroupStateResponse = await self._answer(INITIALIZE, request)
        return response

    async def delete(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
        response: DeleteShareGroupStateResponse = await self._answer(DELETE, request)
        return response

    async def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> ReadShareGroupStateSummaryResponse:
        response: ReadShareGroupStateSummaryResponse = await self._answer(READ_SUMMARY, request)
        return response

    async def _answer(self, api: Api, request: Any) -> Any:
        left = dict(_split(request))
        results: dict[SharePartitionKey, Any] = {}
        for wait_s in (*WAITS_S, None):
            found = await self._try(api, left)
            for key in list(left):
                result = found.get(key) or api.refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                results[key] = result
                if ErrorCode.of(result.error_code) not in RETRIABLE:
                    del left[key]
            if not left or wait_s is None:
                break
            await trio.sleep(wait_s)
        # In the order of the request, not of the answers.
        return api.response(results=_by_topic(api.result, [(key, results[key]) for key, _ in _split(request)]))

    async def _try(self, api: Api, asked: Mapping[SharePartitionKey, Any]) -> dict[SharePartitionKey, Any]:
        await self._ensure_topic()
        results: dict[SharePartitionKey, Any] = {}
        async with trio.open_nursery() as nursery:
            for broker_id, part in (await self._by_coordinator(asked)).items():
                if broker_id != NO_LEADER:
                    nursery.start_soon(self._ask_all, api, broker_id, part, results)
        return results

    async def _ensure_topic(self) -> None:
        # Before the topic exists its number of partitions is unknown.
        if self._broker.cluster.topics.get(SHARE_GROUP_STATE_TOPIC) is None:
            try:
                await self._broker.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
            except KafkaError:
                return  # it is tried again

    async def _by_coordinator(self, asked: Mapping[SharePartitionKey, Any]) -> dict[int, list[Asked]]:
        time_slice = TimeSlice()
        found: dict[int, list[Asked]] = {}
        for key, data in asked.items():
            index = self._broker.share_coordinator.partition_for(key)
            partition = self._broker.cluster.partition(SHARE_GROUP_STATE_TOPIC, index)
            found.setdefault(NO_LEADER if partition is None else partition.leader, []).append((key, data))
            await time_slice.yield_if_over()
        return found

    async def _ask_all(
        self, api: Api, broker_id: int, asked: list[Asked], results: dict[SharePartitionKey, Any]
    ) -> None:
        for start in range(0, len(asked), PARTITIONS_PER_REQUEST):
            part = asked[start : start + PARTITIONS_PER_REQUEST]
            results.update(await self._ask(api, broker_id, part))

    async def _ask(self, api: Api, broker_id: int, asked: list[Asked]) -> Iterable[tuple[SharePartitionKey, Any]]:
        group_id = asked[0][0].group_id
        request = api.request(group_id=group_id, topics=_by_topic(api.data, asked))
        try:
            if broker_id == self._broker.node_id:
                response = await finished(api.here(self._broker, request))
            else:
                response = await self._connections.ask(broker_id, request, api.version)
        except PeerUnavailable:
            return [(key, api.refused(key, ErrorCode.NETWORK_EXCEPTION)) for key, _ in asked]
        return [
            (SharePartitionKey(group_id, result.topic_id, each.partition), each)
            for result in response.results
            for each in result.partitions
        ]


def _split(request: Any) -> Iterator[Asked]:
    for topic in request.topics:
        for data in topic.partitions:
            yield SharePartitionKey(request.group_id, topic.topic_id, data.partition), data


def _by_topic(make: type[Any], parts: Iterable[tuple[SharePartitionKey, Any]]) -> list[Any]:
    topics: dict[bytes, list[Any]] = {}
    for key, part in parts:
        topics.setdefault(key.topic_id, []).append(part)
    return [make(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
