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
    from ottla.wire.happenings import Happenings


class BrokerParts(Protocol):
    """Interface of the broker for its own modules: the parts of the broker that they use."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Authorizer; None if all clients may do everything. Call it through `server/dispatch/access.py`."""

    @property
    def cluster(self) -> MetadataCache:
        """Metadata cache of the cluster: brokers, topics, leaders."""

    def partition(self, topic: str, index: int) -> Partition:
        """Return the local replica of a partition. Raises KafkaError if this broker has none, or must not serve it."""

    def may_be_replaced_at(self, partition: Partition) -> bool:
        """Return True if another broker may lead `partition` by now without this broker knowing it."""

    @property
    def replicas(self) -> ReplicaManager:
        """Replica manager: the logs of this broker and the background work on these logs."""

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
        """All coordinators, by the internal topics that hold their state."""

    @property
    def node_id(self) -> int: ...

    @property
    def config(self) -> BrokerConfig:
        """Configuration in force, including changes made at run time."""

    @property
    def configs(self) -> ConfigRepository: ...

    @property
    def transaction_verifier(self) -> Verifier:
        """Verifier that asks transaction coordinators whether a producer's transaction is open."""

    @property
    def schema_ids(self) -> SchemaIds:
        """Ids of registered schemas, for topics whose records are validated against schemas."""

    @property
    def planner(self) -> TopicPlanner:
        """Planner that assigns the replicas of new topics."""

    @property
    def readiness(self) -> Readiness | None:
        """Event loop that serves sockets; None in a simulation."""

    @property
    def administration(self) -> Administration: ...

    async def ensure_internal_topic(self, name: str) -> None:
        """Wait until the internal topic `name` exists. Raises KafkaError if the topic cannot be created."""

    @property
    def member(self) -> Member: ...

    @property
    def is_in_cluster(self) -> bool:
        """Return True if this broker is a member of a cluster, False for a lone broker."""

    @property
    def throttles(self) -> ReplicationThrottles: ...

    @property
    def quotas(self) -> ClientQuotas:
        """Client quotas and the meters of their usage."""

    @property
    def deadlines(self) -> Deadlines:
        """Timers of waiting requests."""

    @property
    def happenings(self) -> Happenings:
        """Happenings out of the ordinary at this broker, with their causes."""

    @property
    def environment(self) -> Environment:
        """External resources: disks, clocks, threads."""

    def now_ms(self) -> int: ...

    @property
    def transaction_version(self) -> int:
        """Feature level of transaction.version in use (KIP-890)."""
