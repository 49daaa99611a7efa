"""Metrics of replicas, one by one and counted (Kafka's Log, Partition, ReplicaManager), of topics (Kafka's BrokerTopicMetrics),
of this broker in its cluster, of the controller if it is here (Kafka's KafkaController), and of groups.

Groups are those that this broker coordinates, under the names of kafka_exporter. The lag is given where this broker has a
replica of the partition. Elsewhere only the committed offset is given, and a query takes the end from the leader: `max by
(topic, partition) (kafka_log_log_logendoffset)`. Clients may create any number of groups and offsets, so a limit applies:
OFFSETS_MAX offsets, BYTES_MAX of their labels. `ottla_group_offsets_left_out` counts the groups that are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

import ottla
from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.replication.partition.traffic import Traffic
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family, escaped

if TYPE_CHECKING:
    from ottla.groupcoord.offsets.table import TopicOffsets
    from ottla.replication.cluster.metadata_cache import MetadataCache, PartitionState
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.broker import Broker
    from ottla.server.serving_state import Stop

Batch = tuple[list["Partition"], list[str]]
LINE = "\n"
AT_ONCE = 50
"""Partitions between two yields. A log may have thousands of segments, and its size is the sum of theirs."""


# These are asked of every partition, and the first comparison says no of nearly all.
def under_replicated(partition: Partition) -> int:
    return int(len(partition.isr) < len(partition.replicas) and partition.is_leader)


def under_min_isr(partition: Partition) -> int:
    return int(len(partition.isr) < partition.min_isr and partition.is_leader)


def at_min_isr(partition: Partition) -> int:
    return int(len(partition.isr) == partition.min_isr and partition.is_leader)


def stable_lag(partition: Partition) -> int:
    """Return the number of committed records that open transactions hide from read_committed consumers."""
    if partition.log.first_unstable_offset is None or not partition.is_leader:
        return 0
    return partition.high_watermark - partition.last_stable_offset


def has_late_transaction(partition: Partition, late_since_ms: int) -> bool:
    """Tell whether the oldest open transaction of a partition led here has had no record since `late_since_ms`."""
    oldest = partition.log.oldest_transaction
    return oldest is not None and 0 < oldest.last_timestamp < late_since_ms and partition.is_leader


_LOG_SIZE = Family("kafka_log_log_size", GAUGE, "Bytes of a log.")
_DIRECTORY_SIZE = Family("ottla_log_directory_size_bytes", GAUGE, "Bytes of the logs in a log directory.")
FAMILIES: tuple[tuple[Family, Callable[[Partition], int]], ...] = (
    (_LOG_SIZE, lambda each: each.log.size_in_bytes),
    (Family("kafka_log_log_numlogsegments", GAUGE, "Segments of a log."), lambda each: len(each.log.segments)),
    (Family("kafka_log_log_logstartoffset", GAUGE, "First offset of a log."), attrgetter("log.log_start_offset")),
    (Family("kafka_log_log_logendoffset", GAUGE, "Offset of the next record."), attrgetter("log.log_end_offset")),
    (Family("kafka_cluster_partition_replicascount", GAUGE, "Replicas."), lambda each: len(each.replicas)),
    (
        Family("kafka_cluster_partition_insyncreplicascount", GAUGE, "Replicas in sync, as the leader knows them."),
        lambda each: len(each.isr),
    ),
    (
        Family("kafka_cluster_partition_underreplicated", GAUGE, "1: led here, and not all replicas are in sync."),
        under_replicated,
    ),
    (
        Family(
            "kafka_cluster_partition_underminisr", GAUGE, "1: led here, with fewer in sync than min.insync.replicas."
        ),
        under_min_isr,
    ),
    (
        Family("kafka_cluster_partition_atminisr", GAUGE, "1: led here, with as many in sync as min.insync.replicas."),
        at_min_isr,
    ),
    (
        Family("kafka_cluster_partition_laststableoffsetlag", GAUGE, "Committed records that open transactions hide."),
        stable_lag,
    ),
)

COUNTED = {
    "partitioncount": "Replicas here.",
    "leadercount": "Partitions that this broker leads.",
    "underreplicatedpartitions": "Partitions led here that lack replicas in sync.",
    "underminisrpartitioncount": "Partitions led here with fewer in sync than min.insync.replicas.",
    "atminisrpartitioncount": "Partitions led here with as many in sync as min.insync.replicas.",
    "offlinereplicacount": "Replicas on log directories that failed.",
    "produceridcount": "Producer ids that the logs remember.",
    "partitionswithlatetransactionscount": "Partitions led here with a transaction that nobody ends.",
}
LATE_MS = 5 * 60 * 1000
"""Time in ms beyond transaction.max.timeout.ms after which an open transaction is late (Kafka's LATE_TRANSACTION_BUFFER_MS)."""


class PartitionLabels:
    """Cache of all partitions' labels between scrapes. Making a label is half the cost of a line."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def batches(self, replicas: ReplicaManager, found: list[Batch]) -> Iterator[str]:
        """Append all replicas with their labels to `found`, batch by batch. Other tasks may run at each yield."""
        still_here: dict[tuple[str, int], str] = {}
        for some in _batches(replicas):
            labels = []
            for partition in some:
                key = partition.topic, partition.index
                # A topic's name needs no escaping: Kafka allows only letters, digits, dots, dashes and underscores.
                label = self._known.get(key) or f'{{topic="{key[0]}",partition="{key[1]}"}}'
                still_here[key] = label
                labels.append(label)
            found.append((some, labels))
            yield ""
        self._known = still_here


def partitions(replicas: ReplicaManager, known: PartitionLabels, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of each replica, in pieces."""
    found: list[Batch] = []
    sizes = {each.path: 0 for each in replicas.log_directories}
    yield from known.batches(replicas, found)
    for family, value in FAMILIES:
        yield exposition.head(family)
        for some, labels in found:
            values = list(map(value, some))
            yield _lines(family.name, labels, values)
            if family is _LOG_SIZE:  # a sum that costs much, so that it is made once
                for each, size in zip(some, values, strict=True):
                    sizes[each.log.log_directory.path] += size
    yield exposition.family(_DIRECTORY_SIZE, [({"logDirectory": path}, size) for path, size in sizes.items()])


def _lines(name: str, labels: list[str], values: list[int]) -> str:
    first = values[0]
    # As for most families nearly always, and much cheaper than to write each line.
    if values.count(first) == len(values):
        return f"{name}{f' {first}{LINE}{name}'.join(labels)} {first}\n"
    return "".join([f"{name}{label} {value}\n" for label, value in zip(labels, values, strict=True)])


def _batches(replicas: ReplicaManager) -> Iterator[list[Partition]]:
    found = replicas.partitions()
    while some := list(islice(found, AT_ONCE)):
        yield some


def replica_manager(broker: Broker, exposition: Exposition) -> Iterator[str]:
    """Yield totals over all replicas. While it counts, it yields empty pieces, so that other tasks may run."""
    counts = dict.fromkeys(COUNTED, 0)
    longest_ms = broker.configs.started_with.transactions.transaction_max_timeout_ms + LATE_MS
    for some in _batches(broker.replicas):
        _count(counts, some, broker.now_ms() - longest_ms)
        yield ""
    for name, about in COUNTED.items():
        yield exposition.single(f"kafka_server_replicamanager_{name}", GAUGE, about, counts[name])
    changes = broker.member.alter_partition_manager
    for name, about, value in (
        ("isrshrinks", "Replicas that left the in-sync replicas.", changes.shrunk),
        ("isrexpands", "Replicas that joined the in-sync replicas.", changes.expanded),
        ("failedisrupdates", "In-sync replicas that the controller refused.", changes.failed),
    ):
        yield exposition.single(f"kafka_server_replicamanager_{name}_total", COUNTER, about, value)
    yield from _log_manager(broker.replicas, exposition)


def _count(counts: dict[str, int], some: list[Partition], late_since_ms: int) -> None:
    counts["partitioncount"] += len(some)
    counts["leadercount"] += len([each for each in some if each.is_leader])
    counts["underreplicatedpartitions"] += sum(map(under_replicated, some))
    counts["underminisrpartitioncount"] += sum(map(under_min_isr, some))
    counts["atminisrpartitioncount"] += sum(map(at_min_isr, some))
    counts["offlinereplicacount"] += len([each for each in some if not each.log.log_directory.is_online])
    counts["produceridcount"] += sum([len(each.log.producers) for each in some])
    counts["partitionswithlatetransactionscount"] += sum([has_late_transaction(each, late_since_ms) for each in some])


def _log_manager(replicas: ReplicaManager, exposition: Exposition) -> Iterator[str]:
    directories, house = replicas.log_directories, replicas.housekeeping
    offline = Family("kafka_log_logmanager_logdirectoryoffline", GAUGE, "1: the log directory has failed.")
    yield exposition.family(offline, [({"logDirectory": each.path}, int(not each.is_online)) for each in directories])
    for name, about, value in (
        (
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that have failed.",
            sum(not each.is_online for each in directories),
        ),
        ("ottla_cleaner_logs_at_work", "Logs that are being compacted.", house.compacted_now),
        ("ottla_cleaner_logs_put_off", "Logs that are not compacted because that has failed.", house.not_compacted),
    ):
        yield exposition.single(name, GAUGE, about, value)


_PREFIX = "kafka_server_brokertopicmetrics_"
TOPIC_FAMILIES = {
    "messages_in": Family(f"{_PREFIX}messagesin_total", COUNTER, "Records appended where this broker leads."),
    "bytes_in": Family(f"{_PREFIX}bytesin_total", COUNTER, "Bytes of records appended where this broker leads."),
    "bytes_out": Family(f"{_PREFIX}bytesout_total", COUNTER, "Bytes of records given to consumers."),
    "produce_requests": Family(f"{_PREFIX}totalproducerequests_total", COUNTER, "Appends asked for, by partition."),
    "failed_produce_requests": Family(f"{_PREFIX}failedproducerequests_total", COUNTER, "Appends refused."),
    "fetch_requests": Family(f"{_PREFIX}totalfetchrequests_total", COUNTER, "Reads by consumers, by partition."),
    "failed_fetch_requests": Family(f"{_PREFIX}failedfetchrequests_total", COUNTER, "Reads that failed."),
    "replication_bytes_in": Family(f"{_PREFIX}replicationbytesin_total", COUNTER, "Bytes copied from leaders."),
    "replication_bytes_out": Family(f"{_PREFIX}replicationbytesout_total", COUNTER, "Bytes given to followers."),
}
TOPICS_AT_ONCE = 200


def topics(traffic: Traffic, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of topics, in pieces. Each metric has first the total without label, then each topic."""
    total = traffic.total()
    for count, family in TOPIC_FAMILIES.items():
        name, of_topic = family.name, attrgetter(count)
        yield f"{exposition.head(family)}{name} {of_topic(total)}\n"
        # A topic's name needs no escaping: Kafka allows only letters, digits, dots, dashes and underscores.
        items = list(traffic.by_topic.items())
        for start in range(0, len(items), TOPICS_AT_ONCE):
            some = items[start : start + TOPICS_AT_ONCE]
            yield "".join([f'{name}{{topic="{topic}"}} {of_topic(each)}\n' for topic, each in some])


PARTITIONS_AT_ONCE = 1000

# Kafka's BrokerState.
STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN = 1, 2, 3, 6

_CONTROLLER = "kafka_controller_kafkacontroller_"


def member(broker: Broker, stop: Stop, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics about this broker itself, such as its version and state."""
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
    """Yield the metrics of the active controller. On brokers without it all values are 0, as in Kafka."""
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
OFFSETS_AT_ONCE = 100

_OFFSET = Family("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed.")
_LAG = Family(
    "kafka_consumergroup_lag", GAUGE, "Committed records that a group has not read, where there is a replica here."
)


class _OffsetLines:
    """Writer of a metric family's lines about group offsets, within limits.

    Lines are not cached, because scrapers may be slow and many.
    """

    def __init__(self, replicas: ReplicaManager, family: Family) -> None:
        self._replicas, self._family = replicas, family
        self.left_out = 0
        self._offsets = self._bytes = 0

    def lines(self, group_id: str, topics: TopicOffsets) -> Iterator[str]:
        """Yield the lines of one group's offsets, in pieces."""
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
                if self._offsets % OFFSETS_AT_ONCE == 0:
                    yield "".join(lines)
                    lines = []
        yield "".join(lines)

    def _value(self, topic: str, index: int, offset: int) -> int | None:
        if self._family is _OFFSET:
            return offset
        partition = self._replicas.partition(topic, index)
        return None if partition is None else max(0, partition.high_watermark - offset)


def groups(broker: Broker, exposition: Exposition) -> Iterator[str]:
    """Yield the metrics of consumer groups, in pieces."""
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
