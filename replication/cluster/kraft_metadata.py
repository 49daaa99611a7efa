"""Reader of a KRaft cluster's metadata log, `__cluster_metadata-0`: topics, settings and producer ids.

Read once, when a directory that Apache Kafka wrote is opened for the first time; nothing here writes. The log is a
sequence of changes, each record `frame version, api key, version` as varints and then a message in Kafka's own encoding.
What happened before the log begins is in the newest snapshot, `<end offset>-<epoch>.checkpoint`, a file of batches with
the same records. Records of other kinds (brokers, features, ACLs, quotas, ...) are passed over.

Changes between BeginTransaction and EndTransaction count together, those before an AbortTransaction not at all (KIP-868).
A torn tail ends the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.replication.log.names import LOG_SUFFIX, parse_segment_file, path_in
from ottla.replication.log.storage import Storage
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import BatchHeader, crc_is_valid, iter_batches
from ottla.wire.runtime import read_varint
from ottla.wire.schema import Array, Int8, Int32, Int64, String, Struct, Uuid
from ottla.wire.schema import field as wire

METADATA_DIRECTORY = "__cluster_metadata-0"
# Kafka's numbers of its ConfigResource types.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32

_FRAME_VERSION = 1
_LEADER_UNCHANGED = -2  # in a PartitionChangeRecord
_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")
_BEGIN_TRANSACTION, _END_TRANSACTION, _ABORT_TRANSACTION = 23, 24, 25


class UnreadableMetadata(Exception):
    """Error raised if a metadata record has an unknown format, or a newer version than this reader supports."""


class TopicRecord(Struct, versions="0", flexible="0+"):
    name: str = wire(String)
    topic_id: bytes = wire(Uuid)


class PartitionRecord(Struct, versions="0-2", flexible="0+"):
    partition_id: int = wire(Int32, default=-1)
    topic_id: bytes = wire(Uuid)
    replicas: list[int] = wire(Array(Int32))
    isr: list[int] = wire(Array(Int32))
    removing_replicas: list[int] = wire(Array(Int32))
    adding_replicas: list[int] = wire(Array(Int32))
    leader: int = wire(Int32, default=-1)
    leader_recovery_state: int = wire(Int8, tag=0, default=0)
    leader_epoch: int = wire(Int32, default=-1)
    partition_epoch: int = wire(Int32, default=-1)
    directories: list[bytes] = wire(Array(Uuid), versions="1+", default=[])


class PartitionChangeRecord(Struct, versions="0-2", flexible="0+"):
    partition_id: int = wire(Int32, default=-1)
    topic_id: bytes = wire(Uuid)
    # Its other tagged fields, the ISR among them, are skipped like any unknown tag.
    leader: int = wire(Int32, tag=1, default=_LEADER_UNCHANGED)
    replicas: list[int] | None = wire(Array(Int32), nullable="0+", tag=2, default=None)


class ConfigRecord(Struct, versions="0", flexible="0+"):
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    name: str = wire(String)
    value: str | None = wire(String, nullable="0+")


class RemoveTopicRecord(Struct, versions="0", flexible="0+"):
    topic_id: bytes = wire(Uuid)


class ProducerIdsRecord(Struct, versions="0", flexible="0+"):
    broker_id: int = wire(Int32)
    broker_epoch: int = wire(Int64, default=-1)
    next_producer_id: int = wire(Int64)


_RECORDS: dict[int, type[Struct]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    15: ProducerIdsRecord,
}


@dataclass(slots=True)
class PartitionImage:
    """A partition's replicas and its leader epoch."""

    replicas: list[int]
    leader_epoch: int


@dataclass(slots=True)
class TopicImage:
    """An existing topic with its partitions by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterImage:
    """Cluster state after all records of the log; the keys of `configs` are (resource type, resource name)."""

    topics: dict[bytes, TopicImage] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

    def apply(self, record: Struct) -> None:
        """Apply a metadata record to this image."""
        _APPLY[type(record)](self, record)

    def _add_topic(self, record: TopicRecord) -> None:
        self.topics[record.topic_id] = TopicImage(record.name, record.topic_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        # Kafka writes no records that unset the settings of a topic that goes.
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)

    def _put_partition(self, record: PartitionRecord) -> None:
        topic = self.topics[record.topic_id]
        topic.partitions[record.partition_id] = PartitionImage(record.replicas, record.leader_epoch)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        image = self.topics[record.topic_id].partitions[record.partition_id]
        image.replicas = image.replicas if record.replicas is None else record.replicas
        # A record that names a leader begins a leader epoch, even if it names the same leader again.
        if record.leader != _LEADER_UNCHANGED:
            image.leader_epoch += 1

    def _set_config(self, record: ConfigRecord) -> None:
        texts = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            texts.pop(record.name, None)
        else:
            texts[record.name] = record.value

    def _note_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


_APPLY: dict[type[Struct], Callable[[ClusterImage, Any], None]] = {
    TopicRecord: ClusterImage._add_topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._put_partition,
    PartitionChangeRecord: ClusterImage._change_partition,
    ConfigRecord: ClusterImage._set_config,
    ProducerIdsRecord: ClusterImage._note_producer_ids,
}


def read_cluster_metadata(storage: Storage, log_directory: str) -> ClusterImage | None:
    """Read the metadata log in a log directory; return None if there is no such log. Raises UnreadableMetadata."""
    directory = path_in(log_directory, METADATA_DIRECTORY)
    if not storage.is_directory(directory):
        return None
    image = ClusterImage()
    open_transaction: list[Struct] | None = None
    try:
        for value in _values(storage, directory):
            api_key, record = _decode(value)
            if api_key == _BEGIN_TRANSACTION:
                open_transaction = []
            elif api_key in (_END_TRANSACTION, _ABORT_TRANSACTION):
                # An aborted transaction leaves nothing. One that the log does not end is never applied.
                for each in open_transaction or () if api_key == _END_TRANSACTION else ():
                    image.apply(each)
                open_transaction = None
            elif record is not None and open_transaction is not None:
                open_transaction.append(record)
            elif record is not None:
                image.apply(record)
    except (KeyError, IndexError, ProtocolViolation) as error:
        raise UnreadableMetadata(f"{directory} cannot be understood: {error!r}") from error
    return image


def _decode(value: bytes) -> tuple[int, Struct | None]:
    """Decode a record to (api key, record); the record is None if this reader does not use its type."""
    frame_version, position = read_varint(value, 0)
    api_key, position = read_varint(value, position)
    version, position = read_varint(value, position)
    if frame_version != _FRAME_VERSION:
        raise ProtocolViolation(f"frame version {frame_version}")
    declared = _RECORDS.get(api_key)
    if declared is None:
        return api_key, None
    if version not in declared.versions:
        raise ProtocolViolation(f"{declared.__name__} of version {version}")
    return api_key, declared.decode(value, version, position)


def _values(storage: Storage, directory: str) -> Iterator[bytes]:
    """Yield the values of all records, beginning with the newest snapshot."""
    names = storage.names(directory)
    # The offset has a fixed number of digits, so the last name is that of the newest snapshot.
    snapshots = sorted((match for name in names if (match := _SNAPSHOT.fullmatch(name))), key=lambda match: match[0])
    start = 0
    if snapshots:
        # The log may still hold records that are in the snapshot already; they are passed over.
        start = int(snapshots[-1][1])
        yield from _values_of(storage.read(path_in(directory, snapshots[-1][0])), 0)
    for name in sorted(names):
        segment = parse_segment_file(name)
        # A file with a suffix is on its way in or out, and no part of the log.
        if segment is not None and segment.kind == LOG_SUFFIX and not segment.suffix:
            yield from _values_of(storage.read(path_in(directory, name)), start)


def _values_of(data: bytes, start: int) -> Iterator[bytes]:
    for header, position in _sound_batches(data):
        if not header.is_control and header.last_offset >= start:
            yield from (
                record.value for record in decode_records(data, position) if record.offset >= start and record.value
            )


def _sound_batches(data: bytes) -> Iterator[tuple[BatchHeader, int]]:
    """Yield batches with their positions until a batch is incomplete or fails its checksum."""
    batches = iter_batches(data)
    while True:
        try:
            header, start, end = next(batches)
        except (StopIteration, KafkaError):
            return
        if not crc_is_valid(data, start, end):
            return
        yield header, start
