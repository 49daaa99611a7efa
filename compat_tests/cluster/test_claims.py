"""Requests in the name of the controller: on which listener a member of a cluster takes them, and which it believes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.apache.brokers import ZooKeeper, small_java
from compat_tests.support.asking import Asking
from compat_tests.support.brokers import OttlaProcess, free_port
from kazoo.client import KazooClient

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.controller_requests import (
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest

NODE = 0
TOPIC_ID = b"the id of others"
FALSE_EPOCH = 2**31 - 1
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[tuple[Asking, Asking]]:
    """The listener for clients and the one for brokers of a cluster's only member."""
    zookeeper = ZooKeeper(tmp_path / "zookeeper", small_java)
    zookeeper.start()
    client = KazooClient(zookeeper.address)
    inside = free_port()
    settings = {
        "broker.id": str(NODE),
        "zookeeper.connect": zookeeper.address,
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    (tmp_path / "ottla").mkdir()
    process = OttlaProcess(tmp_path / "ottla", settings)
    process.settings["listeners"] = f"OUTSIDE://127.0.0.1:{process.port},INSIDE://127.0.0.1:{inside}"
    connections: list[Asking] = []
    try:
        client.start()
        process.launch()
        process.wait_until_serving()
        connections = [Asking(process.port), Asking(inside)]
        yield connections[0], connections[1]
        assert process.process.poll() is None, process.log
        process.stop()
    finally:
        for connection in connections:
            connection.close()
        process.kill()
        client.stop()
        client.close()
        zookeeper.stop()


def lead(topic: str, index: int = 0, **sender: Any) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=NODE,
        leader_epoch=7,
        isr=[NODE],
        partition_epoch=0,
        replicas=[NODE],
        is_new=True,
    )
    told = LeaderAndIsrTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=[state])
    return LeaderAndIsrRequest(topic_states=[told], live_leaders=[], **SENDER | sender)


def update(topic: str, index: int, **sender: Any) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=NODE,
        leader_epoch=0,
        isr=[NODE],
        zk_version=0,
        replicas=[NODE],
        offline_replicas=[],
    )
    told = UpdateMetadataTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=[state])
    endpoints = [UpdateMetadataEndpoint(port=1, host="127.0.0.1", listener=name) for name in ("INSIDE", "OUTSIDE")]
    live = [UpdateMetadataBroker(id=NODE, endpoints=endpoints)]
    return UpdateMetadataRequest(topic_states=[told], live_brokers=live, **SENDER | sender)


def delete(topic: str, **sender: Any) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    told = StopReplicaTopicState(topic_name=topic, partition_states=[state])
    return StopReplicaRequest(topic_states=[told], **SENDER | sender)


SENDER: dict[str, Any] = {"controller_id": NODE, "controller_epoch": 1, "broker_epoch": -1}


def create(listener: Asking, topic: str) -> int:
    new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    code: int = listener.ask(CreateTopicsRequest(topics=[new], timeout_ms=15_000), 7).topics[0].error_code
    return code


def test_clients_cannot_speak_as_brokers_and_brokers_are_held_to_the_tree(
    listeners: tuple[Asking, Asking], tmp_path: Path
) -> None:
    outside, inside = listeners
    keys = [{each.api_key for each in asked.ask(ApiVersionsRequest(), 0).api_keys} for asked in listeners]
    assert keys[1] - keys[0] == BETWEEN_BROKERS
    for request, version in (
        (lead("../escaped"), 7),
        (update("t", 20_000_000), 8),
        (delete("t"), 4),
        (ControlledShutdownRequest(broker_id=NODE, broker_epoch=-1), 3),
    ):
        assert outside.ask(request, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert create(outside, "t") == 0

    for false in ({"controller_epoch": FALSE_EPOCH}, {"controller_id": NODE + 1}):
        for request, version in ((lead("t", **false), 7), (update("t", 0, **false), 8), (delete("t", **false), 4)):
            assert inside.ask(request, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    for topic, index, code in (
        ("../escaped", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("phantom", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.INCONSISTENT_TOPIC_ID),
    ):
        told = inside.ask(lead(topic, index), 7)
        assert (told.error_code, told.topics[0].partition_errors[0].error_code) == (0, code)
    for index in (20_000_000, 2**31 - 1):
        assert inside.ask(update("t", index), 8).error_code == 0
    assert [each.port for each in outside.ask(MetadataRequest(topics=[]), 1).brokers] != [1]
    told = inside.ask(delete("t"), 4)
    assert (told.error_code, told.partition_errors[0].error_code) == (0, ErrorCode.INVALID_REQUEST)

    assert create(inside, "later") == 0  # the real controller is heard as before
    assert list(tmp_path.rglob("*escaped*")) == list(tmp_path.rglob("phantom*")) == []
