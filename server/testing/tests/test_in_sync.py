"""The ISR of a partition shrinks and grows by one call, and producers are answered as by Kafka meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.world import world
from ottla.wire.errors import ErrorCode, KafkaError

ALL = [1, 2, 3]
LATE_S = 0.05


@pytest.fixture
def kafka(kafka_cluster: Kafka) -> Kafka:
    kafka_cluster.topic("orders", partitions=2, settings={"min.insync.replicas": 2})
    kafka_cluster.move("orders", 0, ALL)
    kafka_cluster.elect("orders", 0, 1)
    return kafka_cluster


def end_of(kafka: Kafka, broker: int) -> int:
    """Return the end of a broker's own log of orders-0."""
    held = kafka.world.node(broker).serving().replicas.partition("orders", 0)
    assert held is not None
    return held.log.log_end_offset


@pytest.mark.parametrize("to", [None, [1], {1}])
def test_acks_of_all_are_refused_until_the_isr_is_large_enough(kafka: Kafka, to: list[int] | None) -> None:
    before = kafka.clock.now_ms
    kafka.produce("orders", "first", partition=0)
    kafka.shrink_isr("orders", 0, to)
    assert kafka.partition("orders", 0).isr == [1]
    with pytest.raises(KafkaError) as refused:
        kafka.produce("orders", "refused", partition=0)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert kafka.produce("orders", "other", partition=1)[0].offset == 0
    kafka.produce("orders", "second", partition=0, acks=1)
    # The high watermark does not move while fewer are in sync than min.insync.replicas (KIP-966).
    assert [each.value for each in kafka.records("orders", 0)] == [b"first"]
    kafka.expand_isr("orders", 0)
    assert [each.value for each in kafka.records("orders", 0)] == [b"first", b"second"]
    assert kafka.partition("orders", 0).isr == ALL
    kafka.produce("orders", "third", partition=0)
    assert [end_of(kafka, each) for each in ALL] == [3, 3, 3]
    assert kafka.clock.now_ms - before < 20_000  # less than replica.lag.time.max.ms: it was not waited for


def test_readers_wait_for_no_replica_that_is_out_of_sync(kafka: Kafka) -> None:
    kafka.topic("clicks")
    kafka.produce("clicks", "first")
    kafka.shrink_isr("clicks")
    kafka.produce("clicks", "second")
    assert [each.value for each in kafka.records("clicks")] == [b"first", b"second"]


def test_who_is_out_of_sync_fetches_nothing(kafka: Kafka) -> None:
    kafka.produce("orders", "first", partition=0)
    kafka.shrink_isr("orders", 0, to=[1, 3])
    assert kafka.partition("orders", 0).isr == [1, 3]
    kafka.produce("orders", "second", partition=0)
    kafka.broker(2).restart()
    kafka.clock.advance(seconds=2)
    assert [end_of(kafka, each) for each in ALL] == [2, 1, 2]
    with pytest.raises(LabError, match=r"Broker 2 is not in the ISR"):
        kafka.elect("orders", 0, 2)
    kafka.shrink_isr("orders", 0, to=[1])
    assert kafka.partition("orders", 0).isr == [1]
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == ALL and end_of(kafka, 2) == 2


def test_a_late_fetch_lets_no_one_join(kafka: Kafka) -> None:
    kafka.produce("orders", "first", partition=0)
    kafka.shrink_isr("orders", 0, to=[1])
    leader = kafka.world.node(1).serving()
    led = leader.replicas.partition("orders", 0)
    assert led is not None and led.followers is not None
    epoch = led.followers.broker_epoch(2)

    def fetch() -> None:
        led.on_follower_fetch(2, 1, 0, broker_epoch=epoch, now_ms=kafka.clock.now_ms)
        leader.member.alter_partition_manager.on_follower_fetch(led, 2)

    kafka.loop.call_sync(fetch)
    assert led.followers.maximal_isr == (1,)
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        kafka.produce("orders", "refused", partition=0)
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == ALL


def test_an_unclean_leader_has_not_what_was_written_without_it(kafka: Kafka) -> None:
    kafka.topic("clicks", settings={"unclean.leader.election.enable": True})
    leader = kafka.partition("clicks").leader
    kafka.produce("clicks", "kept")
    kafka.shrink_isr("clicks")
    kafka.produce("clicks", "lost")
    kafka.broker(leader).kill()
    while ("clicks", 0) not in [place for each in kafka.brokers for place in each.leads]:
        kafka.clock.advance(1)
    assert [each.value for each in kafka.records("clicks")] == [b"kept"]
    kafka.broker(leader).start()
    kafka.expand_isr("clicks")
    assert kafka.partition("clicks").isr == ALL


def test_brokers_that_are_down_or_cut_off_are_not_waited_for(kafka: Kafka) -> None:
    leader = kafka.controller  # which it has to reach
    assert leader is not None
    kafka.elect("orders", 0, leader)
    down, cut_off = (each for each in ALL if each != leader)
    kafka.broker(down).kill()
    kafka.shrink_isr("orders", 0, to=[leader])
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == sorted((leader, cut_off))
    kafka.broker(cut_off).isolate(from_=leader)
    kafka.shrink_isr("orders", 0)
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == [leader]
    kafka.broker(cut_off).heal()
    kafka.broker(down).start()
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == ALL


def test_a_rolling_restart_leaves_all_replicas_in_sync(kafka: Kafka) -> None:
    kafka.topic("many", partitions=12, settings={"min.insync.replicas": 2})
    for each in kafka.brokers:
        kafka.produce("orders", "before", partition=0)
        each.stop()
        kafka.produce("orders", "meanwhile", partition=0)
        each.start()
        assert {len(kafka.partition("many", index).isr) for index in range(12)} == {3}
    assert [end_of(kafka, each) for each in ALL] == [6, 6, 6]


def test_brokers_that_were_all_down_show_what_was_acknowledged(kafka: Kafka) -> None:
    kafka.produce("orders", "before", partition=0)
    for each in kafka.brokers:
        each.kill()
    kafka.wire.on("Fetch", of_brokers=True).delay(LATE_S, times=None, before=True)
    for each in kafka.brokers:  # the last one can lead, and knows less than min.insync.replicas in sync at first
        each.start()
    assert [each.value for each in kafka.records("orders")] == [b"before"]
    assert kafka.partition("orders", 0).isr == ALL


def shrink(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.shrink_isr("orders", 0, [each for each in ALL if each != follower])


def pause(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.broker(leader).pause()


def isolate(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.broker(leader).isolate(from_=follower)


def kill(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.shrink_isr("orders", 0, [leader])
    kafka.broker(leader).kill()


def fill(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.broker(follower).fill_disk()
    kafka.produce("orders", "no room", partition=0)


def damage(kafka: Kafka, leader: int, follower: int) -> None:
    kafka.produce("orders", "damaged", partition=0)
    kafka.broker(leader).corrupt("orders", 0, 0)


@pytest.mark.parametrize("keep_out", [shrink, pause, isolate, kill, fill, damage])
def test_a_broker_that_starts_is_not_waited_for_where_it_cannot_be_in_sync(
    kafka: Kafka, keep_out: Callable[[Kafka, int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "SHOWN_LOOKS", 1_000)
    monkeypatch.setattr(world, "SETTLED_LOOKS", 500)
    controller = kafka.controller  # which is neither of the two
    assert controller is not None
    leader, follower = (each for each in ALL if each != controller)
    kafka.elect("orders", 0, leader)
    kafka.broker(follower).stop()
    keep_out(kafka, leader, follower)
    kafka.broker(follower).start()
    shown = kafka.world.node(controller).serving().cluster.partition("orders", 0)
    assert shown is not None and follower not in shown.isr


def test_a_broker_that_starts_on_a_frozen_clock_is_waited_for_a_moment(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "FROZEN_LOOKS", 20)
    kafka.broker(2).kill()
    kafka.clock.freeze()
    kafka.wire.on("AlterPartition", of_brokers=True).fail("NOT_CONTROLLER", times=2)  # of either leader
    kafka.broker(2).start()
    kafka.clock.speed(1)
    kafka.broker(2).restart()
    assert kafka.partition("orders", 0).isr == ALL


def test_a_broker_that_the_controller_has_refused_is_proposed_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "SHOWN_LOOKS", 1_000)
    kafka.shrink_isr("orders", 0, to=[1, 3])
    kafka.world.held_replicas.pop(("orders", 0, 2)).remove()  # the leader does not propose it yet, as after a refusal
    kafka.call(lambda: kafka.world.until_settled(back=2))
    assert kafka.partition("orders", 0).isr == ALL


@pytest.mark.parametrize("change", ["resume", "heal", "expire_session"])
def test_a_broker_that_comes_back_is_in_sync(kafka: Kafka, change: str) -> None:
    kafka.topic("many", partitions=12)
    kafka.wire.on("Fetch", of_brokers=True).delay(LATE_S, times=None, before=True)
    lost = min({*ALL} - {kafka.controller})
    if change != "expire_session":
        getattr(kafka.broker(lost), {"resume": "pause", "heal": "isolate"}[change])()
        kafka.clock.advance(seconds=60)
    getattr(kafka.broker(lost), change)()
    assert {len(kafka.partition("many", index).isr) for index in range(12)} == {3}


def test_the_isr_and_the_leader_change_while_the_clock_is_frozen(kafka: Kafka) -> None:
    kafka.clock.freeze()
    for leader in [2, 3, 1] * 3:
        kafka.clock.advance(0.05)
        kafka.shrink_isr("orders", 0)
        kafka.expand_isr("orders", 0)
        kafka.elect("orders", 0, leader)
    kafka.clock.speed(1)
    assert kafka.partition("orders", 0).isr == ALL


def test_a_restored_snapshot_has_its_replicas_in_sync(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    kafka.shrink_isr("orders", 0)
    kafka.restore(snapshot)
    kafka.expand_isr("orders", 0)
    assert kafka.partition("orders", 0).isr == ALL and not kafka.wire.rules.active


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ([2, 3], r"Broker 1 leads orders-0 and stays in its ISR; name it in to=, or elect\(\) another leader"),
        ([1, 7], "There is no broker 7; the brokers are 1, 2, 3"),
        ([], "Broker 1 leads orders-0"),
    ],
)
def test_wrong_replicas_are_answered_by_a_sentence(kafka: Kafka, to: list[int], text: str) -> None:
    with pytest.raises(LabError, match=text):
        kafka.shrink_isr("orders", 0, to)
    assert not kafka.wire.rules.active


def test_other_wrong_uses_are_answered_by_a_sentence(kafka: Kafka) -> None:
    with pytest.raises(LabError, match="There is no partition missing-0"):
        kafka.shrink_isr("missing")
    kafka.shrink_isr("orders", 0, to=[1])
    with pytest.raises(LabError, match=r"Broker 2 is not in the ISR of orders-0, which is \[1\]"):
        kafka.shrink_isr("orders", 0, to=[1, 2])
    with Kafka() as alone:
        alone.topic("orders")
        with pytest.raises(LabError, match="A broker that is alone has no followers"):
            alone.shrink_isr("orders")
        alone.expand_isr("orders")
