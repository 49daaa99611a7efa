"""The broker as a protocol, for the modules below `broker.py`, which cannot name the class. Handlers name `Broker` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.groupcoord.share.coordinator.service import ShareCoordinator
    from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
    from ottla.groupcoord.transactions.service import Markers, TransactionCoordinator
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.controller.topic_planner import TopicPlanner
    from ottla.replication.fetcher.throttle import ReplicationThrottles
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.api.produce.schema_ids import SchemaIds
    from ottla.server.cluster.administration import Administration
    from ottla.server.cluster.ports import Member
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.repository import ConfigRepository
    from ottla.server.coordinators.coordinators import Coordinators
    from ottla.server.coordinators.transaction_questions import Verifier
    from ottla.server.dispatch.access import Authorizer
    from ottla.server.environment import Environment
    from ottla.server.network.deadlines import Deadlines
    from ottla.server.network.readiness import Readiness
    from ottla.server.security.quotas.client_quotas import ClientQuotas


class BrokerParts(Protocol):
    """The broker, as modules below it see it."""

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer; None if all clients may do everything. Use it by way of `server/dispatch/access.py`."""

    @property
    def cluster(self) -> MetadataCache:
        """Metadata of the cluster: brokers, topics, leaders."""

    def partition(self, topic: str, index: int) -> Partition:
        """Find a partition with a replica here; raises Kafka's error for any other one."""

    def may_be_replaced_at(self, partition: Partition) -> bool:
        """True if another broker may lead a partition without this one knowing."""

    @property
    def replicas(self) -> ReplicaManager:
        """Logs of this broker and their background work."""

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def share_coordinator(self) -> ShareCoordinator: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...

    @property
    def producer_ids(self) -> ProducerIdManager: ...

    @property
    def transaction_markers(self) -> Markers: ...

    @property
    def coordinators(self) -> Coordinators:
        """All coordinators, by the internal topics that they live in."""

    @property
    def node_id(self) -> int: ...

    @property
    def config(self) -> BrokerConfig:
        """Configuration in force, including run-time changes."""

    @property
    def configs(self) -> ConfigRepository: ...

    @property
    def transaction_verifier(self) -> Verifier:
        """Verification of producers' transactions with their coordinators."""

    @property
    def schema_ids(self) -> SchemaIds:
        """Ids of registered schemas, for topics that validate them."""

    @property
    def planner(self) -> TopicPlanner:
        """Planner of topics that are to be created."""

    @property
    def readiness(self) -> Readiness | None:
        """The loop that serves sockets; None in a simulation."""

    @property
    def administration(self) -> Administration: ...

    async def ensure_internal_topic(self, name: str) -> None:
        """Wait until an internal topic exists; raises KafkaError if it cannot be created."""

    @property
    def member(self) -> Member: ...

    @property
    def is_in_cluster(self) -> bool:
        """True for a member of a cluster, False for a lone broker."""

    @property
    def throttles(self) -> ReplicationThrottles: ...

    @property
    def quotas(self) -> ClientQuotas:
        """Client quotas with their meters."""

    @property
    def deadlines(self) -> Deadlines:
        """Timers of waiting requests."""

    @property
    def environment(self) -> Environment:
        """Disks, clocks, threads."""

    def now_ms(self) -> int: ...

    @property
    def transaction_version(self) -> int:
        """Level in use of the feature transaction.version."""
