"""Taking over the data directory of an Apache Kafka: what is found, and what the tree says afterwards."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, Operation
from ottla.replication.cluster.kraft_metadata import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from ottla.replication.log.batch_checks import LONG_MAX
from ottla.replication.log.checkpoints import encode_epochs, encode_offsets, encode_partition_metadata
from ottla.replication.log.producers import ProducerEntry, ProducerStateManager
from ottla.replication.replica_manager.directories import LogDirectoryProblem, hold_directories
from ottla.server.cluster.coordination import messages
from ottla.server.cluster.start import from_kafka
from ottla.server.cluster.start.from_kafka import FoundCluster, FoundTopic, adopt, find_cluster
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import opened
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import NO_TIMESTAMP, Record

ID, NEW_ID = bytes(15) + b"\x02", bytes(15) + b"\x03"


async def find(storage: MemoryStorage, tmp_path: Path, settings: Mapping[str, str] | None = None) -> FoundCluster:
    broker = await opened(tmp_path, settings)
    await broker.stop()
    (held,) = hold_directories(["/logs"], storage, node_id=1)
    held.release()
    found = [each for each in held.found_partitions() if not each.parsed.mark]
    return find_cluster([held.log_directory], found, broker.configs, lambda: NEW_ID)


def folders(*names: str) -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_directory("/logs")
    for name in names:
        storage.make_directory(f"/logs/{name}")
    return storage


def written_by(producer_id: int, value: bytes = b"value") -> bytes:
    record = Record(0, NO_TIMESTAMP, b"key", value)
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0)


def snapshot_of(producer_id: int) -> bytes:
    producers = ProducerStateManager()
    producers.load([ProducerEntry(producer_id)], 0)
    return producers.encode_snapshot()


async def test_folders_tell_ids_partitions_and_epochs(tmp_path: Path) -> None:
    storage = folders("a-0", "a-1", f"a-1.{'0' * 32}-delete", "b-0", "__consumer_offsets-0")
    storage.write("/logs/a-1/partition.metadata", encode_partition_metadata(ID))
    storage.write("/logs/a-1/leader-epoch-checkpoint", encode_epochs([(0, 0), (7, 50)]))
    storage.write("/logs/b-0/leader-epoch-checkpoint", b"\0")
    found = {topic.name: topic for topic in (await find(storage, tmp_path)).topics}
    assert (found["a"].topic_id, found["a"].leader_epochs) == (ID, [-1, 7])
    assert (found["b"].topic_id, found["b"].leader_epochs) == (NEW_ID, [-1])
    assert found["__consumer_offsets"].settings["cleanup.policy"] == "compact"


async def test_without_settings_nothing_is_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = folders("plain-0", "compacted-0")
    storage.write("/logs/cleaner-offset-checkpoint", encode_offsets({("compacted", 0): 5}))
    with caplog.at_level(logging.WARNING):
        found = {topic.name: topic.settings for topic in (await find(storage, tmp_path)).topics}
    assert found == {
        "plain": {"retention.ms": "-1", "retention.bytes": "-1"},
        "compacted": {"cleanup.policy": "compact"},
    }
    assert "nothing is deleted from compacted, plain." in caplog.text


async def test_the_highest_producer_id_is_found(tmp_path: Path) -> None:
    storage = folders("a-0", "b-0", "__transaction_state-0")
    assert (await find(storage, tmp_path)).next_producer_id == 0
    storage.write("/logs/a-0/00000000000000000003.snapshot", snapshot_of(1500))
    storage.write("/logs/a-0/00000000000000000005.snapshot", b"torn")
    storage.write("/logs/a-0/00000000000000000000.log", written_by(9000))  # before the snapshot: forgotten since
    storage.write("/logs/a-0/00000000000000000003.log", written_by(4) + written_by(2999) + written_by(1)[:-1])
    assert (await find(storage, tmp_path)).next_producer_id == 3000
    storage.write("/logs/b-0/00000000000000000000.log", written_by(3000))
    assert (await find(storage, tmp_path)).next_producer_id == 4000
    value = (1).to_bytes(2) + (5001).to_bytes(8) + b"the rest"
    storage.write("/logs/__transaction_state-0/00000000000000000000.log", written_by(-1, value))
    assert (await find(storage, tmp_path)).next_producer_id == 6000


async def test_a_producer_id_that_a_client_made_up_leaves_ids_to_give_out(tmp_path: Path) -> None:
    storage = folders("a-0")
    storage.write("/logs/a-0/00000000000000000005.snapshot", snapshot_of(LONG_MAX))
    storage.write("/logs/a-0/00000000000000000005.log", written_by(1234) + written_by(LONG_MAX) + written_by(1 << 62))
    assert (await find(storage, tmp_path)).next_producer_id == 2000


async def test_a_missing_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryProblem, match="a-1 is missing"):
        await find(folders("a-0", "a-2"), tmp_path)


async def from_metadata(image: ClusterImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FoundCluster:
    monkeypatch.setattr(from_kafka, "read_cluster_metadata", lambda *_: image)
    return await find(folders("a-0"), tmp_path)


async def test_metadata_tells_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = {1: PartitionImage([1], 9), 0: PartitionImage([1], 4)}
    image = ClusterImage(
        {ID: TopicImage("a", ID, partitions)},
        {
            (TOPIC_RESOURCE, "a"): {"retention.ms": "5", "remote.storage.enable": "true", "of.tomorrow": "x"},
            (BROKER_RESOURCE, ""): {"min.insync.replicas": "1"},
            (BROKER_RESOURCE, "1"): {"log.retention.ms": "6"},
            (BROKER_RESOURCE, "2"): {"log.retention.ms": "7"},
            (GROUP_RESOURCE, "g"): {"share.session.timeout.ms": "50000", "no.such": "1"},
            (GROUP_RESOURCE, "h"): {"share.session.timeout.ms": "0"},
        },
        3000,
    )
    with caplog.at_level(logging.WARNING):
        found = await from_metadata(image, tmp_path, monkeypatch)
    assert found == FoundCluster(
        [FoundTopic("a", ID, [4, 9], {"retention.ms": "5"})],
        {None: {"min.insync.replicas": "1"}, 1: {"log.retention.ms": "6"}},
        3000,
        {"g": {"share.session.timeout.ms": "50000"}},
    )
    assert "no.such=1 of group g is not taken over" in caplog.text
    assert "of.tomorrow=x of topic a is not taken over: Unknown topic config name" in caplog.text
    assert "remote.storage.enable=true of topic a is not taken over" in caplog.text


async def test_metadata_may_be_in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = ClusterImage(next_producer_id=5000)
    monkeypatch.setattr(from_kafka, "read_cluster_metadata", lambda _, path: image if path == "/metadata" else None)
    assert (await find(folders("a-0"), tmp_path)).next_producer_id == 0
    assert (await find(folders("a-0"), tmp_path, {"metadata.log.dir": "/metadata"})).next_producer_id == 5000


async def test_unreadable_metadata_is_told(tmp_path: Path) -> None:
    storage = folders("a-0", "__cluster_metadata-0")
    newer = encode_batch([Record(0, NO_TIMESTAMP, None, bytes((9, 2, 0)))])
    storage.write("/logs/__cluster_metadata-0/00000000000000000000.log", newer)
    with pytest.raises(LogDirectoryProblem, match="cannot be understood"):
        await find(storage, tmp_path)


async def test_a_replicated_topic_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = ClusterImage({ID: TopicImage("a", ID, {0: PartitionImage([1, 2], 4)})})
    with pytest.raises(LogDirectoryProblem, match=r"The replicas of a-0 are on brokers \[1, 2\]"):
        await from_metadata(image, tmp_path, monkeypatch)


async def test_the_tree_takes_it_up_once(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    found = FoundCluster(
        [FoundTopic("a", ID, [4, -1], {"retention.ms": "5"})],
        {None: {"log.retention.ms": "6"}},
        3000,
        {"g": {"share.session.timeout.ms": "50000"}},
    )
    for _ in range(2):
        await adopt(broker.coordination, found, 1)
    await broker.stop()
    again = await opened(tmp_path)
    topic = again.cluster.topics["a"]
    assert (topic.topic_id, [each.leader_epoch for each in topic.partitions]) == (ID, [5, 0])
    assert [each.leader for each in topic.partitions] == [1, 1]
    assert again.configs.topic_overrides("a").texts == {"retention.ms": "5"}
    assert again.config.log.retention_ms == 6
    assert again.configs.groups.in_force("g").share_session_timeout_ms == 50_000
    block = await again.coordination.get(znodes.PRODUCER_ID_BLOCK)
    assert znodes.decode_producer_id_block(block.data) == (2000, 2999)


async def test_a_topic_of_many_partitions_is_taken_up_in_parts_also_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opened(tmp_path)
    found, tree = (
        FoundCluster([FoundTopic("a", ID, [*range(3000)], {})], {None: {"log.retention.ms": "6"}}),
        broker.coordination,
    )
    multi, made = tree.multi, 0

    async def limited(operations: Sequence[Operation]) -> list[str | int | None]:
        nonlocal made
        messages.operations(operations)  # raises what a tree that is served would answer
        made += 1
        if made == 3:
            raise CoordinationUnavailable
        return await multi(operations)

    monkeypatch.setattr(tree, "multi", limited)
    with pytest.raises(CoordinationUnavailable):
        await adopt(tree, found, 1)
    await adopt(tree, replace(found, topics=[replace(found.topics[0], topic_id=NEW_ID)]), 1)
    topic = znodes.decode_topic((await tree.get(znodes.topic_path("a"))).data)
    assert (topic.topic_id, len(topic.partitions)) == (ID, 3000)
    states = await tree.get_all([znodes.state_path("a", index) for index in range(3000)])
    epochs = [znodes.decode_state(state.data).leader_epoch for state in states if state is not None]
    assert epochs == [*range(3000)]
    assert (await tree.get(znodes.broker_config_path(None))).data == znodes.encode_config({"log.retention.ms": "6"})
