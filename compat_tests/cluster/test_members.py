"""Joining and leaving a cluster: ids, sessions, and a broker that was alone before."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster, settings_of
from compat_tests.support.groups import ask_coordinator
from compat_tests.support.zookeepers import Ensemble
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.server.cluster.features import supported_levels

RECORDS = [b"%d" % number for number in range(500)]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper", 1)
    ensemble.start()
    yield ensemble
    ensemble.stop()


@pytest.fixture
def tree(zookeeper: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def member(directory: Path, zookeeper: Ensemble, number: int = 0, **settings: str) -> OttlaProcess:
    directory.mkdir(exist_ok=True)
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return OttlaProcess(
        directory, settings_of(1) | {"node.id": str(number), "zookeeper.connect": zookeeper.address} | named
    )


def refusal(broker: OttlaProcess) -> str:
    """The one line with which a broker ends that cannot start."""
    run = subprocess.run(
        broker.command(), check=False, cwd=broker.directory, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1, run.stderr
    return run.stderr.splitlines()[-1]


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    problems = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and problems.append(error))
    assert producer.flush(60) == 0
    assert problems == []


def read(bootstrap: str, topic: str, count: int, group: str = "reader") -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        wait_until(lambda: _take(consumer, found) >= count, f"{count} records are read")
    finally:
        consumer.close()
    return found


def _take(consumer: Consumer, found: list[bytes]) -> int:
    for message in consumer.consume(500, timeout=0.5):
        assert message.error() is None, message.error()
        found.append(message.value())
    return len(found)


def epoch(tree: KazooClient, number: int = 0) -> int:
    stat = tree.exists(f"/brokers/ids/{number}")
    return 0 if stat is None else stat.czxid


def seen_by(cluster: Cluster, number: int) -> Any:
    """Partition t-0, as one broker knows it."""
    [topic] = wait_until(lambda: cluster.metadata(cluster.brokers[number], "t"), "the broker answers").topics
    return topic.partitions[0]


# --- what keeps a broker from joining ---------------------------------------------------------------------------------


def test_without_zookeeper_a_member_does_not_start(tmp_path: Path, zookeeper: Ensemble) -> None:
    broker = member(tmp_path / "broker", zookeeper, zookeeper_connection_timeout_ms="1500")
    zookeeper.stop()
    line = refusal(broker)
    assert line.startswith(f"ottla: ZooKeeper at {zookeeper.address}: ")


def test_two_brokers_cannot_have_one_id(tmp_path: Path, zookeeper: Ensemble) -> None:
    first = member(tmp_path / "first", zookeeper).start()
    try:
        assert "broker.id=0: another broker with this id is a member" in refusal(member(tmp_path / "second", zookeeper))
    finally:
        first.stop()


def test_log_directories_stay_with_their_cluster(tmp_path: Path, zookeeper: Ensemble) -> None:
    broker = member(tmp_path / "broker", zookeeper, zookeeper_connect=f"{zookeeper.address}/one").start()
    broker.stop()
    member(tmp_path / "another", zookeeper, zookeeper_connect=f"{zookeeper.address}/two").start().stop()
    stranger = member(tmp_path / "broker", zookeeper, zookeeper_connect=f"{zookeeper.address}/two")
    assert "the log directories belong to cluster" in refusal(stranger)
    broker.restart()  # at home it is as before
    broker.stop()


# --- registration -----------------------------------------------------------------------------------------------------


def test_what_a_member_says_of_itself(tmp_path: Path, zookeeper: Ensemble, tree: KazooClient) -> None:
    broker = member(tmp_path / "broker", zookeeper, 7, broker_rack="north").start()
    try:
        node = json.loads(tree.get("/brokers/ids/7")[0])
        assert node.pop("timestamp").isdecimal()
        assert node == {
            "version": 5,
            "host": broker.host,
            "port": broker.port,
            "jmx_port": -1,
            "endpoints": [f"PLAINTEXT://{broker.bootstrap}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": "north",
            "features": {name: {"min_version": 1, "max_version": level} for name, level in supported_levels().items()},
        }
        controller = json.loads(tree.get("/controller")[0])
        assert (controller["version"], controller["brokerid"], controller["kraftControllerEpoch"]) == (2, 7, -1)
        assert tree.get("/controller_epoch")[0] == b"1"
        assert json.loads(tree.get("/cluster/id")[0])["id"] in (broker.data_dir / "meta.properties").read_text()
    finally:
        broker.stop()
    assert tree.get_children("/brokers/ids") == []
    assert tree.exists("/controller") is None


def test_a_killed_member_comes_back_at_once(tmp_path: Path, zookeeper: Ensemble, tree: KazooClient) -> None:
    """Its last life's node is still there; it waits until ZooKeeper has noticed."""
    broker = member(tmp_path / "broker", zookeeper).start()
    before = epoch(tree)
    produce(broker.bootstrap, "t", RECORDS)
    broker.kill()
    broker.restart()
    assert epoch(tree) > before
    assert read(broker.bootstrap, "t", len(RECORDS)) == RECORDS
    broker.stop()


def test_a_member_whose_session_ended_registers_anew(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        tree = KazooClient(cluster.zookeeper.address)
        tree.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        settings = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[0, 1, 2]], config=settings)])["t"].result(60)
        produce(cluster.bootstrap, "t", RECORDS)
        before = epoch(tree)
        cluster.brokers[0].pause()
        wait_until(lambda: cluster.partitions("t")[0].leader_id in (1, 2), "another broker leads")
        produce(cluster.bootstrap, "t", RECORDS)
        cluster.brokers[0].resume()
        wait_until(lambda: epoch(tree) > before, "the broker is registered anew")
        # It is not asked itself: until it is told anew it knows the cluster as it was.
        wait_until(lambda: sorted(seen_by(cluster, 1).isr_nodes) == [0, 1, 2], "it is in sync again")

        def leads_again() -> bool:
            cluster.elect_preferred("t", [0])
            return seen_by(cluster, 1).leader_id == 0

        wait_until(leads_again, "it leads again")
        assert read(cluster.bootstrap, "t", 2 * len(RECORDS)) == RECORDS * 2
        tree.stop()
        tree.close()


# --- from alone to a cluster ------------------------------------------------------------------------------------------


def test_a_broker_that_was_alone_is_moved_into_a_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    first = cluster.brokers[0]
    joined = dict(first.settings)
    del first.settings["zookeeper.connect"]
    first.settings["offsets.topic.replication.factor"] = "1"
    first.start()
    produce(first.bootstrap, "t", RECORDS)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.create_topics([NewTopic("set", 1, 1, config={"retention.ms": "77000"})])["set"].result(60)
    consumer = Consumer({"bootstrap.servers": first.bootstrap, "group.id": "g"})
    offsets = [TopicPartition("t", 0, 123)]
    assert ask_coordinator(lambda: consumer.commit(offsets=offsets, asynchronous=False)) == 123
    consumer.close()
    known = admin.list_topics(timeout=60)
    first.stop()

    first.settings = joined
    cluster.zookeeper.start()
    try:
        first.start()  # before the others: the new cluster becomes its own
        cluster.start_brokers(cluster.brokers[1:])
        moved = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60)
        assert moved.cluster_id == known.cluster_id
        assert set(moved.topics) == set(known.topics)
        cluster.reassign("t", {index: [index % 3, (index + 1) % 3, (index + 2) % 3] for index in range(4)})
        cluster.reassign("set", {0: [0, 1, 2]})
        cluster.reassign("__consumer_offsets", {index: [0, 1, 2] for index in range(4)})
        for topic in ("t", "set", "__consumer_offsets"):
            wait_until(lambda topic=topic: _is_everywhere(cluster, topic), f"{topic} is on all brokers")
        first.kill()
        wait_until(lambda: cluster.partitions("t")[0].leader_id in (1, 2), "another broker leads")
        assert read(cluster.bootstrap, "t", len(RECORDS)) == RECORDS
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        assert ask_coordinator(lambda: consumer.committed([TopicPartition("t", 0)], timeout=60)) == 123
        consumer.close()
        first.restart()
        cluster.wait_until_whole()
        cluster.stop()
    finally:
        cluster.kill()
    assert not (first.data_dir / "coordination.journal").exists()


def _is_everywhere(cluster: Cluster, topic: str) -> bool:
    return all(len(each.isr_nodes) == 3 for each in cluster.partitions(topic).values())
