"""Parts of a broker, as protocols for the modules below `broker.py`; `Broker` has them all. Handlers name `Broker` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.groupcoord.share.coordinator.service import ShareCoordinator
    from ottla.groupcoord.transactions.service import TransactionCoordinator
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.controller.topic_planner import TopicPlanner
    from ottla.replication.fetcher.throttle import ReplicationThrottles
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.cluster.administration import Administration
    from ottla.server.cluster.ports import Member
    from ottla.server.coordinators.coordinators import Coordinators
    from ottla.server.coordinators.transaction_questions import Verifier
    from ottla.server.environment import Environment
    from ottla.server.gate.access import Authorizer
    from ottla.server.net.deadlines import Deadlines
    from ottla.server.net.readiness import Readiness
    from ottla.server.quotas.client_quotas import ClientQuotas
    from ottla.server.settings.broker_config import BrokerConfig
    from ottla.server.settings.repository import ConfigRepository


class HasAuthorizer(Protocol):
    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer; None if everybody may do everything. Ask by way of `gate/access.py`."""


class HasCluster(Protocol):
    @property
    def cluster(self) -> MetadataCache:
        """The picture of the cluster: brokers, topics, who leads what."""


class HasPartitions(Protocol):
    def partition(self, topic: str, index: int) -> Partition:
        """A partition that this broker holds; raises as Kafka answers for one that it does not."""


class HasReplicas(Protocol):
    @property
    def replicas(self) -> ReplicaManager:
        """The logs of this broker and the work behind them."""


class HasGroups(Protocol):
    @property
    def groups(self) -> GroupCoordinator: ...


class HasShareCoordinator(Protocol):
    @property
    def share_coordinator(self) -> ShareCoordinator: ...


class HasTransactions(Protocol):
    @property
    def transactions(self) -> TransactionCoordinator: ...


class HasCoordinators(Protocol):
    @property
    def coordinators(self) -> Coordinators:
        """All coordinators, by the internal topics that they live in."""


class HasSettings(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force, run-time changes included."""

    @property
    def configs(self) -> ConfigRepository: ...


class HasTransactionVerifier(Protocol):
    @property
    def transaction_verifier(self) -> Verifier:
        """Verification of producers' transactions with their coordinators."""


class HasPlanner(Protocol):
    @property
    def planner(self) -> TopicPlanner:
        """Planner of topics that are to be created."""


class HasReadiness(Protocol):
    @property
    def readiness(self) -> Readiness | None:
        """The loop that serves sockets; None in a simulation."""


class HasAdministration(Protocol):
    @property
    def administration(self) -> Administration: ...

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once an internal topic exists; raises KafkaError if it cannot be made."""


class HasMember(Protocol):
    @property
    def member(self) -> Member: ...

    @property
    def is_in_cluster(self) -> bool:
        """True if there may be other brokers; else this one is alone."""


class HasThrottles(Protocol):
    @property
    def throttles(self) -> ReplicationThrottles: ...


class HasQuotas(Protocol):
    @property
    def quotas(self) -> ClientQuotas:
        """Quotas of clients, and what they have used."""


class HasDeadlines(Protocol):
    @property
    def deadlines(self) -> Deadlines:
        """Timers of waiting requests."""


class HasEnvironment(Protocol):
    @property
    def environment(self) -> Environment:
        """Disks, clocks, threads."""

    def now_ms(self) -> int: ...
