"""The ways to share coordinators and to the ends of partitions, where these are on several brokers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.coordinator.state_requests import DeleteState, InitializeState, ReadSummary
from ottla.groupcoord.share.offset_service import EndOffset
from ottla.replication.cluster.metadata_cache import SHARE_GROUP_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.time_search import TimestampedOffset
from ottla.server.coordinators.share_coordinators import WAITS_S, LeadersEndOffsets, ShareCoordinators
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStatePartition,
    InitializeStateResult,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ottla.wire.messages.share_group_state import DeleteStatePartition as Deleted
from ottla.wire.messages.share_group_state import ReadStatePartition as Summarized

TOPIC_ID = b"t" * 16
HERE, ELSEWHERE, NOBODY = 1, 2, -1


class Brokers:
    """Broker 1, with whose eyes we see, and others that answer as `answer` says."""

    def __init__(self) -> None:
        self.node_id = HERE
        self.config = SimpleNamespace(inter_broker_listener_name="PLAINTEXT")
        self.leaders = [HERE, ELSEWHERE, ELSEWHERE]
        self.topics = {SHARE_GROUP_STATE_TOPIC: "there"}
        self.refusals = 0
        """Number of answers of each coordinator that it is not available yet."""
        self.asked: list[tuple[int, Any]] = []
        self.unavailable = 0
        self.moved = 0
        self.closed = 0
        self.cluster = SimpleNamespace(
            topics=self.topics,
            partition=lambda topic, index: SimpleNamespace(leader=self.leaders[index]),
            endpoint=lambda broker_id, listener: (broker_id, self.moved),
        )
        self.share_coordinator = SimpleNamespace(
            partition_for=lambda key: key.partition % 3,
            initialize=lambda request, api_version: self._answer(HERE, request),
            delete=lambda request, api_version: self._answer(HERE, request),
            read_summary=lambda request, api_version: self._answer(HERE, request),
        )
        self.member = SimpleNamespace(peer=lambda broker_id, purpose: self._peer(broker_id))

    async def ensure_internal_topic(self, name: str) -> None:
        assert name == SHARE_GROUP_STATE_TOPIC
        if self.refusals:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
        self.topics[name] = "there"

    def partition(self, topic: str, index: int) -> Any:
        if index == 9:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(list_offset=lambda timestamp: TimestampedOffset(-1, 100 + index, 0))

    def _peer(self, broker_id: int) -> Any:
        async def ask(request: Any, version: int, *, timeout_s: float) -> Any:
            await trio.sleep(0.1)
            if self.unavailable:
                self.unavailable -= 1
                raise PeerUnavailable("gone")
            return self._answer(broker_id, request)

        async def aclose() -> None:
            self.closed += 1

        return SimpleNamespace(ask=ask, aclose=aclose)

    def _answer(self, broker_id: int, request: Any) -> Any:
        self.asked.append((broker_id, request))
        if isinstance(request, ListOffsetsRequest):
            return _ends(request)
        error = ErrorCode.NOT_COORDINATOR if self.refusals else ErrorCode.NONE
        self.refusals = max(0, self.refusals - 1)
        make: dict[type, Callable[[SharePartitionKey], Any]] = {
            InitializeShareGroupStateRequest: lambda key: InitializeState(key, 0, 0),
            DeleteShareGroupStateRequest: DeleteState,
            ReadShareGroupStateSummaryRequest: ReadSummary,
        }
        results = [
            InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    make[type(request)](SharePartitionKey("g", topic.topic_id, each.partition)).refused(error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return InitializeShareGroupStateResponse(results=results)

    def ways(self) -> ShareCoordinators:
        return ShareCoordinators(cast("Any", self))

    def ends(self) -> LeadersEndOffsets:
        return LeadersEndOffsets(cast("Any", self))

    def partitions_asked(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for broker_id, request in self.asked:
            found.setdefault(broker_id, []).extend(each.partition for each in request.topics[0].partitions)
        return found


def _ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(
                    partition_index=each.partition_index, error_code=0, timestamp=-1, offset=7, leader_epoch=0
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def initialization(*partitions: int) -> InitializeShareGroupStateRequest:
    data = [InitializeStatePartition(partition=each, state_epoch=1, start_offset=0) for each in partitions]
    return InitializeShareGroupStateRequest(
        group_id="g", topics=[InitializeStateData(topic_id=TOPIC_ID, partitions=data)]
    )


def errors(response: Any) -> list[tuple[int, int]]:
    return [(each.partition, each.error_code) for result in response.results for each in result.partitions]


async def test_each_coordinator_is_asked_for_its_own(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    response = await brokers.ways().initialize(initialization(4, 0, 2, 1))
    assert errors(response) == [(4, 0), (0, 0), (2, 0), (1, 0)]
    assert brokers.partitions_asked() == {HERE: [0], ELSEWHERE: [4, 2, 1]}


async def test_every_kind_of_request_finds_its_way(autojump_clock: MockClock) -> None:
    ways = Brokers().ways()
    deleted = [DeleteStateData(topic_id=TOPIC_ID, partitions=[Deleted(partition=each) for each in range(3)])]
    assert errors(await ways.delete(DeleteShareGroupStateRequest(group_id="g", topics=deleted))) == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]
    asked = [Summarized(partition=each, leader_epoch=0) for each in range(3)]
    summarized = [ReadStateSummaryData(topic_id=TOPIC_ID, partitions=asked)]
    response = await ways.read_summary(ReadShareGroupStateSummaryRequest(group_id="g", topics=summarized))
    assert errors(response) == [(0, 0), (1, 0), (2, 0)]


async def test_a_coordinator_that_is_not_there_yet_is_asked_again(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    brokers.refusals = 2
    assert errors(await brokers.ways().initialize(initialization(0))) == [(0, 0)]
    assert len(brokers.asked) == 3


async def test_a_broker_that_cannot_be_reached_is_asked_again(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    brokers.unavailable = 1
    assert errors(await brokers.ways().initialize(initialization(0, 1))) == [(0, 0), (1, 0)]
    assert brokers.partitions_asked() == {HERE: [0], ELSEWHERE: [1]}, "who has answered is not asked again"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"leaders": [NOBODY] * 3}, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ({"refusals": 1000}, ErrorCode.NOT_COORDINATOR),
        ({"unavailable": 1000, "leaders": [ELSEWHERE] * 3}, ErrorCode.NETWORK_EXCEPTION),
        ({"refusals": 1000, "topics": {}}, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_what_never_comes_is_an_error_in_the_end(
    autojump_clock: MockClock, change: dict[str, Any], error: ErrorCode
) -> None:
    brokers = Brokers()
    for name, value in change.items():
        setattr(brokers, name, value)
    brokers.cluster.topics = brokers.topics
    began = trio.current_time()
    assert errors(await brokers.ways().initialize(initialization(0))) == [(0, error)]
    assert trio.current_time() - began >= sum(WAITS_S)


async def test_the_topic_is_made_by_the_first_request(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    brokers.topics.clear()
    assert errors(await brokers.ways().initialize(initialization(0))) == [(0, 0)]
    assert brokers.topics


async def test_a_broker_that_has_moved_is_found_again(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    ways = brokers.ways()
    await ways.initialize(initialization(1))
    await ways.initialize(initialization(1))
    assert brokers.closed == 0
    brokers.moved = 1
    assert errors(await ways.initialize(initialization(1))) == [(1, 0)]
    assert brokers.closed == 1


async def test_the_ends_of_partitions_are_asked_of_their_leaders(autojump_clock: MockClock) -> None:
    brokers = Brokers()
    brokers.leaders = [HERE, ELSEWHERE, NOBODY, *[HERE] * 7]
    found = await brokers.ends().end_offsets([("t", 0), ("t", 1), ("t", 2), ("t", 9)])
    assert found == {
        ("t", 0): EndOffset(100),
        ("t", 1): EndOffset(7),
        ("t", 2): EndOffset(-1, ErrorCode.LEADER_NOT_AVAILABLE),
        ("t", 9): EndOffset(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    brokers.unavailable = 1
    assert await brokers.ends().end_offsets([("t", 1)]) == {("t", 1): EndOffset(-1, ErrorCode.NETWORK_EXCEPTION)}
