"""The composition root: builds the parts of a broker. `serving.py` says in which order they start and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.service import GroupCoordinator
from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.replication.cluster.state import (
    GROUP_METADATA_TOPIC,
    NO_BROKER_EPOCH,
    BrokerEndpoint,
    BrokerRegistration,
    ClusterState,
)
from ottla.replication.control.topic_planner import TopicPlanner
from ottla.replication.following.throttle import ReplicationThrottles
from ottla.replication.hosting.manager import ReplicaManager
from ottla.replication.partition.fetch_session import FetchSessionCache
from ottla.server.cluster.member import ClusterMember
from ottla.server.coordinators.coordinator_log import offsets_topic
from ottla.server.coordinators.coordinators import Coordinators
from ottla.server.coordinators.producer_id_blocks import ProducerIdBlocks
from ottla.server.net.deadlines import Deadlines
from ottla.server.net.long_answers import LongAnswers
from ottla.server.net.readiness import Readiness
from ottla.server.settings.repository import ConfigRepository
from ottla.server.surroundings import Surroundings
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import socket

    from ottla.replication.partition.partition import Partition
    from ottla.server.cluster.session import CoordinationTree
    from ottla.server.net.listener import Listener
    from ottla.server.settings.broker_config import BrokerConfig, Endpoint

INT_MAX = (1 << 31) - 1


class Broker:
    """Everything a handler may need; one per process."""

    def __init__(
        self, config: BrokerConfig, surroundings: Surroundings | None = None, readiness: Readiness | None = None
    ) -> None:
        self.surroundings = surroundings or Surroundings()
        self.readiness = readiness
        self.configs = ConfigRepository(config)
        self.cluster = ClusterState(controller_id=config.node_id)
        self.listeners: list[Listener] = []
        self.long_answers = LongAnswers()
        self.deadlines = Deadlines()
        self.throttles = ReplicationThrottles(
            config.node_id, config=lambda: self.config.replication, log_config=self.configs.log_config
        )
        self.replicas = ReplicaManager(
            [str(path) for path in config.log_dirs],
            node_id=config.node_id,
            config=config.replication,
            storage=self.surroundings.storage,
            descriptors=self.surroundings.descriptors,
            clock_ms=self.surroundings.clock_ms,
            run_in_thread=self.surroundings.run_in_thread,
            log_dirs_throttle=self.throttles.log_dirs,
        )
        self.planner = TopicPlanner(
            self.cluster,
            partition_count=config.replication.num_partitions,
            replication_factor=config.replication.default_replication_factor,
        )
        self.groups = GroupCoordinator(config.groups, offsets_topic(self), self.cluster)
        self.coordinators = Coordinators({GROUP_METADATA_TOPIC: self.groups})
        self.is_in_cluster = config.zookeeper is not None
        self.member = ClusterMember(self, self._tree())
        self.administration = self.member.administration
        self.producer_ids = ProducerIdManager(
            ProducerIdBlocks(self.member.session, config.node_id).allocate_block, trio.Lock()
        )
        self.configs.on_change(self._take_up_settings)
        self.fetch_sessions = FetchSessionCache(
            config.replication.max_incremental_fetch_session_cache_slots,
            lambda: self.surroundings.random.randint(1, INT_MAX),
        )

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force, run-time changes included."""
        return self.configs.current

    @property
    def node_id(self) -> int:
        return self.configs.started_with.node_id

    def _tree(self) -> CoordinationTree:
        if self.config.zookeeper is not None:
            from ottla.server.start.zookeeper_tree import ZooKeeperTree  # here, because most brokers are alone

            return ZooKeeperTree(self, self.config.zookeeper)
        from ottla.server.start.own_tree import OwnTree

        return OwnTree(self)

    def _take_up_settings(self, changed: BrokerConfig) -> None:
        self.replicas.config = changed.replication

    def now_ms(self) -> int:
        return self.surroundings.clock_ms()

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that this broker holds; raises as Kafka answers for one that it does not."""
        partition = self.replicas.partition(topic, index)
        if partition is None:
            known = self.cluster.partition(topic, index)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if self.node_id in known.replicas and self.replicas.is_offline(topic, index):
                # Kafka's clients look for another leader when they hear this.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic}-{index} is offline")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # A fenced member may have been replaced without knowing it. It must not answer as a leader then. Nobody replaces
        # a broker that is alone, which asks for every batch that it takes.
        if self.is_in_cluster and (partition.must_hear or self.member.is_fenced):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker may have been replaced as a leader")
        return partition

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once an internal topic exists; raises KafkaError if it cannot be made."""
        await self.administration.ensure_topic(name)

    # ------------------------------------------------------------------ life

    async def open(self, sessions: trio.Nursery) -> None:
        """Load the logs and settings; nobody is served yet. In `sessions` the session with the coordination tree is held."""
        await self.replicas.open()
        await sessions.start(self.member.hold)
        await self.member.open()

    async def close(self) -> None:
        """Everything to disk, and the directories free for the next broker."""
        # Whatever cancels the broker, its logs have to reach the disk.
        with trio.CancelScope(shield=True):
            await self.replicas.shutdown(self.member.broker_epoch if self.is_in_cluster else NO_BROKER_EPOCH)

    def register(self, bound: Sequence[tuple[Endpoint, socket.socket]]) -> None:
        """Let the cluster know where clients reach this broker."""
        endpoints = {}
        for endpoint, sock in bound:
            # The port of the setting may be 0, and clients need the one that was bound.
            told = self.config.advertised_endpoint(endpoint.listener, sock.getsockname()[1])
            rack = self.config.server.broker_rack
            endpoints[endpoint.listener] = BrokerEndpoint(self.node_id, told.host, told.port, rack)
        self.member.register(BrokerRegistration(self.node_id, endpoints, self.config.server.broker_rack))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """The background work; leaves when the last log directory has failed, too."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.replicas.run)
            await nursery.start(self.groups.run)
            await nursery.start(self.member.run)
            nursery.start_soon(self.deadlines.run)
            yield nursery
            nursery.cancel_scope.cancel()
