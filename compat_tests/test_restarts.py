"""What outlives a broker process: a stop, a SIGKILL, a torn file."""

import contextlib
import signal
import socket
import subprocess
import sys
import time

import pytest
from compat_tests.support.feed import Feed, read_all
from compat_tests.support.groups import wait_for_groups
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)


def produce(bootstrap, topic, values, **options):
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def numbers(first, after):
    return [b"%d" % i for i in range(first, after)]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_idempotent_producer_loses_and_doubles_nothing_over_restarts(start_broker, make_topic, wait_until, how):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap)
    with Feed(broker.bootstrap, topic) as feed:
        for _ in range(3):
            before = len(feed.acknowledged)
            wait_until(lambda: len(feed.acknowledged) > before + 500, "500 more are acknowledged")  # noqa: B023
            getattr(broker, how)()
            broker.restart()
        feed.finish()
    assert len(feed.acknowledged) == feed.produced
    # In order, once each, and each at the offset that its acknowledgement named.
    assert read_all(broker.bootstrap, topic) == [(i, b"%d" % i) for i in range(feed.produced)]
    assert feed.acknowledged == {i: i for i in range(feed.produced)}


def test_a_consumer_group_works_on_over_a_kill(start_broker, make_topic, wait_until):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "group", "auto.offset.reset": "earliest"}
    # A session that outlives the restart: whoever joins anew may get again what it could not commit.
    quick = {"reconnect.backoff.max.ms": 200, "session.timeout.ms": 60_000, "enable.auto.commit": False}
    consumer = Consumer(settings | quick)
    consumer.subscribe([topic])
    seen = []

    def read_until(count):
        deadline = time.monotonic() + 90
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count}"
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                seen.append(message.value())
                with contextlib.suppress(KafkaException):  # the group may be just rebalancing
                    consumer.commit(message=message, asynchronous=False)

    with contextlib.closing(consumer):
        produce(broker.bootstrap, topic, numbers(0, 20))
        read_until(20)
        broker.kill()
        broker.restart()
        produce(broker.bootstrap, topic, numbers(20, 40))
        read_until(40)
    assert seen == numbers(0, 40)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_topics_configs_offsets_and_deletions_are_there_after_a_restart(start_broker, make_topic, how):
    broker = start_broker()
    topic = make_topic(partitions=2, servers=broker.bootstrap, configs={"retention.ms": "777000"})
    gone = make_topic(servers=broker.bootstrap)
    partition = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 30))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    offsets = ConsumerGroupTopicPartitions("group", [TopicPartition(topic, 0, 21, "a note")])
    wait_for_groups(broker.bootstrap)
    for call in (
        admin.incremental_alter_configs([resource]),
        admin.alter_consumer_group_offsets([offsets]),
        admin.delete_records([TopicPartition(topic, 0, 12)]),
        admin.delete_topics([gone]),
    ):
        [future] = call.values()
        future.result(60)

    def state():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        metadata = admin.list_topics(timeout=60)
        [configs] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        configs = {name: config.value for name, config in configs.result(60).items() if not config.is_default}
        [group] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("group")]).values()
        [earliest] = admin.list_offsets({partition: OffsetSpec.earliest()}).values()
        [latest] = admin.list_offsets({partition: OffsetSpec.latest()}).values()
        return (
            metadata.cluster_id,
            sorted(name for name in metadata.topics if not name.startswith("__")),
            {name: configs[name] for name in ("retention.ms", "cleanup.policy")},
            [(p.topic, p.partition, p.offset, p.metadata) for p in group.result(60).topic_partitions],
            (earliest.result(60).offset, latest.result(60).offset),
        )

    before = state()
    assert before[1:] == (
        [topic],
        {"retention.ms": "777000", "cleanup.policy": "delete,compact"},
        [(topic, 0, 21, "a note")],
        (12, 30),
    )
    getattr(broker, how)()
    broker.restart()
    wait_for_groups(broker.bootstrap)
    if how == "kill":  # Kafka writes down new log start offsets once a minute only, so they may not have been yet
        assert state()[:-1] == before[:-1]
    else:
        assert state() == before
        assert read_all(broker.bootstrap, topic)[0] == (12, b"12")


def test_a_torn_tail_and_spoilt_indexes_cost_nothing_that_was_whole(start_broker, make_topic):
    broker = start_broker()
    topic = make_topic(servers=broker.bootstrap)
    for first in range(0, 500, 50):
        produce(broker.bootstrap, topic, numbers(first, first + 50))
    broker.kill()
    directory = broker.data_dir / f"{topic}-0"
    log = directory / "00000000000000000000.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 20])  # half a batch, and at that one whose offsets have been
    (directory / "00000000000000000000.index").write_bytes(b"\x01" * 13)
    (directory / "00000000000000000000.timeindex").write_bytes(b"\x07" * 1000)
    broker.restart()
    assert [value for _, value in read_all(broker.bootstrap, topic)] == numbers(0, 500)
    produce(broker.bootstrap, topic, [b"afterwards"])
    assert read_all(broker.bootstrap, topic)[-1] == (500, b"afterwards")
    assert log.read_bytes().startswith(whole)


def test_a_clean_stop_leaves_a_marker_and_a_kill_does_not(start_broker):
    broker = start_broker()
    marker = broker.data_dir / ".kafka_cleanshutdown"
    assert not marker.exists()
    broker.stop()
    assert marker.exists()
    broker.restart()
    assert not marker.exists()
    broker.kill()
    assert not marker.exists()
    broker.restart()


def test_a_broker_that_waits_for_zookeeper_stops_when_it_is_asked_to(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        settings = {
            "zookeeper.connect": f"127.0.0.1:{silent.getsockname()[1]}",
            "broker.id": "1",
            "zookeeper.connection.timeout.ms": "600000",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
        }
        overrides = [part for name, text in settings.items() for part in ("--override", f"{name}={text}")]
        command = [sys.executable, "-m", "ottla", "start", *overrides]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            silent.settimeout(60)
            silent.accept()
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, said
    assert "stopping on SIGTERM" in said
