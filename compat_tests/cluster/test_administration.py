"""Administration of a cluster of three Ottla brokers: Kafka's tools of both generations, and librdkafka's admin client."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.java_tools import JavaTools
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

RACKS = [{"broker.rack": rack} for rack in ("a", "b", "b")]
GENERATIONS = ["kafka_3", "kafka_4"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Use topics of your own, and leave all brokers running."""
    # looking at a topic that is gone must not bring it back
    settings = {"default.replication.factor": "3", "num.partitions": "2", "auto.create.topics.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=settings, each=RACKS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


class Tool:
    """One of Kafka's tools, told where the cluster is."""

    def __init__(self, tools: JavaTools, cluster: Cluster) -> None:
        self._tools, self._cluster = tools, cluster

    def __call__(self, name: str, *arguments: str) -> str:
        class_name = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        return self._tools(class_name, "--bootstrap-server", self._cluster.bootstrap, *arguments).fine()


@pytest.fixture(params=GENERATIONS)
def tool(request: pytest.FixtureRequest, java_tools: Callable[[str], JavaTools], cluster: Cluster) -> Tool:
    return Tool(java_tools(request.param), cluster)


def seen_by_all(cluster: Cluster, topic: str, is_so: Callable[[dict[int, Any]], bool], what: str) -> None:
    """Wait until every broker tells the same of a topic's partitions."""

    def is_seen(broker: Any) -> bool:
        answer = cluster.metadata(broker, topic)
        return answer is not None and is_so({each.partition_index: each for each in answer.topics[0].partitions})

    for broker in cluster.brokers:
        wait_until(lambda broker=broker: is_seen(broker), f"{what} at {broker.bootstrap}")


def test_a_topics_life(tool: Tool, cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("life").replace("_", "-")
    made = tool("TopicCommand", "--create", "--topic", topic, "--partitions", "6", "--config", "retention.ms=5000")
    assert made == f"Created topic {topic}.\n"
    seen_by_all(cluster, topic, lambda partitions: len(partitions) == 6, "a new topic")  # the tool asks any broker
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 6\tReplicationFactor: 3\tConfigs: " in described
    assert "retention.ms=5000" in described
    assert sorted(cluster.partitions(topic)) == list(range(6))
    assert {each.leader_id for each in cluster.partitions(topic).values()} == {0, 1, 2}
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "7")
    seen_by_all(cluster, topic, lambda partitions: len(partitions) == 7, "a new partition")
    assert tool("TopicCommand", "--describe", "--under-replicated-partitions") == ""
    tool("TopicCommand", "--delete", "--topic", topic)
    seen_by_all(cluster, topic, lambda partitions: not partitions, "a topic that is gone")
    wait_until(
        lambda: not any(list((broker.directory / "data").glob(f"{topic}-?")) for broker in cluster.brokers),
        "the logs are gone",
    )
    assert tool("TopicCommand", "--create", "--topic", topic) == f"Created topic {topic}.\n"
    seen_by_all(cluster, topic, bool, "a topic that was made again")
    assert "retention.ms" not in tool("TopicCommand", "--describe", "--topic", topic)


def test_replicas_are_in_different_racks(admin: AdminClient, cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("racks")
    admin.create_topics([NewTopic(topic, 12, 2)])[topic].result(60)
    seen_by_all(cluster, topic, lambda partitions: len(partitions) == 12, "a new topic")
    assert all(0 in each.replica_nodes for each in cluster.partitions(topic).values())


def test_settings_of_topics_and_brokers(tool: Tool, cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("settings")
    tool("TopicCommand", "--create", "--topic", topic)
    seen_by_all(cluster, topic, bool, "a new topic")  # the tool asks any broker
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool("kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=5000,segment.ms=6000")
    tool("kafka.admin.ConfigCommand", *entity, "--alter", "--delete-config", "segment.ms")
    for broker in cluster.brokers:

        def is_told(bootstrap: str = broker.bootstrap) -> bool:
            found = settings_of_topic(bootstrap, topic)
            return (found["retention.ms"].value, found["segment.ms"].is_default) == ("5000", True)

        wait_until(is_told, f"{broker.bootstrap} tells the settings")
    for entity_name, others in (("1", False), (None, True)):
        which = ("--entity-name", entity_name) if entity_name else ("--entity-default",)
        brokers = ("--entity-type", "brokers", *which)
        tool("kafka.admin.ConfigCommand", *brokers, "--alter", "--add-config", "log.flush.interval.messages=77")
        for number in range(3):
            described = ("--entity-type", "brokers", "--entity-name", str(number), "--describe", "--all")

            def is_right(number: int = number, described: tuple[str, ...] = described, others: bool = others) -> bool:
                said = tool("kafka.admin.ConfigCommand", *described)
                return ("log.flush.interval.messages=77" in said) == (others or number == 1)

            wait_until(is_right, f"broker {number} tells what was changed")
        tool("kafka.admin.ConfigCommand", *brokers, "--alter", "--delete-config", "log.flush.interval.messages")


def settings_of_topic(bootstrap: str, topic: str) -> dict[str, Any]:
    """As the broker describes them that is asked first."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return client.describe_configs([resource])[resource].result(60)


def test_leaders_are_elected(tool: Tool, cluster: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    topic = unique("election")
    tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", "0:1:2,1:2:0")
    seen_by_all(cluster, topic, lambda found: len(found) == 2, "a new topic")
    move_leadership(cluster, topic)
    said = tool("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert said == f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    seen_by_all(cluster, topic, lambda found: found[0].leader_id == 0, "the preferred leader")
    wanted = tmp_path / "partitions.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": index} for index in (0, 1)]}))
    said = tool("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(wanted))
    assert "Valid replica already elected for partitions" in said
    move_leadership(cluster, topic)
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    seen_by_all(
        cluster, topic, lambda found: (found[0].leader_id, found[1].leader_id) == (0, 1), "the preferred leaders"
    )
    tool("LeaderElectionCommand", "--election-type", "unclean", "--topic", topic, "--partition", "1")


def move_leadership(cluster: Cluster, topic: str) -> None:
    """Have partition 0, whose first replica is broker 0, be led by broker 1."""
    cluster.reassign(topic, {0: [1, 0, 2]})
    cluster.elect_preferred(topic, [0])
    wait_until(lambda: cluster.partitions(topic)[0].leader_id == 1, "broker 1 leads")
    cluster.reassign(topic, {0: [0, 1, 2]})


def test_partitions_are_moved(tool: Tool, cluster: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    topic = unique("move")
    tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", "0:1,1:2")
    seen_by_all(cluster, topic, lambda found: len(found) == 2, "a new topic")
    plan = tmp_path / "plan.json"
    targets = [{"topic": topic, "partition": 0, "replicas": [2, 1]}, {"topic": topic, "partition": 1, "replicas": [0]}]
    plan.write_text(json.dumps({"version": 1, "partitions": targets}))
    reassign = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    said = tool(*reassign, "--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments" in said

    def is_done() -> bool:
        return tool(*reassign, "--verify").count("is completed") == 2

    wait_until(is_done, "the reassignment is complete")
    seen_by_all(
        cluster,
        topic,
        lambda found: (
            [(each.replica_nodes, sorted(each.isr_nodes)) for _, each in sorted(found.items())]
            == [([2, 1], [1, 2]), ([0], [0])]
        ),
        "the new replicas",
    )
    assert tool("reassign.ReassignPartitionsCommand", "--list") == "No partition reassignments found.\n"
    found = settings_of_topic(cluster.bootstrap, topic)
    assert found["leader.replication.throttled.replicas"].value == ""


def test_librdkafka_as_administrator(admin: AdminClient, cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("librdkafka")
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(60)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(60)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("too-large", 1, 4)])["too-large"].result(60)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    seen_by_all(cluster, topic, lambda partitions: len(partitions) == 4, "all partitions")
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 3)]).result(60)
    assert "ELECTION_NOT_NEEDED" in str(elected[TopicPartition(topic, 3)])
    described = admin.describe_cluster().result(60)
    assert {node.id: node.rack for node in described.nodes} == {0: "a", 1: "b", 2: "b"}
    assert described.controller.id == cluster.brokers.index(cluster.controller())
    admin.delete_topics([topic])[topic].result(60)
    seen_by_all(cluster, topic, lambda partitions: not partitions, "a topic that is gone")
