"""Faults of a seed on the wire: what clients are answered, that it ends, and that correct clients lose no acknowledged record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.chaos.wire_faults import ERRORS, NEVER, ON_THE_WIRE, WireFault, WireFaults, drawn
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.wire_tap.tests.test_in_the_lab import Client
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

SILENCE_S = 2.0
PATIENCE_S = 30.0
STEP_S = 0.2
HITS = 5
QUICKLY = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}
QUIETLY = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "log_level": 0}
SEEDS = (1, 5)


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders", partitions=2)
    return kafka


def test_clients_retry_every_error() -> None:
    of_groups = {ErrorCode.REBALANCE_IN_PROGRESS}  # told to members, which join again
    for api, answers in ERRORS.items():
        for each in answers:
            error = ErrorCode[each.error]
            assert error.retriable or error in of_groups, (api, error)


@given(st.sampled_from(ON_THE_WIRE), st.integers(0, 2**32 - 1), st.floats(0.05, 0.4))
def test_a_number_stands_for_one_fault(kind: str, draw: int, seconds: float) -> None:
    fault = drawn(kind, draw, seconds)
    assert fault == drawn(kind, draw, seconds) and 1 <= fault.times <= 3 and fault.api in str(fault)


@pytest.mark.parametrize(
    ("kind", "choice", "carried_out", "text"),
    [
        ("half_answer", 0, True, "the next Metadata request is half answered, and its connection is cut"),
        ("cut_answer", 0, False, "the next Metadata request is not carried out, and its connection is cut"),
        ("cut_answer", 1, True, "the next Metadata request is carried out, and its connection is cut"),
        ("no_answer", 1, True, "the next Metadata request is not answered, and its connection is cut after 2.000 s"),
    ],
)
def test_a_connection_ends(kafka: Kafka, kind: str, choice: int, carried_out: bool, text: str) -> None:
    faults, fault = WireFaults(), WireFault(kind, "Metadata", 1, SILENCE_S, choice)
    assert str(fault) == text
    rule = faults.begin(kafka.wire, fault)
    client = Client(kafka)
    with client.socket:
        client.send(MetadataRequest(topics=None), 9)
        if kind == NEVER:
            kafka.wire.wait_for("Metadata")
            kafka.clock.advance(SILENCE_S)
        with pytest.raises(ConnectionResetError):
            client.read()
    assert rule.hits == 1 and not kafka.wire.rules.active
    assert carried_out == ("before" not in kafka.wire.requests("Metadata")[-1].rule)


def test_a_late_answer_comes_by_the_clock(kafka: Kafka) -> None:
    kafka.clock.freeze()
    client = Client(kafka)
    with client.socket:
        WireFaults().begin(kafka.wire, WireFault("late_answer", "Metadata", 1, SILENCE_S, 0))
        client.send(MetadataRequest(topics=None), 9)
        kafka.wire.wait_for("Metadata")
        assert kafka.wire.requests("Metadata")[-1].duration is None
        kafka.clock.advance(SILENCE_S)
        assert MetadataResponse.decode(client.read(), 9, 5).brokers
    kafka.clock.speed(1)


def test_a_later_fault_of_an_api_takes_the_place_of_an_earlier_one(kafka: Kafka) -> None:
    faults = WireFaults()
    for kind in ON_THE_WIRE:
        faults.begin(kafka.wire, WireFault(kind, "Fetch", 3, SILENCE_S, 0))
    faults.begin(kafka.wire, WireFault("error_answer", "Produce", 3, SILENCE_S, 0))
    assert [each.wanted.api for each in kafka.wire.rules.active] == ["Fetch", "Produce"]
    faults.end()
    assert not kafka.wire.rules.active


def test_the_end_of_faults_ends_connections_that_are_silent(kafka: Kafka) -> None:
    kafka.clock.freeze()
    own = kafka.on("Produce").fail("NOT_LEADER_OR_FOLLOWER")
    client = Client(kafka)
    with client.socket, kafka.chaos(3, ["no_answer"]) as chaos:
        while "Metadata" not in [each.wanted.api for each in kafka.wire.rules.active]:
            kafka.clock.advance(STEP_S)
        client.send(MetadataRequest(topics=None), 9)
        kafka.wire.wait_for("Metadata")
        chaos.stop()
        with pytest.raises(ConnectionResetError):
            client.read()
    kafka.clock.speed(1)
    assert kafka.wire.rules.active == (own,)
    assert [each.hits for each in chaos.happened if "Metadata" in each.text] == [1]
    assert "(met 1 request) [" in kafka.report()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["late_anser"], "There is no fault 'late_anser'; did you mean 'late_answer'"),
        (["xyz"], "There is no fault 'xyz'; the faults are kill, stop, disconnect, fill_disk, error_answer"),
        (["isolate"], "There is no fault isolate of a broker that is alone; use Kafka\\(3\\)"),
        ("kill", "faults='kill' is a text; give a list, such as faults=\\['kill'\\]"),
        ([], "No fault is named; the faults are kill"),
        ([None], "There is no fault None"),
    ],
)
def test_a_wrong_fault_is_answered_by_a_sentence(kafka: Kafka, wrong: Any, text: str) -> None:
    with pytest.raises(LabError, match=text):
        kafka.chaos(1, wrong)


# ---------------------------------------------------------------------- correct clients


def kafka_python(kafka: Kafka, send_and_poll: Callable[..., None]) -> None:
    library = pytest.importorskip("kafka")
    servers = {"bootstrap_servers": kafka.bootstrap, **QUICKLY}
    producer = kafka.history.producer(library.KafkaProducer(**servers))
    # Without a group: a short poll that ends while it joins again for its own sake forgets the join, with any broker.
    consumer = kafka.history.consumer(library.KafkaConsumer(**servers, auto_offset_reset="earliest"))
    consumer.assign([library.TopicPartition("orders", each) for each in range(2)])
    sent = []

    def send(value: bytes) -> None:
        sent.append(producer.send("orders", value))

    def poll() -> list[bytes]:
        return [each.value for batch in consumer.poll(timeout_ms=10).values() for each in batch]

    send_and_poll(send, poll)
    assert all(each.get(PATIENCE_S) for each in sent)
    consumer.close()
    producer.close()


def confluent_kafka(kafka: Kafka, send_and_poll: Callable[..., None]) -> None:
    library = pytest.importorskip("confluent_kafka")
    servers = {"bootstrap.servers": kafka.bootstrap, **QUIETLY}
    plain = library.Producer({**servers, "enable.idempotence": True})
    producer = kafka.history.producer(plain, idempotent=True)
    own = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
    consumer = kafka.history.consumer(library.Consumer({**servers, **own}), group="g")
    consumer.subscribe(["orders"])
    failed: list[Any] = []

    def send(value: bytes) -> None:
        producer.produce("orders", value, on_delivery=lambda error, _: failed.append(error) if error else None)

    def poll() -> list[bytes]:
        producer.poll(0)
        message = consumer.poll(0.01)
        return [message.value()] if message is not None and message.error() is None else []

    send_and_poll(send, poll)
    assert producer.flush(PATIENCE_S) == 0 and not failed
    consumer.close()


def aiokafka(kafka: Kafka, send_and_poll: Callable[..., None]) -> None:
    library = pytest.importorskip("aiokafka")
    servers = {"bootstrap_servers": kafka.bootstrap, "retry_backoff_ms": 5}
    own = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "enable_auto_commit": False}
    with asyncio.Runner() as runner:

        async def start() -> tuple[Any, Any]:
            made = library.AIOKafkaProducer(**servers, enable_idempotence=True), library.AIOKafkaConsumer("orders", **servers, **own)  # fmt: skip
            for each in made:
                await each.start()
            return made

        plain, plain_consumer = runner.run(start())
        producer, consumer = kafka.history.producer(plain), kafka.history.consumer(plain_consumer)
        sent: list[Any] = []

        async def send(value: bytes) -> None:
            sent.append(await producer.send("orders", value))

        async def poll() -> list[bytes]:
            found = await consumer.getmany(timeout_ms=10)
            return [each.value for batch in found.values() for each in batch]

        async def end() -> None:
            assert all(await asyncio.gather(*sent))
            await consumer.stop()
            await producer.stop()

        send_and_poll(lambda value: runner.run(send(value)), lambda: runner.run(poll()))
        runner.run(end())


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("client", [kafka_python, confluent_kafka, aiokafka])
def test_correct_clients_lose_no_acknowledged_record(kafka: Kafka, client: Callable[..., None], seed: int) -> None:
    def send_and_poll(send: Callable[[bytes], None], poll: Callable[[], list[bytes]]) -> None:
        sent, seen, end = set[bytes](), set[bytes](), time.monotonic() + PATIENCE_S
        with kafka.chaos(seed, ON_THE_WIRE) as chaos:
            while sum(each.hits or 0 for each in chaos.happened) < HITS:
                assert time.monotonic() < end, kafka.report()
                value = b"%d" % len(sent)
                send(value)
                sent.add(value)
                seen.update(poll())
                kafka.clock.advance(STEP_S)
        while seen != sent:
            assert time.monotonic() < end, f"{len(seen)} of {len(sent)} records were read\n{kafka.report()}"
            seen.update(poll())

    client(kafka, send_and_poll)
    kafka.history.check()
