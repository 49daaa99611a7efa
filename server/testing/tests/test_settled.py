"""When a call of the lab returns, all brokers do what the controller has decided, however late they hear of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.world import world
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

ALL = [1, 2, 3]
NAMES_TOPICS = 9  # version of Metadata
LATE_S = 0.05
PATIENCE_S = 30


@pytest.fixture
def kafka(kafka_cluster: Kafka) -> Kafka:
    """Three brokers that hear late of what the controller decides. Broker 1 leads; of the topic `alone` it has the only replica."""
    for topic, replicas in ("orders", ALL), ("alone", [1]):
        kafka_cluster.topic(topic)
        kafka_cluster.move(topic, 0, replicas)
    kafka_cluster.elect("orders", 0, 1)
    for api in "LeaderAndIsr", "UpdateMetadata":
        kafka_cluster.wire.on(api, of_brokers=True).delay(LATE_S, times=None, before=True)
    return kafka_cluster


def restart(kafka: Kafka) -> None:
    kafka.broker(1).restart()


def restart_after_kill(kafka: Kafka) -> None:
    kafka.broker(1).kill()
    kafka.broker(1).start()


def lose_session(kafka: Kafka) -> None:
    epoch = kafka.world.node(1).serving().member.broker_epoch
    kafka.broker(1).expire_session()
    assert kafka.world.node(1).serving().member.broker_epoch > epoch


def isolate(kafka: Kafka) -> None:
    kafka.broker(1).isolate()
    kafka.clock.advance(seconds=20)
    kafka.broker(1).heal()


def pause(kafka: Kafka) -> None:
    kafka.broker(1).pause()
    kafka.clock.advance(seconds=20)
    kafka.broker(1).resume()


def make_chaos(kafka: Kafka) -> None:
    with kafka.chaos(seed=1, faults=["kill"]):
        while kafka.broker(1).is_running:
            kafka.clock.advance(seconds=0.02)


def elect(kafka: Kafka) -> None:
    kafka.elect("orders", 0, 2)
    assert kafka.partition("orders").leader == 2


def check(kafka: Kafka, *topics: str) -> None:
    """Check that partitions 0 of topics are led by the broker that all brokers name."""
    for topic in topics:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        running = [each.node_id for each in kafka.brokers if each.is_running]
        shown = [kafka.ask(request, each, version=NAMES_TOPICS).topics[0].partitions[0] for each in running]
        assert [each.leader_id for each in shown] == [kafka.partition(topic).leader] * len(running)
        kafka.produce(topic, "written")
        assert [each.value for each in kafka.records(topic)] == [b"written"]


@pytest.mark.parametrize("change", [restart, restart_after_kill, lose_session, isolate, pause, make_chaos, elect])
def test_partitions_are_led_after(kafka: Kafka, change: Callable[[Kafka], None]) -> None:
    change(kafka)
    check(kafka, "orders", "alone")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_others_lead_when_a_broker_is_down(kafka: Kafka, how: str) -> None:
    getattr(kafka.broker(1), how)()
    assert kafka.controller is not None and kafka.partition("orders").leader != 1
    check(kafka, "orders")


def test_a_partition_has_moved_when_its_new_replicas_are_in_sync(kafka: Kafka) -> None:
    for replicas in [3, 1, 2], [2, 3], [1], ALL:
        kafka.move("alone", 0, replicas)
        state = kafka.partition("alone")
        assert state.replicas == replicas and state.isr == sorted(replicas) and state.leader in replicas
    check(kafka, "alone")


def test_leaders_do_not_change_by_themselves(kafka: Kafka) -> None:
    kafka.broker(1).restart()
    leader = kafka.partition("orders").leader
    assert leader != 1
    kafka.clock.advance(minutes=20)
    assert kafka.partition("orders").leader == leader


def test_a_leader_leads_when_it_has_heard_so_under_its_registration(kafka: Kafka) -> None:
    broker = kafka.world.node(1).serving()
    held = broker.replicas.partition("orders", 0)
    assert held is not None

    async def is_settled() -> bool:
        return not await kafka.world._unsettled({"orders"})

    assert kafka.loop.call(is_settled)
    held.must_hear = True  # as a new registration does
    assert not kafka.loop.call(is_settled)


def test_it_is_said_what_has_not_settled(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "SHOWN_LOOKS", 20)
    monkeypatch.setattr(world, "SETTLED_LOOKS", 10)
    held = kafka.world.node(1).serving().replicas.partition("orders", 0)
    assert held is not None
    held.must_hear = True  # as if it had missed it
    kafka.call(kafka.world.until_settled)  # the rules above may be why
    kafka.wire.rules.clear()
    with pytest.raises(LabError, match="Broker 1 does not know that it leads orders-0 after 0 s"):
        kafka.call(kafka.world.until_settled)


def test_a_follower_whose_disk_is_full_is_not_waited_for_until_it_is_an_error(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "SHOWN_LOOKS", 1_000)
    monkeypatch.setattr(world, "SETTLED_LOOKS", 500)
    kafka.wire.rules.clear()
    kafka.broker(3).fill_disk()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": 1})
    producer.produce("orders", b"not on the third", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    kafka.broker(1).kill()
    assert kafka.partition("orders", 0).isr == [2, 3]
    assert kafka.records("orders") == []  # the new leader shows it to nobody, as it cannot know that all have it


@pytest.mark.parametrize("how", ["elect", "kill"])
def test_a_new_leader_shows_what_was_acknowledged(kafka: Kafka, how: str) -> None:
    kafka.wire.on("Fetch", of_brokers=True).delay(LATE_S, times=None, before=True)
    kafka.produce("orders", "first")
    if how == "elect":
        kafka.elect("orders", 0, 2)
    else:
        getattr(kafka.broker(1), how)()
    assert kafka.partition("orders").leader != 1
    assert [each.value for each in kafka.records("orders")] == [b"first"]


@pytest.mark.parametrize("how", ["isolate", "pause"])
def test_a_topic_is_made_while_a_broker_is_cut_off(kafka: Kafka, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "SHOWN_LOOKS", 1_000)
    cut_off = next(each for each in ALL if each != kafka.controller)
    getattr(kafka.broker(cut_off), how)()
    kafka.topic("clicks")
    assert "clicks" in kafka.topics()
