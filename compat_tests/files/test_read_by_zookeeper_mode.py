"""A data directory that Ottla wrote, opened by Apache Kafka 3.9 in ZooKeeper mode.

Kafka looks for its topics in ZooKeeper, so that they are put there first: `register` is all that a migration needs.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3, ZooKeeper
from compat_tests.files.filling import CODECS, GROUPS, TOPICS
from compat_tests.files.portrait import portrait
from compat_tests.support.brokers import wait_until
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def register(zookeeper: str, data: Path, settings: dict[str, dict[str, str]]) -> None:
    """Make the nodes of a cluster with one broker, 0, from what stands in its data directory.

    Each topic has its node with id and replicas, one with its settings, and a state for each partition whose leader epoch
    is the highest that the log has seen. The cluster's id is that of meta.properties.
    """
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        cluster_id = re.search(r"^cluster\.id=(.*)$", (data / "meta.properties").read_text(), re.MULTILINE)[1]
        nodes: dict[str, Any] = {"/cluster/id": {"version": "1", "id": cluster_id}}
        topics: dict[str, dict[str, list[int]]] = {}
        for directory in data.glob("*-*/"):
            topic, _, partition = directory.name.rpartition("-")
            if partition == "delete":
                continue
            epochs = (directory / "leader-epoch-checkpoint").read_text().split()
            state = {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": int(epochs[-2]), "isr": [0]}
            nodes[f"/brokers/topics/{topic}/partitions/{partition}/state"] = state
            topics.setdefault(topic, {})[partition] = [0]
            topic_id = (directory / "partition.metadata").read_text().split("topic_id: ")[1].strip()
            assignment = {
                "topic_id": topic_id,
                "partitions": topics[topic],
                "adding_replicas": {},
                "removing_replicas": {},
            }
            nodes[f"/brokers/topics/{topic}"] = {"version": 3, **assignment}
            nodes[f"/config/topics/{topic}"] = {"version": 1, "config": settings.get(topic, {})}
        for path in sorted(nodes):
            client.create(path, json.dumps(nodes[path]).encode(), makepath=True)
    finally:
        client.stop()
        client.close()


def is_led(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=60).topics
    partitions = [each for name in topics for each in topics[name].partitions.values()]
    return topics.keys() > TOPICS.keys() and all(each.leader == 0 for each in partitions)


@pytest.fixture(scope="module")
def kafka(written, tmp_path_factory):
    directory = tmp_path_factory.mktemp("opened_by_kafka_3")
    shutil.copytree(written.data, directory / "data")
    process = ApacheKafka3(directory, {})
    zookeeper = ZooKeeper(directory / "zookeeper", process.java)
    try:
        zookeeper.start()
        settings = {topic: written.told[f"settings of {topic}"] for topic in TOPICS}
        settings["__consumer_offsets"] = {"cleanup.policy": "compact", "compression.type": "producer"}
        register(zookeeper.address, directory / "data", settings)
        process.settings["zookeeper.connect"] = zookeeper.address
        process.start()
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        wait_until(lambda: is_led(admin), "the controller has elected leaders and told the broker")
        yield process
    finally:
        if process.process is not None:
            process.kill()
        zookeeper.stop()


def test_kafka_tells_the_same_of_everything(written, kafka):
    told = portrait((kafka.host, kafka.port), TOPICS, GROUPS)
    assert {question: told[question] for question in told if told[question] != written.told[question]} == {}
    assert told.keys() == written.told.keys()


def test_its_console_consumer_reads_the_whole(kafka, java_tools):
    with_everything = [f"--property=print.{what}=true" for what in ("key", "offset", "partition", "timestamp")]
    for topic, count in {"codecs": 150, "segments": 800, "headless": 50}.items():
        command = ("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--from-beginning", *with_everything)
        printed = java_tools("kafka_3")(CONSOLE_CONSUMER, *command, "--max-messages", str(count)).fine()
        found = re.findall(r"CreateTime:\d+\tPartition:(\d+)\tOffset:(\d+)\t", printed)
        assert len(set(found)) == count
        if topic == "codecs":
            values = [line.rpartition("\t")[2] for line in printed.splitlines()]
            assert values == [f"{codec} {i} " * 50 for codec in CODECS for i in range(30)]


def test_a_group_goes_on_where_it_committed(kafka, java_tools):
    command = ("--bootstrap-server", kafka.bootstrap, "--topic", "codecs", "--group", "classic", "--max-messages", "1")
    said = java_tools("kafka_3")(CONSOLE_CONSUMER, *command, "--property=print.offset=true")
    assert said.fine().startswith("Offset:20\t")


def test_it_has_nothing_to_complain_of(kafka):
    kafka.stop()
    complaints = re.findall(r"^.*(?: (?:ERROR|FATAL) |corrupt|[Rr]ebuilding|recover).*$", kafka.log, re.MULTILINE)
    assert complaints == []
