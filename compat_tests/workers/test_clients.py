"""Several workers are one cluster to clients, which need to know no more than the first port."""

import json
import re
import urllib.request
import uuid
from contextlib import closing

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.wire_client import WireClient
from compat_tests.test_restarts import read_all
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaTopic

from ottla.server.cli.cli import main
from ottla.server.cluster.features import SAFE_DOWNGRADE, TRANSACTION_VERSION, UPGRADE, supported_levels
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest


@pytest.fixture
def topic(workers):
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    admin.create_topics([NewTopic(name, 4)])[name].result(60)
    workers.wait_until_all_lead(name)
    return name


def test_clients_are_told_of_each_workers_own_port(workers):
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    found = admin.list_topics(timeout=60).brokers
    assert sorted(found) == [1, 2]
    ports = {each.port for each in found.values()}
    assert len(ports) == 2
    assert workers.port not in ports


def test_whoever_asks_at_the_first_port_gets_an_answer(workers):
    # Each of these connections goes to one of the two workers, as the kernel chooses.
    for _ in range(20):
        assert main(["ping", workers.bootstrap, "--timeout", "60"]) == 0


def test_every_worker_tells_of_the_levels_that_one_broker_has(workers, capsys):
    newest = supported_levels()
    for address in workers.own_addresses:
        host, port = address.rsplit(":", 1)
        with WireClient((host, int(port)), client_id="levels") as client:
            told = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
            assert {each.name: each.max_version_level for each in told.finalized_features} == newest
            # Each of them takes a change, and hands it on to the controller.
            for level, kind in ((1, SAFE_DOWNGRADE), (2, UPGRADE)):
                update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
                answer = client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
                assert (answer.error_code, answer.error_message) == (0, None)
    assert main(["features", "-b", workers.bootstrap, "--timeout", "60", "--json"]) == 0
    assert {each["feature"]: each["finalized"] for each in json.loads(capsys.readouterr().out)} == newest


@pytest.mark.parametrize("client", ["kafka-go", "sarama", "terraform"])
def test_clients_in_go_make_and_delete_topics_by_way_of_any_worker(workers, client, go_admin):
    # At the shared port the kernel chooses the worker, and only one worker is the controller.
    told = go_admin(client, workers.bootstrap, *workers.own_addresses)
    assert len(told) == 3
    for steps in told:
        assert {"create", "delete"} <= steps.keys() and set(steps.values()) == {"<nil>"}, steps


def test_kafka_python_makes_and_deletes_topics_by_way_of_any_worker(workers):
    for address in (workers.bootstrap, *workers.own_addresses):
        name = f"t-{uuid.uuid4().hex[:8]}"
        with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
            admin.create_topics([KafkaTopic(name=name, num_partitions=2, replication_factor=1)])
            wait_until(lambda: name in admin.list_topics(), "the topic is listed")  # noqa: B023 - called here
            admin.delete_topics([name])


def test_the_java_admin_makes_and_deletes_topics_by_way_of_any_worker(workers, in_one_jvm, java_scenarios):
    for address in (workers.bootstrap, *workers.own_addresses):
        printed = in_one_jvm(java_scenarios, "topics", address, f"t-{uuid.uuid4().hex[:8]}", "g", "")
        found = dict(line.split("=", 1) for line in printed.splitlines())
        assert (found["again"], found["deleted"]) == ("TopicExistsException", "UnknownTopicOrPartitionException")


def test_a_new_topic_is_spread_over_the_workers(workers, topic):
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    found = admin.list_topics(timeout=60).topics[topic].partitions
    assert sorted(each.leader for each in found.values()) == [1, 1, 2, 2]
    assert all(each.replicas == [each.leader] for each in found.values())


def test_kafka_python_writes_and_reads_all_partitions(workers, topic):
    with closing(KafkaProducer(bootstrap_servers=workers.bootstrap, acks="all")) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=number % 4) for number in range(100)]
        assert {each.get(timeout=60).partition for each in sent} == {0, 1, 2, 3}
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=workers.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    with closing(consumer):
        found = [next(consumer).value for _ in range(100)]
    assert sorted(found) == sorted(b"%d" % number for number in range(100))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_whose_coordinators_are_on_either_worker(workers, topic, protocol):
    producer = Producer({"bootstrap.servers": workers.bootstrap})
    for number in range(40):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(60) == 0
    for group in range(4):
        settings = {
            "bootstrap.servers": workers.bootstrap,
            "group.id": f"{topic}-{group}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([topic])
            found = [wait_until(lambda: consumer.poll(1.0), "a record", 60) for _ in range(40)]
            assert sorted(each.value() for each in found) == sorted(b"%d" % number for number in range(40))
            consumer.commit(asynchronous=False)
            committed = consumer.committed([TopicPartition(topic, index) for index in range(4)], timeout=60)
            assert [each.offset for each in committed] == [10] * 4


def test_a_transaction_over_both_workers(workers, topic):
    producer = Producer({"bootstrap.servers": workers.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value in (b"kept", b"dropped"):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce(topic, value, partition=partition)
        # Or librdkafka may ask for an end before the coordinator knows that this transaction has begun.
        assert producer.flush(60) == 0
        if value == b"kept":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    for partition in range(4):
        assert [value for _, value in read_all(workers.bootstrap, topic, partition)] == [b"kept"]


def test_internal_topics_are_spread_too(workers):
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    found = admin.list_topics(timeout=60).topics["__consumer_offsets"].partitions
    assert {each.leader for each in found.values()} == {1, 2}


def test_the_banner_and_the_log_name_the_workers(workers):
    log = workers.log
    assert "  workers         2, with the node ids 1 to 2\n" in log
    assert "worker 0: " in log
    assert "worker 1: " in log
    assert log.count(f"listening on {workers.bootstrap}") == 1


def test_each_worker_tells_metrics_of_its_own(workers):
    addresses = re.findall(r"  (?:console|  of worker \d) +(http://127.0.0.1:\d+)/", workers.log)
    assert len(set(addresses)) == 2
    for number, address in enumerate(addresses):
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        [build] = [line for line in lines if line.startswith("ottla_build_info{")]
        assert f'worker="{number}"' in build
        assert f"ottla_broker_id {number + 1}" in lines
        # The two addresses at which a worker accepts are one listener.
        assert (
            len([line for line in lines if line.startswith("kafka_server_socket_server_metrics_connection_count{")])
            == 1
        )


def test_status_shows_all_workers(workers, capsys):
    assert main(["status", "-b", workers.bootstrap, "--timeout", "60"]) == 0
    out = capsys.readouterr().out
    assert "offline           0" in out
    assert len(out[out.index("BROKER") :].splitlines()) == 3
