"""How transactions have ended is told to the leaders of their partitions, on virtual time: what is sent, again and no more."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock as Clock

from ottla.groupcoord.tests.steps import counted
from ottla.groupcoord.transactions.shard import MarkersOwed
from ottla.replication.cluster.metadata_cache import (
    TRANSACTION_STATE_TOPIC,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.coordinators import transaction_markers
from ottla.server.coordinators.transaction_markers import (
    PARTITIONS_AT_ONCE,
    PARTITIONS_PER_REQUEST,
    RETRY_MAX_S,
    RETRY_S,
    TransactionMarkers,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE, OTHER, THIRD = 0, 1, 2
NONE = ErrorCode.NONE

Telling = tuple[int, int, str, int]
"""A marker that arrived: at which broker, of which producer, for which partition."""


class FakeBroker:
    """Broker 0 of three, all of which write markers as the test says."""

    def __init__(self) -> None:
        self.node_id = HERE
        self.cluster = MetadataCache()
        self.coordinator_epoch: int | None = 5
        self.is_fenced = False
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        self.unreachable: set[int] = set()
        self.latency_s = 0.0
        self.told: list[Telling] = []
        self.requests: list[tuple[int, int, WriteTxnMarkersRequest]] = []
        self.under_way: dict[int, int] = {}
        self.hung_up: list[int] = []
        self.completed: list[str] = []
        self.completion = NONE
        self.knows_topics = trio.Event()
        self.knows_topics.set()
        self.config = SimpleNamespace(server=SimpleNamespace(request_timeout_ms=30_000))
        self.member = self
        self.transaction_version = 0
        self.transactions = self
        self.replicas = SimpleNamespace(partition=self.held_partition)
        for node_id in (HERE, OTHER, THIRD):
            self.add_broker(node_id)
        self.add_topic("t", HERE, OTHER, THIRD)
        self.markers = TransactionMarkers(self, self.write_here)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ the cluster

    def add_broker(self, node_id: int) -> None:
        endpoint = BrokerEndpoint(node_id, f"host{node_id}", 9092)
        self.cluster.put_broker(BrokerRegistration(node_id, {"INTERNAL": endpoint}))

    def remove_broker(self, node_id: int) -> None:
        left = [each for each in self.cluster.brokers.values() if each.node_id != node_id]
        self.cluster.put_brokers(left, controller_id=HERE)

    def add_topic(self, name: str, *leaders: int) -> None:
        partitions = tuple(PartitionState(leader, 0, (leader,), (leader,)) for leader in leaders)
        self.cluster.put_topic(TopicState(name, bytes(16), partitions))

    async def await_metadata(self) -> None:
        await self.knows_topics.wait()

    def partition(self, topic: str, index: int) -> Any:
        held = self.held_partition(topic, index)
        if held is None or self.is_fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return held

    def held_partition(self, topic: str, index: int) -> Any:
        assert topic == TRANSACTION_STATE_TOPIC
        return None if self.coordinator_epoch is None else SimpleNamespace(leader_epoch=self.coordinator_epoch)

    # ------------------------------------------------------------------ those who write

    def peer(self, node_id: int, *, purpose: str) -> Any:
        assert node_id != HERE and purpose == "broker-0-txn-marker-sender"
        return FakePeer(self, node_id)

    async def write_here(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return await self.write(HERE, request, 2)

    async def write(self, node_id: int, request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
        self.requests.append((node_id, version, request))
        self.under_way[node_id] = self.under_way.get(node_id, 0) + 1
        assert self.under_way[node_id] == 1, "two requests under way"
        await trio.sleep(self.latency_s)
        self.under_way[node_id] -= 1
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    self.told.append((node_id, marker.producer_id, topic.name, index))
                    code = self.codes.get((topic.name, index), NONE)
                    partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    # ------------------------------------------------------------------ the coordinator

    def complete(self, owed: MarkersOwed) -> ErrorCode:
        self.completed.append(owed.transactional_id)
        return self.completion

    # ------------------------------------------------------------------ the test

    async def start(self, nursery: trio.Nursery) -> None:
        self.markers.start_in(nursery)

    def end(self, name: str, *places: tuple[str, int], partition: int = 0, producer_id: int = 7) -> None:
        """A transaction is decided."""
        self.markers.send(partition, [MarkersOwed(name, producer_id, 3, True, frozenset(places), 2)])

    async def settled(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    async def pause(self) -> None:
        await trio.sleep(RETRY_S)
        await trio.testing.wait_all_tasks_blocked()


class FakePeer:
    def __init__(self, broker: FakeBroker, node_id: int) -> None:
        self.broker = broker
        self.node_id = node_id

    async def ask(self, request: WriteTxnMarkersRequest, version: int, *, timeout_s: float) -> Any:
        assert timeout_s == 30
        if self.node_id in self.broker.unreachable:
            await trio.lowlevel.checkpoint()
            raise PeerUnavailable
        return await self.broker.write(self.node_id, request, version)

    async def aclose(self) -> None:
        self.broker.hung_up.append(self.node_id)


@pytest.fixture
async def broker(nursery: trio.Nursery, autojump_clock: Clock) -> FakeBroker:
    broker = FakeBroker()
    await broker.start(nursery)
    return broker


@pytest.mark.parametrize(("level", "to_peers"), [(0, 1), (1, 1), (2, 2)])
async def test_each_leader_is_told_and_then_the_coordinator(
    broker: FakeBroker, autojump_clock: Clock, level: int, to_peers: int
) -> None:
    broker.transaction_version = level
    broker.end("tx", ("t", 0), ("t", 1), ("t", 2))
    assert not broker.completed, "nothing comes back before the append has ended"
    await broker.settled()
    assert sorted(broker.told) == [(HERE, 7, "t", 0), (OTHER, 7, "t", 1), (THIRD, 7, "t", 2)]
    assert broker.completed == ["tx"] and len(broker.markers) == 0
    for _, version, request in broker.requests:
        assert version in (1, 2)
        (marker,) = request.markers
        assert (marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch) == (3, True, 5)
        assert marker.transaction_version == 2
    assert [version for node_id, version, _ in broker.requests if node_id == HERE] == [2]
    assert {version for node_id, version, _ in broker.requests if node_id != HERE} == {to_peers}


async def test_a_transaction_without_partitions_is_complete(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.end("tx")
    assert not broker.completed, "nothing comes back before the append has ended"
    await broker.settled()
    assert broker.completed == ["tx"] and not broker.requests


async def test_a_leader_gets_the_markers_of_many_in_one_request(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.latency_s = 1
    for number in range(5):
        broker.end(f"tx{number}", ("t", 1), producer_id=number)
    await trio.sleep(3)
    sizes = [len(request.markers) for _, _, request in broker.requests]
    assert sum(sizes) == 5 and len(sizes) <= 2
    assert sorted(broker.completed) == [f"tx{number}" for number in range(5)]


async def test_a_request_has_a_limit(
    broker: FakeBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_markers, "PARTITIONS_PER_REQUEST", 3)
    assert PARTITIONS_PER_REQUEST > 3
    broker.add_topic("big", *[OTHER] * 2)
    for number in range(6):
        broker.end(f"tx{number}", ("big", 0), ("big", 1), producer_id=number)
    await broker.settled()
    assert max(len(request.markers) for _, _, request in broker.requests) == 2
    assert len(broker.completed) == 6


RETRIABLE = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


@pytest.mark.parametrize("code", RETRIABLE)
@pytest.mark.parametrize("leader", [HERE, OTHER])
async def test_only_what_failed_is_tried_again(
    broker: FakeBroker, autojump_clock: Clock, code: ErrorCode, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker.codes["t", leader] = code
    broker.end("tx", ("t", leader), ("t", THIRD))
    await broker.settled()
    for _ in range(3):
        await broker.pause()
    assert not broker.completed and len(broker.markers) == 1
    del broker.codes["t", leader]
    await broker.pause()
    assert broker.completed == ["tx"] and len(broker.markers) == 0
    assert broker.told.count((THIRD, 7, "t", THIRD)) == 1 and broker.told.count((leader, 7, "t", leader)) == 5
    assert not caplog.records


async def test_an_error_that_nobody_expects_is_logged_once_and_tried_again(
    broker: FakeBroker, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broker.codes["t", 1] = ErrorCode.MESSAGE_TOO_LARGE
    broker.end("tx", ("t", 1))
    for _ in range(3):
        await broker.pause()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["The marker of tx for t-1 was refused: MESSAGE_TOO_LARGE"]
    broker.codes.clear()
    await broker.pause()
    assert broker.completed == ["tx"]


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_log_that_is_too_old_for_markers_needs_none(
    broker: FakeBroker, autojump_clock: Clock, code: ErrorCode
) -> None:
    broker.codes["t", 1] = code
    broker.end("tx", ("t", 1))
    await broker.settled()
    assert broker.completed == ["tx"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
async def test_who_is_outdated_gives_up(broker: FakeBroker, autojump_clock: Clock, code: ErrorCode) -> None:
    broker.codes["t", 1] = code
    broker.codes["same", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.add_topic("same", OTHER)
    broker.end("tx", ("t", 0), ("t", 1), ("same", 0))
    await broker.settled()
    asked = len(broker.told)
    await trio.sleep(10)
    assert len(broker.told) == asked and not broker.completed and len(broker.markers) == 0


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
async def test_other_leaders_are_told_until_they_know_though_one_is_ahead(
    broker: FakeBroker, autojump_clock: Clock, code: ErrorCode
) -> None:
    broker.codes["t", 1] = code
    broker.codes["t", 2] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.end("tx", ("t", 0), ("t", 1), ("t", 2))
    await broker.pause()
    assert broker.told.count((THIRD, 7, "t", 2)) == 2 and len(broker.markers) == 1
    del broker.codes["t", 2]
    await broker.pause()
    await trio.sleep(10)
    assert broker.told.count((THIRD, 7, "t", 2)) == 3 and broker.told.count((OTHER, 7, "t", 1)) == 1
    assert not broker.completed and len(broker.markers) == 0


async def test_a_job_that_was_given_up_ends_with_its_partition(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.codes["t", 1] = ErrorCode.INVALID_PRODUCER_EPOCH
    broker.codes["t", 2] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.end("tx", ("t", 1), ("t", 2))
    await broker.settled()
    broker.markers.forget(0)
    asked = len(broker.told)
    await trio.sleep(10)
    assert len(broker.told) == asked and not broker.completed


async def test_markers_follow_the_leader(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.codes["t", 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.end("tx", ("t", 1))
    await broker.settled()
    broker.codes.clear()
    broker.add_topic("t", HERE, THIRD, THIRD)
    await broker.pause()
    assert broker.told == [(OTHER, 7, "t", 1), (THIRD, 7, "t", 1)] and broker.completed == ["tx"]


async def test_a_broker_that_does_not_answer_is_asked_again_on_a_new_way(
    broker: FakeBroker, autojump_clock: Clock
) -> None:
    broker.unreachable.add(OTHER)
    broker.end("tx", ("t", 1), ("t", 2))
    for _ in range(3):
        await broker.pause()
    assert not broker.completed and len(broker.hung_up) >= 3
    broker.unreachable.clear()
    await broker.pause()
    assert broker.completed == ["tx"]


@pytest.mark.parametrize("is_dead", [True, False])
async def test_a_partition_without_a_leader_is_waited_for(
    broker: FakeBroker, autojump_clock: Clock, is_dead: bool
) -> None:
    if is_dead:
        broker.remove_broker(OTHER)
    else:
        broker.add_topic("t", HERE, -1, THIRD)
    broker.end("tx", ("t", 0), ("t", 1))
    for _ in range(3):
        await broker.pause()
    assert broker.told == [(HERE, 7, "t", 0)] and not broker.completed
    broker.add_topic("t", HERE, THIRD, THIRD)
    await broker.pause()
    assert broker.told[1:] == [(THIRD, 7, "t", 1)] and broker.completed == ["tx"]


async def test_partitions_that_are_gone_need_no_marker(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.end("tx", ("t", 1), ("t", 9), ("nowhere", 0))
    broker.end("gone", ("nowhere", 0), producer_id=8)
    await broker.settled()
    assert broker.told == [(OTHER, 7, "t", 1)] and sorted(broker.completed) == ["gone", "tx"]


async def test_very_many_partitions_are_put_into_queues_some_at_a_time(
    broker: FakeBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.wire.time_slice.SLICE_S", 0)
    count = 4 * PARTITIONS_AT_ONCE
    broker.add_topic("many", *[HERE, OTHER] * (count // 2))
    places = [("many", index) for index in range(count)] + [("gone", index) for index in range(count)]
    await broker.settled()
    with counted((MetadataCache, "partition")) as steps, caplog.at_level("INFO"):
        broker.end("tx", *places)
        assert not steps.all  # this is called in the middle of an append
        await broker.settled()
    assert steps.all["partition"] == 2 * count and steps.most["partition"] <= PARTITIONS_AT_ONCE
    assert sorted(index for *_, index in broker.told) == list(range(count)) and broker.completed == ["tx"]
    assert (
        max(len(marker.topics[0].partition_indexes) for *_, request in broker.requests for marker in request.markers)
        <= PARTITIONS_AT_ONCE
    )
    assert 1 <= len([each for each in caplog.records if "gone" in each.getMessage()]) <= 2 * count // PARTITIONS_AT_ONCE


async def test_very_many_partitions_without_a_leader_are_looked_at_less_often(
    broker: FakeBroker, autojump_clock: Clock
) -> None:
    count = 3 * PARTITIONS_PER_REQUEST
    broker.add_topic("many", *[-1] * count)
    with counted((MetadataCache, "partition")) as steps:
        broker.end("tx", *[("many", index) for index in range(count)])
        await trio.sleep(RETRY_S * 3.5)
        assert steps.all["partition"] == count
        await trio.sleep(RETRY_S)
        assert steps.all["partition"] == 2 * count
    broker.add_topic("many", *[OTHER] * count)
    await trio.sleep(RETRY_S + RETRY_MAX_S)
    assert broker.completed == ["tx"]


async def test_a_topic_that_is_deleted_meanwhile_is_waited_for_no_more(
    broker: FakeBroker, autojump_clock: Clock
) -> None:
    broker.codes["t", 1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.end("tx", ("t", 1))
    await broker.pause()
    broker.cluster.remove_topic("t")
    await broker.pause()
    assert broker.completed == ["tx"]


async def test_nothing_is_taken_for_gone_before_the_topics_are_known(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = FakeBroker()
    broker.knows_topics = trio.Event()
    broker.cluster.remove_topic("t")
    await broker.start(nursery)
    broker.end("tx", ("t", 1))
    await trio.sleep(10)
    assert not broker.completed
    broker.add_topic("t", HERE, OTHER, THIRD)
    broker.knows_topics.set()
    await broker.settled()
    assert broker.told == [(OTHER, 7, "t", 1)] and broker.completed == ["tx"]


async def test_a_partition_that_is_lost_takes_its_transactions_with_it(
    broker: FakeBroker, autojump_clock: Clock
) -> None:
    broker.codes["t", 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.end("lost", ("t", 1), partition=0)
    broker.end("kept", ("t", 1), partition=1, producer_id=8)
    await broker.settled()
    broker.markers.forget(0)
    assert len(broker.markers) == 1
    broker.codes.clear()
    await broker.pause()
    assert broker.completed == ["kept"] and broker.told.count((OTHER, 7, "t", 1)) == 1


async def test_an_answer_that_comes_after_the_loss_completes_nothing(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.latency_s = 1
    broker.end("tx", ("t", 1))
    await trio.sleep(0.5)
    broker.markers.forget(0)
    await trio.sleep(1)
    assert broker.told and not broker.completed


async def test_what_is_owed_once_more_replaces_what_is_under_way(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.latency_s = 1
    broker.end("tx", ("t", 1))
    await trio.sleep(0.5)
    broker.coordinator_epoch = 6
    broker.end("tx", ("t", 1))
    await trio.sleep(3)
    assert broker.completed == ["tx"] and len(broker.markers) == 0
    assert [request.markers[0].coordinator_epoch for _, _, request in broker.requests] == [5, 6]


async def test_who_does_not_lead_any_more_tells_nobody(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.coordinator_epoch = None
    broker.end("tx", ("t", 1))
    await broker.settled()
    assert not broker.told and len(broker.markers) == 0


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
async def test_a_completion_that_the_log_or_a_fenced_broker_refuses_is_tried_again(
    broker: FakeBroker, autojump_clock: Clock, code: ErrorCode
) -> None:
    broker.completion = code
    broker.end("tx", ("t", 1))
    for _ in range(3):
        await broker.pause()
    assert len(broker.completed) >= 3 and len(broker.markers) == 1
    broker.completion = NONE
    await broker.pause()
    tries = len(broker.completed)
    await broker.pause()
    assert len(broker.completed) == tries and len(broker.markers) == 0 and len(broker.told) == 1


async def test_markers_are_sent_though_the_broker_is_cut_off_for_a_moment(
    broker: FakeBroker, autojump_clock: Clock
) -> None:
    broker.is_fenced = True
    broker.end("tx", ("t", 1))
    await broker.settled()
    # Its leaderships survive that, so nobody hands these markers out again.
    broker.is_fenced = False
    await broker.pause()
    assert broker.told == [(OTHER, 7, "t", 1)] and broker.completed == ["tx"]
    assert broker.requests[0][2].markers[0].coordinator_epoch == 5


async def test_a_completion_by_somebody_else_ends_the_job(broker: FakeBroker, autojump_clock: Clock) -> None:
    broker.completion = ErrorCode.INVALID_TXN_STATE
    broker.end("tx", ("t", 1))
    await broker.pause()
    assert broker.completed == ["tx"] and len(broker.markers) == 0


async def test_an_answer_without_a_result_is_no_success(
    broker: FakeBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., Any] = broker.write

    async def nothing(*arguments: Any) -> WriteTxnMarkersResponse:
        await trio.lowlevel.checkpoint()
        return WriteTxnMarkersResponse(markers=[])

    monkeypatch.setattr(broker, "write", nothing)
    broker.end("tx", ("t", 1))
    await broker.pause()
    assert not broker.completed
    monkeypatch.setattr(broker, "write", whole)
    await broker.pause()
    assert broker.completed == ["tx"]


async def test_a_bug_does_not_end_the_markers_of_others(
    broker: FakeBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole: Callable[..., Any] = broker.write

    async def broken(*arguments: Any) -> WriteTxnMarkersResponse:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    monkeypatch.setattr(broker, "write", broken)
    broker.end("tx", ("t", 0))
    await broker.pause()
    assert "bug: markers for broker 0" in caplog.text
    monkeypatch.setattr(broker, "write", whole)
    broker.end("other", ("t", 0), producer_id=8)
    await broker.pause()
    assert sorted(broker.completed) == ["other", "tx"]
