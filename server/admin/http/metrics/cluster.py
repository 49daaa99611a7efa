"""Metrics of this broker in its cluster, its session, the controller if it is here (Kafka's KafkaController), and groups.

Groups are those that this broker coordinates, under the names of kafka_exporter. The lag is given where this broker has a replica of
the partition. Elsewhere only the committed offset is given, and a query takes the end from the leader:
`max by (topic, partition) (kafka_log_log_logendoffset)`. Clients make groups and commit what they like, so there is a limit: OFFSETS_MAX
offsets, BYTES_MAX of their labels. `ottla_group_offsets_left_out` counts the groups that are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import ottla
from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family, escaped

if TYPE_CHECKING:
    from ottla.groupcoord.offsets.committed import TopicOffsets
    from ottla.replication.cluster.metadata_cache import MetadataCache, PartitionState
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop


PARTITIONS_AT_ONCE = 1000

# Kafka's BrokerState.
STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN = 1, 2, 3, 6

_CONTROLLER = "kafka_controller_kafkacontroller_"


def member(broker: Broker, stop: Stop, exposition: Exposition) -> Iterator[str]:
    """Metrics of this broker as a member of its cluster."""
    build = Family("ottla_build_info", GAUGE, "1, with the version, and which of several workers it is.")
    labels = {"version": ottla.__version__, "cluster_id": broker.cluster.cluster_id}
    if (worker := broker.config.worker) is not None:
        labels["worker"] = str(worker.number)
    yield exposition.family(build, [(labels, 1)])
    for name, about, value in (
        (
            "kafka_server_kafkaserver_brokerstate",
            "1 starting, 2 loading logs, 3 running, 6 stopping.",
            _state(broker, stop),
        ),
        (
            "ottla_session_is_sure",
            "1: this broker's session with the coordination tree lasts.",
            broker.member.session.is_sure,
        ),
        (
            "ottla_broker_is_fenced",
            "1: this broker may have been replaced, and serves nothing.",
            broker.member.is_fenced,
        ),
        ("ottla_controller_id", "The controller's broker id; -1: nobody knows.", broker.member.controller_id),
        ("ottla_broker_id", "This broker's id.", broker.node_id),
    ):
        yield exposition.single(name, GAUGE, about, int(value))


def _state(broker: Broker, stop: Stop) -> int:
    if stop.requested.is_set():
        return PENDING_CONTROLLED_SHUTDOWN
    if not broker.cluster.cluster_id:
        return STARTING
    is_open = bool(broker.listeners) and all(each.calls.opened.is_set() for each in broker.listeners)
    return RUNNING if is_open else RECOVERY


def controller(broker: Broker, exposition: Exposition) -> Iterator[str]:
    """Metrics of the active controller about the whole cluster; 0 on all other brokers, as in Kafka."""
    active, cluster = broker.member.controller, broker.cluster
    offline = imbalanced = count = 0
    for number, partition in enumerate(_partitions(cluster) if active is not None else (), 1):
        count += 1
        offline += partition.leader == NO_LEADER
        imbalanced += partition.leader != partition.replicas[0]
        if number % PARTITIONS_AT_ONCE == 0:
            yield ""
    elections, unclean = (0, 0) if active is None else active.elections
    is_here = active is not None
    for name, about, value in (
        ("activecontrollercount", "1: the controller is here.", int(is_here)),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("preferredreplicaimbalancecount", "Partitions that another than the preferred replica leads.", imbalanced),
        ("globaltopiccount", "Topics of the cluster.", len(cluster.topics) * is_here),
        ("globalpartitioncount", "Partitions of the cluster.", count),
        ("activebrokercount", "Brokers of the cluster.", len(cluster.brokers) * is_here),
    ):
        yield exposition.single(_CONTROLLER + name, GAUGE, about, value)
    stats = "kafka_controller_controllerstats_"
    about = "Leaders chosen that were not in sync: records may be lost."
    yield exposition.single(f"{stats}uncleanleaderelections_total", COUNTER, about, unclean)
    yield exposition.single(f"{stats}leaderelections_total", COUNTER, "Leaders chosen instead of others.", elections)


def _partitions(cluster: MetadataCache) -> Iterator[PartitionState]:
    # A copy: topics come and go between two looks.
    for topic in list(cluster.topics.values()):
        yield from topic.partitions


OFFSETS_MAX, BYTES_MAX = 20_000, 4 * 1024 * 1024
AT_ONCE = 100

_OFFSET = Family("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed.")
_LAG = Family(
    "kafka_consumergroup_lag", GAUGE, "Committed records that a group has not read, where there is a replica here."
)


class _OffsetLines:
    """Lines of one family, within the limits. None is kept: a reader may be slow, and many may ask at once."""

    def __init__(self, replicas: ReplicaManager, family: Family) -> None:
        self._replicas, self._family = replicas, family
        self.left_out = 0
        self._offsets = self._bytes = 0

    def lines(self, group_id: str, topics: TopicOffsets) -> Iterator[str]:
        """Yield the lines of one group, in pieces."""
        group = escaped(group_id)
        lines: list[str] = []
        # Copies, because other tasks run between two pieces, and of no more than may be listed.
        left = OFFSETS_MAX + 1 - self._offsets
        for topic, partitions in list(islice(topics.items(), left)):
            prefix = f'{{consumergroup="{group}",topic="{escaped(topic)}",partition="'
            for index, committed in list(islice(partitions.items(), left)):
                size = len(prefix) + len(f'{index}"}}')
                if self._offsets >= OFFSETS_MAX or self._bytes + size > BYTES_MAX:
                    self.left_out += 1
                    yield "".join(lines)
                    return
                self._offsets += 1
                self._bytes += size
                value = self._value(topic, index, committed.offset)
                if value is not None:
                    lines.append(f'{self._family.name}{prefix}{index}"}} {value}\n')
                if self._offsets % AT_ONCE == 0:
                    yield "".join(lines)
                    lines = []
        yield "".join(lines)

    def _value(self, topic: str, index: int, offset: int) -> int | None:
        if self._family is _OFFSET:
            return offset
        partition = self._replicas.partition(topic, index)
        return None if partition is None else max(0, partition.high_watermark - offset)


def groups(broker: Broker, exposition: Exposition) -> Iterator[str]:
    """Metrics of groups, in pieces."""
    coordinator, left_out = broker.begun_groups, 0
    name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    count = 0 if coordinator is None else coordinator.group_count
    yield exposition.single(name, GAUGE, "Groups that this broker coordinates.", count)
    for family in (_OFFSET, _LAG):
        offsets = _OffsetLines(broker.replicas, family)
        yield exposition.head(family)
        for group_id, topics in () if coordinator is None else coordinator.all_committed():
            yield from offsets.lines(group_id, topics)
        left_out = offsets.left_out
    explained = "Groups whose offsets are not all told, because there are too many."
    yield exposition.single("ottla_group_offsets_left_out", GAUGE, explained, left_out)
