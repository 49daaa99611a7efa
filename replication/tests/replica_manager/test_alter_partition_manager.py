"""Who joins and leaves the in-sync replicas, and what becomes of a proposal after each answer of a controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.config import ReplicationConfig
from ottla.replication.log.tests.logs import NOW_MS, batch, new_log
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.alter_partition_manager import AlterPartitionManager, PartitionResponse
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import AlterPartitionRequest, AlterPartitionResponse

LAG_MS = 1000
BROKER_EPOCHS = {1: 101, 2: 102, 3: 103}

TopicResponse = AlterPartitionResponse.TopicData
Answer = PartitionResponse | None
Judge = Callable[[AlterPartitionRequest], AlterPartitionResponse | Exception]


class Controller:
    """Answers what the test says, in order, and then agrees; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.answers: list[Judge] = []
        self.gate = trio.Event()
        self.gate.set()

    async def ask(self, request: AlterPartitionRequest, version: int, *, timeout_s: float) -> AlterPartitionResponse:
        assert version == 3
        assert timeout_s > 0
        self.asked.append(request)
        await self.gate.wait()
        judge = self.answers.pop(0) if self.answers else agree
        answer = judge(request)
        if isinstance(answer, Exception):
            raise answer
        return answer


def respond(request: AlterPartitionRequest, answer: Callable[..., Answer]) -> AlterPartitionResponse:
    response = AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=[])
    for topic in request.topics:
        answers = [answer(each) for each in topic.partitions]
        told = [each for each in answers if each is not None]
        response.topics.append(TopicResponse(topic_id=topic.topic_id, partitions=told))
    return response


def agree(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return respond(
        request,
        lambda asked: PartitionResponse(
            partition_index=asked.partition_index,
            error_code=0,
            leader_id=1,
            leader_epoch=asked.leader_epoch,
            isr=[each.broker_id for each in asked.new_isr_with_epochs],
            partition_epoch=asked.partition_epoch + 1,
        ),
    )


def refuse(code: ErrorCode) -> Judge:
    return lambda request: respond(
        request,
        lambda asked: PartitionResponse(
            partition_index=asked.partition_index,
            error_code=code,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        ),
    )


def fail(code: ErrorCode) -> Judge:
    return lambda request: AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])


class Leader:
    """Broker 1, which leads one or more partitions of brokers 1, 2 and 3."""

    def __init__(self, *, isr: tuple[int, ...] = (1,), count: int = 1) -> None:
        self.controller = Controller()
        self.is_fenced = False
        self.now_ms = NOW_MS
        self.partitions = [led(index, isr) for index in range(count)]
        self.changes = AlterPartitionManager(
            1,
            partitions=lambda: self.partitions,
            ask_controller=self.controller.ask,
            broker_epoch=lambda: BROKER_EPOCHS[1],
            is_fenced=lambda: self.is_fenced,
            config=lambda: ReplicationConfig(replica_lag_time_max_ms=LAG_MS),
            clock_ms=lambda: self.now_ms + round(trio.current_time() * 1000),
        )

    @property
    def partition(self) -> Partition:
        return self.partitions[0]

    def fetched(self, broker: int, offset: int, index: int = 0) -> None:
        partition = self.partitions[index]
        now_ms = self.now_ms + round(trio.current_time() * 1000)
        partition.on_follower_fetch(broker, offset, 0, broker_epoch=BROKER_EPOCHS[broker], now_ms=now_ms)
        self.changes.on_follower_fetch(partition, broker)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.changes.run)
            yield
            nursery.cancel_scope.cancel()


def led(index: int, isr: tuple[int, ...]) -> Partition:
    log = new_log()
    partition = Partition("t", index, log, local_id=1, lag_ms=LAG_MS)
    partition.make_leader(leader_epoch=5, partition_epoch=8, replicas=(1, 2, 3), isr=isr, now_ms=NOW_MS)
    partition.append_as_leader(batch(*[NOW_MS] * 3), required_acks=1, now_ms=NOW_MS)
    return partition


def proposal_of(partition: Partition) -> tuple[int, ...] | None:
    assert partition.followers is not None
    return partition.followers.proposed


async def asked_times(leader: Leader, count: int) -> None:
    while len(leader.controller.asked) < count:
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.01)


async def test_who_caught_up_joins_with_all_epochs(autojump_clock: MockClock) -> None:
    leader = Leader()
    async with leader.running():
        leader.fetched(2, 2)
        await trio.testing.wait_all_tasks_blocked()
        assert leader.controller.asked == [], "it does not hold everything"
        leader.fetched(2, 3)
        await trio.testing.wait_all_tasks_blocked()
    (asked,) = leader.controller.asked
    assert (asked.broker_id, asked.broker_epoch) == (1, 101)
    (topic,) = asked.topics
    assert topic.topic_id == leader.partition.topic_id
    (wish,) = topic.partitions
    assert (wish.partition_index, wish.leader_epoch, wish.partition_epoch, wish.leader_recovery_state) == (0, 5, 8, 0)
    assert [(each.broker_id, each.broker_epoch) for each in wish.new_isr_with_epochs] == [(1, 101), (2, 102)]
    assert (leader.partition.isr, leader.partition.partition_epoch) == ((1, 2), 9)
    assert (leader.changes.expanded, leader.changes.shrunk, leader.changes.failed) == (1, 0, 0)


async def test_who_fell_behind_leaves(autojump_clock: MockClock) -> None:
    leader = Leader(isr=(1, 2, 3))
    async with leader.running():
        leader.fetched(2, 3)
        await trio.sleep(LAG_MS / 1000 + 0.01)
        assert leader.controller.asked == [], "it had time until now"
        leader.fetched(2, 3)
        await trio.sleep(LAG_MS / 2000)
        assert leader.partition.isr == (1, 2)
    (wish,) = leader.controller.asked[0].topics[0].partitions
    assert [(each.broker_id, each.broker_epoch) for each in wish.new_isr_with_epochs] == [(1, 101), (2, 102)]
    assert leader.partition.high_watermark == 3
    assert (leader.changes.expanded, leader.changes.shrunk, leader.changes.failed) == (0, 1, 0)


async def test_a_fenced_leader_lets_nobody_leave_and_does_not_count_that_time(autojump_clock: MockClock) -> None:
    """It refuses its followers' fetches. After an outage of ZooKeeper it must not be alone in sync."""
    leader = Leader(isr=(1, 2, 3))
    async with leader.running():
        leader.fetched(2, 3)
        leader.is_fenced = True
        await trio.sleep(10 * LAG_MS / 1000)
        leader.is_fenced = False
        await trio.sleep(0.6 * LAG_MS / 1000)
        assert leader.controller.asked == []
        leader.fetched(2, 3)
        await trio.sleep(LAG_MS / 1000)
        assert leader.partition.isr == (1, 2)


async def test_a_leader_that_is_fenced_again_and_again_lets_a_laggard_leave(autojump_clock: MockClock) -> None:
    leader = Leader(isr=(1, 2, 3))
    async with leader.running():
        for _ in range(6):
            leader.is_fenced = True
            await trio.sleep(0.5 * LAG_MS / 1000)
            leader.is_fenced = False
            for _ in range(20):
                leader.fetched(2, 3)
                await trio.sleep(LAG_MS / 20_000)
        assert leader.partition.isr == (1, 2)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_what_cannot_have_been_carried_out_is_withdrawn_and_may_be_proposed_again(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    leader = Leader()
    leader.controller.answers = [refuse(code)]
    async with leader.running():
        leader.fetched(2, 3)
        await trio.sleep(10)
        assert (proposal_of(leader.partition), leader.partition.isr) == (None, (1,))
        assert len(leader.controller.asked) == 1
        leader.fetched(2, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert leader.partition.isr == (1, 2)
    assert (leader.changes.expanded, leader.changes.shrunk, leader.changes.failed) == (1, 0, 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
async def test_what_may_be_out_of_date_counts_until_the_controller_says_more(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    leader = Leader()
    partition = leader.partition
    leader.controller.answers = [refuse(code)]
    async with leader.running():
        leader.fetched(2, 3)
        await trio.sleep(10)
        leader.fetched(3, 3)
        await trio.sleep(10)
        assert (proposal_of(partition), partition.isr, len(leader.controller.asked)) == ((1, 2), (1,), 1)
        partition.append_as_leader(batch(), required_acks=1, now_ms=NOW_MS)
        assert partition.high_watermark == 3, "broker 2 may be in sync for all that this leader knows"
        partition.make_leader(leader_epoch=5, partition_epoch=9, replicas=(1, 2, 3), isr=(1,))
        leader.fetched(3, 4)
        await trio.testing.wait_all_tasks_blocked()
        assert partition.isr == (1, 3)


@pytest.mark.parametrize(
    "trouble",
    [
        fail(ErrorCode.STALE_BROKER_EPOCH),
        fail(ErrorCode.NOT_CONTROLLER),
        fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        refuse(ErrorCode.NOT_CONTROLLER),
        refuse(ErrorCode.UNKNOWN_SERVER_ERROR),
        lambda request: PeerUnavailable("gone"),
        lambda request: respond(request, lambda asked: None),
    ],
)
async def test_whatever_else_happens_the_same_is_asked_again(autojump_clock: MockClock, trouble: Judge) -> None:
    leader = Leader()
    leader.controller.answers = [trouble] * 3
    async with leader.running():
        leader.fetched(2, 3)
        await trio.sleep(1)
    assert leader.controller.asked == [leader.controller.asked[0]] * 4
    assert (proposal_of(leader.partition), leader.partition.isr) == (None, (1, 2))


async def test_one_request_at_a_time_carries_all_that_is_proposed_meanwhile(autojump_clock: MockClock) -> None:
    leader = Leader(count=4)
    leader.controller.gate = trio.Event()
    async with leader.running():
        leader.fetched(2, 3, index=0)
        await trio.testing.wait_all_tasks_blocked()
        for index in (0, 1, 2, 3):
            leader.fetched(3, 3, index=index)
        await trio.testing.wait_all_tasks_blocked()
        assert len(leader.controller.asked) == 1
        leader.controller.gate.set()
        await trio.testing.wait_all_tasks_blocked()
    first, second = leader.controller.asked
    assert [each.partition_index for each in first.topics[0].partitions] == [0]
    assert [each.partition_index for each in second.topics[0].partitions] == [1, 2, 3]
    assert [each.isr for each in leader.partitions] == [(1, 2), (1, 3), (1, 3), (1, 3)]


async def test_an_answer_that_was_overtaken_is_ignored(autojump_clock: MockClock) -> None:
    leader = Leader()
    partition = leader.partition
    leader.controller.gate = trio.Event()
    async with leader.running():
        leader.fetched(2, 3)
        await trio.testing.wait_all_tasks_blocked()
        partition.make_leader(leader_epoch=5, partition_epoch=10, replicas=(1, 2, 3), isr=(1, 3))
        leader.fetched(2, 3)
        assert proposal_of(partition) is None, "an answer for this partition is still on its way"
        leader.controller.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (partition.isr, partition.partition_epoch) == ((1, 3), 10)
        leader.fetched(2, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert (partition.isr, partition.partition_epoch) == ((1, 3, 2), 11)


async def test_the_answer_of_a_controller_that_knows_less_settles_nothing(autojump_clock: MockClock) -> None:
    leader = Leader()

    def older(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = agree(request)
        response.topics[0].partitions[0].partition_epoch = 7
        return response

    leader.controller.answers = [older]
    async with leader.running():
        leader.fetched(2, 3)
        await trio.sleep(10)
    assert (proposal_of(leader.partition), leader.partition.isr, leader.partition.partition_epoch) == ((1, 2), (1,), 8)


async def test_nothing_is_asked_for_a_partition_that_moved_on_while_there_was_no_controller(
    autojump_clock: MockClock,
) -> None:
    leader = Leader()
    leader.controller.answers = [lambda request: PeerUnavailable("gone")] * 100
    async with leader.running():
        leader.fetched(2, 3)
        await asked_times(leader, 3)
        leader.partition.make_follower(leader_id=2, leader_epoch=6, partition_epoch=9, replicas=(1, 2, 3))
        await trio.sleep(1)
        count = len(leader.controller.asked)
        await trio.sleep(10)
        assert len(leader.controller.asked) == count
