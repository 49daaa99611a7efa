"""This broker as a member of its cluster, its session, and the controller if it is here (Kafka's KafkaController)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import ottla
from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.server.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import MetadataCache, PartitionState
    from ottla.server.cluster.member import ClusterMember
    from ottla.server.net.listener import Listener
    from ottla.server.serving_state import Stop
    from ottla.server.settings.broker_config import BrokerConfig

    class Port(Protocol):
        """What is needed of the broker here."""

        cluster: MetadataCache
        listeners: list[Listener]
        member: ClusterMember

        @property
        def node_id(self) -> int: ...

        @property
        def config(self) -> BrokerConfig: ...


PARTITIONS_AT_ONCE = 1000

# Kafka's BrokerState.
STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN = 1, 2, 3, 6

_CONTROLLER = "kafka_controller_kafkacontroller_"


def member(broker: Port, stop: Stop, exposition: Exposition) -> Iterator[str]:
    """Whether this broker takes part, and of what."""
    build = Family("ottla_build_info", GAUGE, "1, with the version, and which of several workers it is.")
    labels = {"version": ottla.__version__, "cluster_id": broker.cluster.cluster_id}
    if (worker := broker.config.worker) is not None:
        labels["worker"] = str(worker.number)
    yield exposition.family(build, [(labels, 1)])
    for name, told, value in (
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
        yield exposition.single(name, GAUGE, told, int(value))


def _state(broker: Port, stop: Stop) -> int:
    if stop.asked.is_set():
        return PENDING_CONTROLLED_SHUTDOWN
    if not broker.cluster.cluster_id:
        return STARTING
    is_open = bool(broker.listeners) and all(each.calls.opened.is_set() for each in broker.listeners)
    return RUNNING if is_open else RECOVERY


def controller(broker: Port, exposition: Exposition) -> Iterator[str]:
    """What the active controller knows of the whole cluster: as in Kafka, all others tell 0."""
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
    for name, told, value in (
        ("activecontrollercount", "1: the controller is here.", int(is_here)),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("preferredreplicaimbalancecount", "Partitions that another than the preferred replica leads.", imbalanced),
        ("globaltopiccount", "Topics of the cluster.", len(cluster.topics) * is_here),
        ("globalpartitioncount", "Partitions of the cluster.", count),
        ("activebrokercount", "Brokers of the cluster.", len(cluster.brokers) * is_here),
    ):
        yield exposition.single(_CONTROLLER + name, GAUGE, told, value)
    stats = "kafka_controller_controllerstats_"
    told = "Leaders chosen that were not in sync: records may be lost."
    yield exposition.single(f"{stats}uncleanleaderelections_total", COUNTER, told, unclean)
    yield exposition.single(f"{stats}leaderelections_total", COUNTER, "Leaders chosen instead of others.", elections)


def _partitions(cluster: MetadataCache) -> Iterator[PartitionState]:
    # A copy: topics come and go between two looks.
    for topic in list(cluster.topics.values()):
        yield from topic.partitions
