"""A broker and a cluster inside a test, as the test's own thread uses them."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import trio
from confluent_kafka import Producer

from ottla.replication.cluster.coordination import SessionExpired
from ottla.server.config.broker_config import ConfigError
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.world.loop import LabLoop
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def values(kafka: Kafka, topic: str, **how: object) -> list[bytes | None]:
    return [record.value for record in kafka.records(topic, **how)]  # type: ignore[arg-type]


def test_produced_records_are_read(kafka: Kafka):
    kafka.topic("orders", partitions=3)
    made = kafka.produce("orders", "a", b"b", None, key="k", headers={"h": "1"}, timestamp=5)
    assert kafka.records("orders") == made
    assert [each.offset for each in made] == [0, 1, 2] and made[0].headers == (("h", b"1"),) and made[0].timestamp == 5
    assert kafka.topics() == {"orders": 3}
    assert kafka.records("orders", (made[0].partition + 1) % 3) == []
    (unanswered,) = kafka.produce("orders", "c", key="k", acks=0)
    assert unanswered.offset == -1 and values(kafka, "orders")[-1] == b"c"


def test_a_broker_that_is_killed_while_it_starts_has_not_failed(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    node = kafka.world.node(0)
    kafka.broker(0).stop()

    async def serve(*_: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SessionExpired

    async def kill_while_it_starts() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.start)
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            await node.kill()

    with monkeypatch.context() as patched:
        patched.setattr(node, "_serve", serve)
        kafka.call(kill_while_it_starts)
    kafka.broker(0).start()
    assert kafka.topics() == {}


def test_long_answers_are_decoded(kafka: Kafka) -> None:
    """Brokers encode those in a thread."""
    kafka.topic("wide", 1500)
    kafka.group("wide-reader").commit({("wide", each): each for each in range(1500)})
    assert len(kafka.group("wide-reader").offsets) == 1500
    answer = kafka.ask(MetadataRequest(topics=[MetadataRequestTopic(name="wide")]))
    assert len(answer.topics[0].partitions) == 1500


def test_records_of_all_partitions_are_merged_by_time(kafka: Kafka):
    kafka.topic("orders", partitions=2)
    for number, time in enumerate((30, 10, 20)):
        kafka.produce("orders", str(number), partition=number % 2, timestamp=time)
    assert values(kafka, "orders") == [b"1", b"0", b"2"]  # within a partition the order is that of the log


def test_a_fresh_world_has_nothing_of_the_one_before(kafka: Kafka):
    kafka.topic("orders")
    before = kafka.bootstrap
    kafka.clock.advance(hours=2)
    kafka.reset()
    assert kafka.topics() == {} and kafka.bootstrap != before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(before.partition(":")[2])))


def test_connections_of_the_world_before_are_cut(kafka: Kafka):
    host, _, port = kafka.bootstrap.partition(":")
    with socket.create_connection((host, int(port))) as client:
        kafka.reset()
        assert client.recv(1) == b""


def test_advancing_the_clock_fires_what_is_due(kafka: Kafka):
    kafka.topic("old", settings={"retention.ms": 60_000, "segment.ms": 1000})
    kafka.produce("old", "first")
    kafka.clock.advance(seconds=2)
    kafka.produce("old", "second")
    kafka.clock.advance(minutes=10)
    assert b"first" not in values(kafka, "old")


def test_records_of_clients_get_the_time_of_the_lab(kafka: Kafka):
    kafka.topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    kafka.clock.advance(hours=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("stamped", b"x")
    assert producer.flush(30) == 0
    assert abs(kafka.records("stamped")[0].timestamp - kafka.clock.now_ms) < 60_000


def test_a_frozen_clock_stands_still_until_it_is_advanced(kafka: Kafka):
    kafka.clock.freeze()
    frozen = kafka.clock.now_ms
    kafka.topic("orders")
    assert kafka.produce("orders", "x")[0].timestamp == frozen == kafka.clock.now_ms
    kafka.clock.advance(seconds=1)
    assert kafka.clock.now_ms == frozen + 1000
    kafka.clock.speed(1)


def test_a_clock_runs_again_when_the_kafka_is_closed_that_has_frozen_it(kafka: Kafka):
    clock = kafka.loop.clock
    with Kafka() as first, Kafka() as second:
        first.clock.freeze()
        second.close()
        assert clock.factor == 0
        first.close()
        assert clock.factor == 1
        with pytest.raises(LabError, match="closed"):
            first.clock.freeze()
    assert clock.factor == 1


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf")])
def test_time_goes_forward_only(kafka: Kafka, wrong: float):
    with pytest.raises(LabError, match="only goes forward"):
        kafka.clock.advance(wrong)
    with pytest.raises(LabError, match="give 0 or a positive number"):
        kafka.clock.speed(wrong)


def test_settings_are_kafkas(kafka: Kafka):
    with Kafka(settings={"auto.create.topics.enable": False, "num.partitions": 7}) as other:
        other.topic("seven", partitions=-1)
        assert other.topics() == {"seven": 7}
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Kafka(settings={"num.partition": 7})


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_a_broker_that_is_alone_has_the_id_that_a_test_gives_it(name: str):
    with Kafka(settings={name: 7}) as kafka:
        kafka.topic("orders")
        kept = kafka.snapshot()
        kafka.produce("orders", "one")
        kafka.restore(kept)
        kafka.broker(7).kill()
        kafka.broker(7).start()
        assert kafka.partition("orders", 0).leader == 7 and kafka.records("orders") == []
    with pytest.raises(LabError, match="have the ids 1 to 3"):
        Kafka(3, {name: 7})


def test_all_listeners_keep_their_ports_over_a_kill():
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    with Kafka(settings={"listeners": listeners, "listener.security.protocol.map": protocols}) as kafka:

        def ports() -> list[int]:
            return kafka.loop.call_sync(lambda: [each.port for each in kafka.world.node(0).serving().listeners])

        before = ports()
        kafka.broker(0).kill()
        kafka.broker(0).start()
        assert ports() == before and len({*before}) == 2


def test_wrong_use_is_answered_by_a_sentence(kafka: Kafka):
    kafka.topic("orders")
    with pytest.raises(KafkaError) as twice:
        kafka.topic("orders")
    assert twice.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    for wrong, text in (
        (lambda: kafka.records("order"), r"no topic order; kafka.topic\('order'\) makes it"),
        (lambda: kafka.produce("order", "x"), "no topic order"),
        (lambda: kafka.produce("orders", "x", partition=1), "no partition orders-1"),
        (lambda: kafka.produce("orders"), "Nothing was given"),
        (lambda: kafka.produce("orders", {"a": 1}), "{'a': 1} is neither bytes nor text; encode it first"),  # type: ignore[arg-type]
        (lambda: kafka.produce("orders", "x", headers={"h": 1}), "1 is neither bytes nor text"),  # type: ignore[dict-item]
        (lambda: Kafka(0), "ask for 1 to 100"),
        (lambda: kafka.ask(None, broker=5), "no broker 5; the brokers are 0"),  # type: ignore[arg-type]
    ):
        with pytest.raises(LabError, match=text):
            wrong()
    kafka.close()
    kafka.close()
    with pytest.raises(LabError, match="closed"):
        kafka.topics()


def test_a_cluster_has_three_brokers_and_copies():
    with Kafka(3) as cluster:
        assert cluster.bootstrap.count(":") == 3
        cluster.topic("orders", partitions=3)
        made = [cluster.produce("orders", str(number), partition=number)[0] for number in range(3)]
        assert cluster.records("orders") == made
        cluster.clock.advance(seconds=30)
        cluster.produce("orders", "later", partition=0)
        assert values(cluster, "orders", partition=0) == [b"0", b"later"]


def test_a_lab_whose_thread_has_failed_is_of_no_more_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def fail() -> None:
        raise RuntimeError

    loop = LabLoop()
    with suppress(LabError):  # it may have ended before it answers
        loop.call_sync(lambda: loop.nursery.start_soon(fail))
    assert loop._thread is not None
    loop._thread.join(10)
    assert not loop.is_usable
    with pytest.raises(LabError, match="closed"):
        loop.call_sync(len, "")


def test_a_broker_is_started_once_by_many_at_once(kafka: Kafka):
    kafka.broker(0).kill()
    with ThreadPoolExecutor(4) as threads:
        started = [threads.submit(kafka.broker(0).start) for _ in range(4)]
    problems = [str(each.exception()) for each in started if each.exception()]
    assert len(problems) == 3 and all("Broker 0 " in each and " already" in each for each in problems), problems
    assert kafka.broker(0).is_running


def test_who_asks_a_broker_that_ends_is_told(kafka: Kafka):
    asked = threading.Event()

    async def never() -> None:
        asked.set()
        await trio.sleep_forever()

    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(kafka.loop.call, kafka.world.node(0).while_it_runs, never)
        assert asked.wait(30)
        kafka.broker(0).kill()
        with pytest.raises(LabError, match="Broker 0 ended while it served this; ask again"):
            answer.result(30)


def test_a_forked_child_cannot_use_its_parents_brokers_and_makes_its_own(kafka: Kafka):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            kafka.topics()
        except LabError as error:
            os.write(writer, str(error).encode())
            kafka.close()
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    assert told == "This Kafka belongs to the process that was forked; make a new Kafka() in the child."
    assert kafka.topics() == {}


def test_names_in_a_sentence_are_short_and_no_control_characters(kafka: Kafka) -> None:
    for name in ("\x1b[31m\n", "x" * 32_000, "\ud800"):
        with pytest.raises(LabError) as raised:
            kafka.records(name)
        text = str(raised.value)
        assert text.isprintable() and len(text) < 2_000 and text.startswith("There is no topic ")
