"""KRaft's metadata log: what its records come to, from snapshots and logs in every state."""

from __future__ import annotations

import pytest

from ottla.replication.cluster.kraft_metadata import (
    ClusterImage,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionImage,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnreadableMetadata,
    read_cluster_metadata,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, assign_offsets
from ottla.wire.schema import Struct

DIRECTORY = "/logs/__cluster_metadata-0"
ONE, TWO = bytes(15) + b"\x02", bytes(15) + b"\x03"
BEGIN, END, ABORT = (bytes((1, key, 0, 0)) for key in (23, 24, 25))

TOPIC = TopicRecord(name="one", topic_id=ONE)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=ONE,
    replicas=[5],
    isr=[5],
    removing_replicas=[],
    adding_replicas=[],
    leader=5,
    leader_epoch=3,
)
API_KEYS = {
    TopicRecord: 2,
    PartitionRecord: 3,
    ConfigRecord: 4,
    PartitionChangeRecord: 5,
    RemoveTopicRecord: 9,
    ProducerIdsRecord: 15,
}


def framed(record: Struct | bytes, version: int = 0) -> bytes:
    if isinstance(record, bytes):
        return record
    return bytes((1, API_KEYS[type(record)], version)) + record.encode(version)


def batch(*records: Struct | bytes, base_offset: int = 0) -> bytes:
    encoded = bytearray(encode_batch([Record(i, 0, None, framed(each)) for i, each in enumerate(records)]))
    assign_offsets(encoded, 0, base_offset, 1)
    return bytes(encoded)


def read(**files: bytes) -> ClusterImage:
    storage = MemoryStorage()
    storage.make_directory("/logs")
    storage.make_directory(DIRECTORY)
    for name, data in files.items():
        storage.write(f"{DIRECTORY}/{name.removeprefix('_').replace('__', '-').replace('_', '.')}", data)
    image = read_cluster_metadata(storage, "/logs")
    assert image is not None
    return image


def log(*records: Struct | bytes) -> ClusterImage:
    return read(_00000000000000000000_log=batch(*records))


def setting(name: str, value: str | None, resource: str = "one", kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_no_metadata_is_no_image() -> None:
    storage = MemoryStorage()
    storage.make_directory("/logs")
    assert read_cluster_metadata(storage, "/logs") is None


def test_topics_partitions_settings_and_producer_ids() -> None:
    image = log(
        TOPIC,
        PARTITION,
        setting("retention.ms", "5"),
        setting("segment.ms", "7"),
        setting("segment.ms", None),
        setting("min.insync.replicas", "1", "", 4),
        ProducerIdsRecord(broker_id=5, next_producer_id=3000),
    )
    topic = image.topics[ONE]
    assert (topic.name, topic.partitions) == ("one", {0: PartitionImage([5], 3)})
    assert image.configs == {(2, "one"): {"retention.ms": "5"}, (4, ""): {"min.insync.replicas": "1"}}
    assert image.next_producer_id == 3000


def test_a_new_leader_is_a_new_epoch_and_other_changes_are_not() -> None:
    changes = [
        PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=-1),
        PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=5),
        PartitionChangeRecord(partition_id=0, topic_id=ONE, replicas=[5, 6]),
    ]
    assert log(TOPIC, PARTITION, *changes).topics[ONE].partitions[0] == PartitionImage([5, 6], 5)


def test_a_removed_topic_leaves_nothing() -> None:
    image = log(TOPIC, PARTITION, setting("retention.ms", "5"), RemoveTopicRecord(topic_id=ONE))
    assert image == ClusterImage()


def test_newer_versions_and_unknown_kinds_of_records() -> None:
    unknown = bytes((1, 99, 0)) + b"whatever"
    image = log(TOPIC, unknown, framed(PARTITION, 2))
    assert image.topics[ONE].partitions[0].leader_epoch == 3


def test_transactions_count_as_a_whole() -> None:
    two = TopicRecord(name="two", topic_id=TWO)
    assert list(log(BEGIN, TOPIC, END, BEGIN, two, ABORT).topics) == [ONE]
    assert list(log(TOPIC, BEGIN, two).topics) == [ONE]


def test_the_log_goes_on_where_the_newest_snapshot_ends() -> None:
    image = read(
        _00000000000000000001__0000000001_checkpoint=batch(TopicRecord(name="old", topic_id=ONE)),
        _00000000000000000010__0000000001_checkpoint=batch(TOPIC, PARTITION),
        _00000000000000000004_log=batch(*[RemoveTopicRecord(topic_id=ONE)] * 6, base_offset=4),
        _00000000000000000010_log=batch(TopicRecord(name="two", topic_id=TWO), base_offset=10),
    )
    assert {topic.name for topic in image.topics.values()} == {"one", "two"}


@pytest.mark.parametrize("spoil", ["cut", "flip"])
def test_a_torn_tail_ends_the_log(spoil: str) -> None:
    good, torn = batch(TOPIC), bytearray(batch(TopicRecord(name="two", topic_id=TWO), base_offset=1))
    if spoil == "cut":
        del torn[-1]
    else:
        torn[-2] ^= 1
    assert list(read(_00000000000000000000_log=good + torn).topics) == [ONE]


@pytest.mark.parametrize(
    "value", [bytes((2, 2, 0)), bytes((1, 2, 9)), bytes((1, 2, 0, 5)), framed(RemoveTopicRecord(topic_id=TWO))]
)
def test_what_cannot_be_understood_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableMetadata, match=r"__cluster_metadata-0 cannot be understood"):
        log(value)
