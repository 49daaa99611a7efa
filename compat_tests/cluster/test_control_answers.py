"""What a broker answers to brokers and controllers when it does not do what they ask: Ottla as Apache Kafka 3.9 does.

Each is alone in a cluster of its own, and is told the same bytes, but for its topic's id and its broker epoch.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3, ZooKeeper, small_java
from compat_tests.support.asking import Asking
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from kazoo.client import KazooClient

from ottla.wire.messages.controller_requests import (
    AlterPartitionRequest,
    BrokerState,
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.producer_ids import AllocateProducerIdsRequest
from ottla.wire.schema import ZERO_UUID, Message

NODE, OTHER, GONE = 0, 1, 77
OTHER_ID = b"an id of another"
CONTROLLER_EPOCH = 1  # the first
SETTINGS = {"zookeeper.session.timeout.ms": "30000", "auto.create.topics.enable": "false", "num.partitions": "1"}
SCALA_COLLECTION = re.compile(r"\b(?:ArrayBuffer|Set)\(([^)]*)\)")


class Asked(Asking):
    """A broker that leads the only partition of topic `t`."""

    def __init__(self, process: BrokerProcess, zookeeper: KazooClient, root: str) -> None:
        super().__init__(process.port)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        created = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=15_000), 7)
        assert created.topics[0].error_code == 0
        self.topic_id = bytes(created.topics[0].topic_id)
        self.epoch = zookeeper.exists(f"{root}/brokers/ids/{NODE}").czxid

    def told(self, request: Message, version: int) -> str:
        """The answer, with the topic's id by its name, lists in Python's words, and topics in an order."""
        answer = self.ask(request, version)
        if isinstance(answer, ElectLeadersResponse):
            answer.replica_election_results.sort(key=lambda result: result.topic)
        words = repr(answer).replace(repr(self.topic_id), "<t>")
        return SCALA_COLLECTION.sub(r"[\1]", words)


def leads(topic: str, topic_id: bytes, **changes: Any) -> LeaderAndIsrTopicState:
    known: dict[str, Any] = {
        "partition_index": 0,
        "controller_epoch": CONTROLLER_EPOCH,
        "leader": NODE,
        "leader_epoch": 0,
        "isr": [NODE],
        "partition_epoch": 0,
        "replicas": [NODE],
    }
    return LeaderAndIsrTopicState(
        topic_name=topic, topic_id=topic_id, partition_states=[LeaderAndIsrPartitionState(**(known | changes))]
    )


def control_requests(topic_id: bytes, epoch: int) -> Iterator[tuple[Message, int]]:
    """LeaderAndIsr, StopReplica, UpdateMetadata: of old controllers, for old lives of the broker, of what is not so."""
    now = {"controller_id": NODE, "controller_epoch": CONTROLLER_EPOCH, "broker_epoch": epoch}
    for version in (5, 6, 7):
        for sender in (now | {"broker_epoch": epoch - 1}, now | {"controller_epoch": 0}, now):
            yield LeaderAndIsrRequest(topic_states=[leads("t", topic_id)], live_leaders=[], **sender), version
    for states in (
        [],
        [leads("t", ZERO_UUID)],
        [leads("t", OTHER_ID, leader_epoch=5)],
        [leads("t", topic_id, leader_epoch=-1)],
        [leads("t", topic_id, replicas=[OTHER], isr=[OTHER], leader=OTHER, leader_epoch=5)],
        [leads("u", OTHER_ID, replicas=[OTHER], isr=[OTHER], leader=OTHER)],
        [leads("t", topic_id), leads("u", OTHER_ID, replicas=[OTHER], isr=[OTHER], leader=OTHER)],
    ):
        yield LeaderAndIsrRequest(topic_states=states, live_leaders=[], **now), 7
    for stop in (
        StopReplicaPartitionState(partition_index=0, leader_epoch=-1),
        StopReplicaPartitionState(partition_index=9, leader_epoch=0),
        StopReplicaPartitionState(partition_index=9, leader_epoch=0, delete_partition=True),
    ):
        topics = [StopReplicaTopicState(topic_name="t", partition_states=[stop])]
        for sender in (now | {"broker_epoch": epoch - 1}, now | {"controller_epoch": 0}, now):
            yield StopReplicaRequest(topic_states=topics, **sender), 4
        yield StopReplicaRequest(topic_states=topics, **now), 3
    for sender in (now | {"broker_epoch": epoch - 1}, now | {"controller_epoch": 0}):
        for version in (7, 8):
            yield UpdateMetadataRequest(topic_states=[], live_brokers=[], **sender), version


def requests_to_the_controller(topic_id: bytes, epoch: int) -> Iterator[tuple[Message, int]]:
    for version in (2, 3):
        yield ControlledShutdownRequest(broker_id=GONE, broker_epoch=epoch), version
        yield ControlledShutdownRequest(broker_id=NODE, broker_epoch=epoch - 1), version
    for version in (0, 1):
        yield ControlledShutdownRequest(broker_id=GONE), version
    yield AllocateProducerIdsRequest(broker_id=GONE, broker_epoch=epoch), 0
    yield AllocateProducerIdsRequest(broker_id=NODE, broker_epoch=epoch - 1), 0
    yield AllocateProducerIdsRequest(broker_id=NODE, broker_epoch=epoch + 1), 0
    for asked in (
        [TopicPartitions(topic="t", partitions=[0])],
        [TopicPartitions(topic="t", partitions=[7, 0]), TopicPartitions(topic="none", partitions=[0])],
        [TopicPartitions(topic="t", partitions=[-1])],
        [],
        None,
    ):
        for version in (0, 1, 2):
            for kind in (0, 1) if version else (0,):
                yield ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5000), version
    yield (
        ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=0
        ),
        2,
    )


def reassignments(topic_id: bytes, epoch: int) -> Iterator[tuple[Message, int]]:
    targets: list[tuple[str, int, list[int] | None]] = [
        ("t", 0, None),
        ("t", 0, []),
        ("t", 0, [NODE, NODE]),
        ("t", 0, [-1]),
        ("t", 0, [NODE, -5]),
        ("t", 0, [GONE]),
        ("t", 0, [NODE, GONE]),
        ("t", 0, [NODE]),
        ("t", 9, [NODE]),
        ("t", -1, [NODE]),
        ("none", 0, [NODE]),
        ("none", 0, None),
        ("", 0, [NODE]),
    ]
    for name, index, replicas in targets:
        partitions = [ReassignablePartition(partition_index=index, replicas=replicas)]
        topics = [ReassignableTopic(name=name, partitions=partitions)]
        yield AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics), 0
    yield AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[]), 0
    yield AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[ReassignableTopic(name="t", partitions=[])]), 0
    for listed in (None, [], [("t", [0, 5])], [("none", [0])], [("t", [])]):
        wanted = listed and [ListPartitionReassignmentsTopics(name=name, partition_indexes=at) for name, at in listed]
        yield ListPartitionReassignmentsRequest(timeout_ms=5000, topics=wanted), 0


def isr_changes(topic_id: bytes, epoch: int) -> Iterator[tuple[Message, int]]:
    def asked(**changes: Any) -> Any:
        known: dict[str, Any] = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0}
        known |= {"new_isr": [NODE], "new_isr_with_epochs": [BrokerState(broker_id=NODE, broker_epoch=epoch)]}
        return AlterPartitionRequest.TopicData.PartitionData(**(known | changes))

    def isr(*brokers: int) -> dict[str, Any]:
        return {
            "new_isr": list(brokers),
            "new_isr_with_epochs": [BrokerState(broker_id=each, broker_epoch=-1) for each in brokers],
        }

    Topic = AlterPartitionRequest.TopicData
    topics = [Topic(topic_id=topic_id, partitions=[asked()])]
    for version in (2, 3):
        for broker, broker_epoch in ((NODE, epoch), (NODE, epoch - 1), (NODE, epoch + 1), (NODE, -1), (GONE, epoch)):
            yield AlterPartitionRequest(broker_id=broker, broker_epoch=broker_epoch, topics=topics), version
        for changes in (
            {"leader_epoch": 1},
            {"leader_epoch": -1},
            {"partition_epoch": 1},
            {"partition_epoch": -1},
            {"partition_index": 9},
            {"leader_recovery_state": 1},
            {"leader_recovery_state": 1} | isr(NODE, GONE),
            isr(NODE, GONE),
            isr(GONE),
            isr(),
            isr(NODE, GONE) | {"partition_epoch": -1},
            isr(NODE, GONE) | {"leader_epoch": -1},
        ):
            odd = [Topic(topic_id=topic_id, partitions=[asked(**changes)])]
            yield AlterPartitionRequest(broker_id=NODE, broker_epoch=epoch, topics=odd), version
        for topic in (Topic(topic_id=OTHER_ID, partitions=[asked()]), Topic(topic_id=topic_id, partitions=[])):
            yield AlterPartitionRequest(broker_id=NODE, broker_epoch=epoch, topics=[topic]), version
        yield AlterPartitionRequest(broker_id=NODE, broker_epoch=epoch, topics=[]), version


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """Apache Kafka and Ottla."""
    directory: Path = tmp_path_factory.mktemp("control-answers")
    zookeeper = ZooKeeper(directory / "zookeeper", small_java)
    zookeeper.start()
    client = KazooClient(zookeeper.address)
    processes: list[BrokerProcess] = []
    try:
        client.start()
        for kind, name in ((ApacheKafka3, "kafka"), (OttlaProcess, "ottla")):
            (directory / name).mkdir()
            connect = {"zookeeper.connect": f"{zookeeper.address}/{name}"}
            processes.append(kind(directory / name, SETTINGS | connect))
            processes[-1].launch()
        asked = [
            Asked(process.wait_until_serving(), client, f"/{name}")
            for process, name in zip(processes, ("kafka", "ottla"), strict=True)
        ]
        yield asked[0], asked[1]
        for each in asked:
            each.close()
    finally:
        for process in processes:
            process.kill()
        client.stop()
        client.close()
        zookeeper.stop()


@pytest.mark.parametrize("requests", [control_requests, requests_to_the_controller, reassignments, isr_changes])
def test_answers_are_the_same(both: tuple[Asked, Asked], requests: Any) -> None:
    kafka, ottla = both
    pairs = zip(requests(kafka.topic_id, kafka.epoch), requests(ottla.topic_id, ottla.epoch), strict=True)
    differences = [
        f"{request} v{version}\n  Kafka: {expected}\n  Ottla: {told}"
        for (request, version), (same, _) in pairs
        if (expected := kafka.told(request, version)) != (told := ottla.told(same, version))
    ]
    assert not differences, "\n".join(differences)
