"""Adoption of a data directory of Apache Kafka: copies topics, settings and producer ids into the coordination tree.

This is done once, before the tree has a cluster id; from then on the tree is what counts. Records, indexes, leader
epochs, producer state and committed offsets are in the partitions' own folders and need nothing.

KRaft
    `__cluster_metadata-0` in one of the log directories, or in metadata.log.dir, has it all. It is read and then left as it
    is.
ZooKeeper mode
    Topics, settings and producer ids are in ZooKeeper. The folders still show names, ids, numbers of partitions and leader
    epochs, and the highest producer id in use is found in snapshots and batches. Settings are not in the folders: so that
    nothing is deleted for want of them, topics that Kafka had compacted are compacted, and all others keep everything until
    somebody sets `retention.ms` and `retention.bytes` again.

A folder of a broker that had others beside it is refused: what they have would be missing.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ottla.groupcoord.group_settings import group_settings
from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Coordination, Create, SetData, multis
from ottla.replication.cluster.kraft_metadata import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    TopicImage,
    UnreadableMetadata,
    read_cluster_metadata,
)
from ottla.replication.cluster.metadata_cache import TRANSACTION_STATE_TOPIC, is_internal_topic
from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.checkpoints import CorruptCheckpoint, decode_epochs, decode_offsets
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SegmentFile,
    parse_segment_file,
    path_in,
    segment_path,
)
from ottla.replication.log.producers import CorruptSnapshot, decode_snapshot
from ottla.replication.log.storage import LogDirectory, Storage
from ottla.replication.replica_manager.directories import FoundPartition, LogDirectoryProblem
from ottla.server.config.changes import GROUP_ID_LENGTH_MAX, GROUPS_MAX
from ottla.server.config.repository import ConfigRepository, Texts
from ottla.server.coordinators.coordinators import BLOCK_SIZE, new_topic
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.settings import InvalidSetting, Setting, parse_value

logger = logging.getLogger("ottla.adoption")

FOR_EVER_MS = 1 << 62
MADE_UP_FROM = 1 << 62
"""Producer ids that no broker has given out. A client may write with any id, and behind the greatest there is no block left."""
KEEP_EVERYTHING: Texts = {"retention.ms": "-1", "retention.bytes": "-1"}
COMPACT: Texts = {"cleanup.policy": "compact"}

_transaction_value = struct.Struct(">hq")  # version and producer id, the same in all versions


@dataclass(slots=True)
class FoundTopic:
    """Topic found in the log directories of a former broker. `leader_epochs` has one entry for each partition."""

    name: str
    topic_id: bytes
    leader_epochs: list[int]
    settings: Texts


@dataclass(slots=True)
class FoundCluster:
    """Metadata found in Apache Kafka's log directories. `broker_settings`: by node id; None: defaults of all."""

    topics: list[FoundTopic] = field(default_factory=list)
    broker_settings: dict[int | None, Texts] = field(default_factory=dict)
    next_producer_id: int = 0
    group_settings: dict[str, Texts] = field(default_factory=dict)  # by group id


def find_cluster(
    directories: Sequence[LogDirectory],
    found: Sequence[FoundPartition],
    configs: ConfigRepository,
    make_topic_id: Callable[[], bytes],
) -> FoundCluster:
    """Search the log directories' disks for the metadata of an Apache Kafka cluster. Raises LogDirectoryProblem."""
    apart = configs.started_with.static.get("metadata.log.dir")
    for path in [directory.path for directory in directories] + ([apart] if apart else []):
        try:
            image = read_cluster_metadata(directories[0].storage, path)
        except UnreadableMetadata as error:
            raise LogDirectoryProblem(str(error)) from None
        if image is not None:
            return _from_metadata(image, configs)
    return _from_folders(directories, found, configs, make_topic_id)


async def adopt(coordination: Coordination, cluster: FoundCluster, node_id: int) -> None:
    """Write the found metadata into the tree; existing nodes stay, so the call can be repeated after a crash."""
    nodes = [node for topic in cluster.topics for node in _topic_nodes(topic, node_id)]
    others = {znodes.broker_config_path(broker): settings for broker, settings in cluster.broker_settings.items()}
    others |= {znodes.group_config_path(group_id): settings for group_id, settings in cluster.group_settings.items()}
    nodes += [Create(path, znodes.encode_config(settings)) for path, settings in others.items()]
    present = await coordination.get_all([node.path for node in nodes])
    # A topic may have more partitions than fit one multi. The next start makes what is missing after a crash.
    for part in multis([node for node, known in zip(nodes, present, strict=True) if known is None]):
        await coordination.multi(part)
    if cluster.next_producer_id:
        # All ids below count as given out, so the next block begins above them.
        last = cluster.next_producer_id - 1
        node = await coordination.get(znodes.PRODUCER_ID_BLOCK)
        block = znodes.encode_producer_id_block(node_id, max(last - BLOCK_SIZE + 1, 0), last)
        await coordination.multi([SetData(znodes.PRODUCER_ID_BLOCK, block, node.version)])


def _topic_nodes(topic: FoundTopic, node_id: int) -> list[Create]:
    partitions = {index: [node_id] for index in range(len(topic.leader_epochs))}
    nodes = [
        Create(znodes.topic_config_path(topic.name), znodes.encode_config(topic.settings)),
        Create(znodes.topic_path(topic.name), znodes.encode_topic(znodes.TopicAssignment(topic.topic_id, partitions))),
        Create(znodes.partitions_path(topic.name)),
    ]
    for index, leader_epoch in enumerate(topic.leader_epochs):
        state = znodes.LeaderAndIsr(node_id, leader_epoch, [node_id], 0)
        nodes.append(Create(znodes.partition_path(topic.name, index)))
        nodes.append(Create(znodes.state_path(topic.name, index), znodes.encode_state(state)))
    return nodes


# ---------------------------------------------------------------------- KRaft


def _from_metadata(image: ClusterImage, configs: ConfigRepository) -> FoundCluster:
    cluster = FoundCluster(next_producer_id=image.next_producer_id)
    node_id = configs.started_with.node_id
    for topic in image.topics.values():
        settings = image.configs.get((TOPIC_RESOURCE, topic.name), {})
        usable = _usable(f"topic {topic.name}", settings, configs.current.log.with_overrides)
        cluster.topics.append(FoundTopic(topic.name, topic.topic_id, _epochs(topic, node_id), usable))
    for name, broker in (("", None), (str(node_id), node_id)):
        settings = image.configs.get((BROKER_RESOURCE, name), {})
        if settings:
            cluster.broker_settings[broker] = _usable(
                "the broker", settings, lambda texts: configs.configuration(texts, {})
            )
    cluster.group_settings = _of_groups(image)
    return cluster


def _of_groups(image: ClusterImage) -> dict[str, Texts]:
    """Return the usable settings of groups. A value outside this broker's limits is kept, and limited when used."""
    known = group_settings()
    found: dict[str, Texts] = {}
    for (kind, group_id), settings in image.configs.items():
        if kind == GROUP_RESOURCE and 0 < len(group_id) <= GROUP_ID_LENGTH_MAX and len(found) < GROUPS_MAX:
            usable = _usable(f"group {group_id}", settings, partial(_check_known, known))
            if usable:
                found[group_id] = usable
    return found


def _check_known(known: Mapping[str, Setting], texts: Texts) -> None:
    for name, text in texts.items():
        if name not in known:
            raise InvalidSetting(name, text, "it is not known", message=f"{name} is not known")
        parse_value(known[name], text)


def _epochs(topic: TopicImage, node_id: int) -> list[int]:
    for index, partition in topic.partitions.items():
        if partition.replicas != [node_id]:
            raise LogDirectoryProblem(
                f"The replicas of {topic.name}-{index} are on brokers {partition.replicas}. Only the directory of a broker "
                "that was alone can be opened."
            )
    return [topic.partitions[index].leader_epoch for index in range(len(topic.partitions))]


def _usable(whose: str, settings: Texts, check: Callable[[Texts], object]) -> Texts:
    """Return those settings that `check` accepts, and log each rejected one. `whose`: name of the owner for the log."""
    usable: dict[str, str] = {}
    for name, text in sorted(settings.items()):
        try:
            # Checked together with those before, because some settings are allowed only beside others.
            check(usable | {name: text})
            usable[name] = text
        except InvalidSetting as error:
            logger.warning("%s=%s of %s is not taken over: %s", name, text, whose, error)
    return usable


# ---------------------------------------------------------------------- ZooKeeper mode


def _from_folders(
    directories: Sequence[LogDirectory],
    found: Sequence[FoundPartition],
    configs: ConfigRepository,
    make_topic_id: Callable[[], bytes],
) -> FoundCluster:
    cluster = FoundCluster()
    storages = {directory.path: directory.storage for directory in directories}
    compacted = {name for directory in directories for name in _compacted_topics(directory)}
    topics: dict[str, dict[int, FoundPartition]] = {}
    for each in found:
        topics.setdefault(each.parsed.topic, {})[each.parsed.partition] = each
    for name, partitions in topics.items():
        ids = [each.topic_id for each in partitions.values() if each.topic_id is not None]
        cluster.topics.append(
            FoundTopic(name, ids[0] if ids else make_topic_id(), [], _guessed(name, compacted, configs))
        )
        # The folders have to be all of the topic. A gap means that another broker has the partition.
        for index in range(max(partitions) + 1):
            if index not in partitions:
                raise LogDirectoryProblem(
                    f"{name}-{index} is missing. Only the directory of a broker that was alone can be opened."
                )
            path = partitions[index].path
            storage = storages[path.rpartition("/")[0]]
            cluster.topics[-1].leader_epochs.append(_last_epoch(storage, path))
            highest = _highest_producer_id(storage, path, transactions=name == TRANSACTION_STATE_TOPIC)
            # The whole block counts as used: Kafka may have given out more of its ids than were written.
            cluster.next_producer_id = max(cluster.next_producer_id, (highest // BLOCK_SIZE + 1) * BLOCK_SIZE)
    if unsettled := sorted(topic.name for topic in cluster.topics if not is_internal_topic(topic.name)):
        logger.warning(
            "The settings of topics were in ZooKeeper. Until they are set again nothing is deleted from %s.",
            ", ".join(unsettled[:10]) + (" and others" if len(unsettled) > 10 else ""),
        )
    return cluster


def _guessed(name: str, compacted: set[str], configs: ConfigRepository) -> Texts:
    if is_internal_topic(name):
        return new_topic(name, configs.current, replicas_max=1).configs or COMPACT
    return COMPACT if name in compacted else KEEP_EVERYTHING


def _compacted_topics(directory: LogDirectory) -> list[str]:
    try:
        compacted = decode_offsets(directory.storage.read(path_in(directory.path, CLEANER_OFFSET_CHECKPOINT)))
    except (FileNotFoundError, CorruptCheckpoint):
        return []
    return [topic for topic, _ in compacted]


def _last_epoch(storage: Storage, path: str) -> int:
    # Kafka writes this file before it writes a record of the epoch.
    try:
        epochs = decode_epochs(storage.read(path_in(path, LEADER_EPOCH_CHECKPOINT)))
    except (FileNotFoundError, CorruptCheckpoint):
        return -1
    return epochs[-1][0] if epochs else -1


def _highest_producer_id(storage: Storage, path: str, *, transactions: bool) -> int:
    """Return a log's highest producer id, from the newest snapshot and the batches after it; -1 if there is none.

    `transactions`: the log is one of `__transaction_state`; the values of all its records are searched, too.
    """
    files = [parsed for name in storage.names(path) if (parsed := parse_segment_file(name)) is not None]
    logs = sorted(each.offset for each in files if each.kind == LOG_SUFFIX and not each.suffix)
    since, highest = _newest_snapshot(storage, path, files)
    # What the snapshot covers need not be read again. But no snapshot has the values of transaction records.
    for offset in logs:
        if transactions or offset >= since:
            highest = max(highest, _highest_in_log(storage, segment_path(path, offset, LOG_SUFFIX), transactions))
    return highest


def _newest_snapshot(storage: Storage, path: str, files: Sequence[SegmentFile]) -> tuple[int, int]:
    """Return the offset of the newest snapshot and the highest producer id in it; 0 and -1 if there is no snapshot."""
    for offset in sorted(
        (each.offset for each in files if each.kind == SNAPSHOT_SUFFIX and not each.suffix), reverse=True
    ):
        try:
            data = storage.read(segment_path(path, offset, SNAPSHOT_SUFFIX))
            entries = decode_snapshot(data, now_ms=0, expiration_ms=FOR_EVER_MS)
        except CorruptSnapshot:
            # An older snapshot will do; more of the log is read then.
            continue
        return offset, max((entry.producer_id for entry in entries if entry.producer_id < MADE_UP_FROM), default=-1)
    return 0, -1


def _highest_in_log(storage: Storage, path: str, transactions: bool) -> int:
    highest = -1
    file = storage.open(path)
    try:
        for header, position in scan_batches(file, 0, file.size(), LARGE_SCAN_BYTES):
            if header.producer_id < MADE_UP_FROM:
                highest = max(highest, header.producer_id)
            if transactions and not header.is_control:
                for record in decode_records(file.read_at(position, header.size_in_bytes)):
                    if record.value is not None and len(record.value) >= _transaction_value.size:
                        highest = max(highest, _transaction_value.unpack_from(record.value)[1])
    except (CorruptSegment, KafkaError):
        pass  # a torn tail; recovery cuts it off
    return highest
