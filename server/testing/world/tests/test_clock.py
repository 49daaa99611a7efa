"""The lab's clock: an advance of any length leaves brokers in reach alive, fires what is due in order, and can be ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest
import trio

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.tests.test_will import join_classic, until
from ottla.server.testing.world import loop
from ottla.server.testing.world.clock import LabClock
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic


@pytest.fixture
def cluster() -> Iterator[Kafka]:
    with Kafka(3) as made:
        made.topic("orders", partitions=3)
        yield made


def lives(kafka: Kafka) -> dict[int, tuple[int, int]]:
    """Return the session and the epoch of each broker."""
    return kafka.loop.call_sync(
        lambda: {
            node_id: (kafka.world._sessions[node_id].session_id, node.serving().member.broker_epoch)
            for node_id, node in kafka.world.nodes.items()
        }
    )


def shrinks(kafka: Kafka) -> int:
    nodes = kafka.world.nodes.values()
    return kafka.loop.call_sync(lambda: sum(node.serving().member.alter_partition_manager.shrunk for node in nodes))


def begin_transaction(kafka: Kafka, name: str, timeout_ms: int) -> None:
    async def begin() -> None:
        node = await kafka.world.coordinator(name, 1)
        made = await kafka.world.ask(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), node
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0, 1, 2])],
        )
        answer = await kafka.world.ask(request, node, version=3)
        codes = [
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
        assert codes == [0, 0, 0]

    kafka.call(begin)


def test_a_cluster_lives_through_weeks_and_what_is_due_happens(cluster: Kafka):
    cluster.topic("old", settings={"retention.ms": 6 * 86_400_000, "segment.ms": 1000})
    cluster.produce("old", "first")
    join_classic(cluster)
    begin_transaction(cluster, "t", 60_000)
    before, controller, began_ms = lives(cluster), cluster.controller, cluster.clock.now_ms
    cluster.clock.advance(minutes=2)
    assert cluster.group("g").state == "Empty" and cluster.transactions()["t"].state == "CompleteAbort"
    assert cluster.records("old")
    cluster.clock.advance(days=7)
    assert cluster.clock.now_ms - began_ms >= 7 * 86_400_000
    assert lives(cluster) == before and cluster.controller == controller
    assert all(cluster.partition("orders", number).isr == [1, 2, 3] for number in range(3))
    assert shrinks(cluster) == 0
    cluster.produce("old", "second")
    cluster.clock.advance(minutes=10)
    assert [each.value for each in cluster.records("old")] == [b"second"]


def test_what_is_cut_off_ends_all_the_same_and_comes_back(cluster: Kafka):
    before = lives(cluster)
    lost = next(each for each in (1, 2, 3) if each != cluster.controller)
    cluster.broker(lost).isolate()
    cluster.clock.advance(seconds=10)
    assert lives(cluster) == before
    cluster.clock.advance(days=7)
    assert all(lost not in cluster.partition("orders", number).isr for number in range(3))
    kept = [each for each in (1, 2, 3) if each != lost]
    assert {each: lives(cluster)[each] for each in kept} == {each: before[each] for each in kept}
    cluster.broker(lost).heal()
    until(cluster, lambda: all(cluster.partition("orders", number).isr == [1, 2, 3] for number in range(3)))
    assert lives(cluster)[lost] != before[lost]


def test_a_follower_that_its_leader_cannot_reach_leaves_the_isr_and_keeps_its_session(cluster: Kafka):
    before, leader = lives(cluster), cluster.partition("orders", 0).leader
    assert leader is not None
    # The controller has to hear of it.
    follower = next(each for each in (1, 2, 3) if each not in (leader, cluster.controller))
    cluster.broker(follower).isolate(from_=leader)
    cluster.produce("orders", "x", partition=0, acks=1)
    cluster.clock.advance(days=1)
    assert follower not in cluster.partition("orders", 0).isr
    assert lives(cluster) == before


def test_requests_that_are_never_answered_end_at_their_time_limit(cluster: Kafka):
    rule = cluster.on("Fetch", of_brokers=True, node=cluster.partition("orders", 0).leader).drop()
    until(cluster, lambda: rule.hits)
    cluster.clock.advance(hours=1)
    cluster.produce("orders", "x", partition=0)
    assert cluster.partition("orders", 0).isr == [1, 2, 3]


def test_a_frozen_and_a_fast_cluster_work(cluster: Kafka, monkeypatch: pytest.MonkeyPatch):
    before = lives(cluster)
    cluster.produce("orders", "a", "b", "c")
    cluster.clock.advance(seconds=2)  # the followers have found their leaders
    cluster.clock.freeze()
    began_ms = cluster.clock.now_ms
    cluster.produce("orders", "d", "e", "f")
    assert len(cluster.records("orders")) == 6 and cluster.clock.now_ms == began_ms
    cluster.topic("late")
    monkeypatch.setattr(loop, "FROZEN_PATIENCE_S", 0.05)
    with pytest.raises(LabError, match=r"waits for the brokers' time, which is frozen; clock.advance\(\) moves it"):
        cluster.produce("late", "a")
    monkeypatch.undo()
    cluster.clock.advance(seconds=1)
    cluster.produce("late", "b")
    cluster.clock.speed(20)
    until(cluster, lambda: cluster.clock.now_ms > began_ms + 60_000)
    cluster.clock.speed(1)
    assert lives(cluster) == before
    assert all(cluster.partition("orders", number).isr == [1, 2, 3] for number in range(3))


def test_timers_fire_in_their_order_and_the_steps_of_a_century_are_few():
    clock, fired, jumps = LabClock(), list[float](), list[float]()
    deadlines = [0.01, 0.02, 1, 45, 60, 300, 86_400, 2 * 86_400]

    async def ring(after: float) -> None:
        await trio.sleep(after)
        fired.append(after)

    async def tick() -> None:
        while True:
            await trio.sleep(0.5)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            for after in deadlines:
                nursery.start_soon(ring, after)
            await clock.advance(50, jumps.append)
            assert fired == deadlines[:4]
            await clock.advance(100 * 365 * 86_400, jumps.append)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
    assert fired == deadlines and 20 < len(jumps) < 400


class Restless:
    """Task of the lab that never rests, so that no advance ends."""

    def __init__(self, kafka: Kafka) -> None:
        self._loop, self._world, self._scope = kafka.loop, kafka.world, trio.CancelScope()

    def __enter__(self) -> Self:
        self._loop.call_sync(self._loop.nursery.start_soon, self._spin)
        return self

    def __exit__(self, *failure: object) -> None:
        self._loop.call_sync(self._scope.cancel)

    async def _spin(self) -> None:
        with self._scope:
            while True:
                await trio.lowlevel.checkpoint()
                if self._world._advances:
                    self.during_advance()

    def during_advance(self) -> None:
        """Do nothing."""


def wait_for_the_end(kafka: Kafka) -> None:
    while kafka.loop.call_sync(lambda: len(kafka.world._advances)):
        pass


def test_ctrl_c_ends_an_advance():
    main = threading.main_thread().ident
    assert main is not None
    with Kafka() as kafka, Restless(kafka) as restless:
        sent: list[Any] = []

        def interrupt() -> None:
            if not sent:
                sent.append(signal.pthread_kill(main, signal.SIGINT))

        restless.during_advance = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            kafka.clock.advance(days=1)
        wait_for_the_end(kafka)


def test_closing_a_kafka_ends_its_advance():
    kafka = Kafka()
    with Restless(kafka) as restless:
        closing = threading.Thread(target=kafka.close)

        def close() -> None:
            if closing.ident is None:
                closing.start()

        restless.during_advance = close  # type: ignore[method-assign]
        with pytest.raises(LabError, match="closed while its clock"):
            kafka.clock.advance(days=1)
        closing.join()
    with pytest.raises(LabError, match="is closed"):
        kafka.clock.advance(days=1)


def test_an_advance_that_cannot_end_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ottla.server.testing.world.cluster.ADVANCE_PATIENCE_S", 0.05)
    with Kafka() as kafka, Restless(kafka):
        with pytest.raises(
            LabError, match=r"by 10 s within 0.05 s, as the brokers were never idle; pause their clients"
        ):
            kafka.clock.advance(seconds=10)
        wait_for_the_end(kafka)
