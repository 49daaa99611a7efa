"""The parts of a broker, as ports: whoever is given a broker names the parts that it uses. `Broker` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.groupcoord.share.coordinator.service import ShareCoordinator
    from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
    from ottla.groupcoord.transactions.service import TransactionCoordinator
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.controller.topic_planner import TopicPlanner
    from ottla.replication.fetcher.throttle import ReplicationThrottles
    from ottla.replication.partition.fetch_session import FetchSessionCache
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.auth.scram_users import ScramUsers
    from ottla.server.cluster.administration import Administration
    from ottla.server.cluster.ports import Member
    from ottla.server.cluster.streams_topics import StreamsTopics
    from ottla.server.coordinators.coordinators import Coordinators
    from ottla.server.coordinators.transaction_questions import Verifier
    from ottla.server.environment import Environment
    from ottla.server.gate.access import Authorizer
    from ottla.server.net.deadlines import Deadlines
    from ottla.server.net.long_answers import LongAnswers
    from ottla.server.net.readiness import Readiness
    from ottla.server.quotas.client_quotas import ClientQuotas
    from ottla.server.settings.broker_config import BrokerConfig
    from ottla.server.settings.repository import ConfigRepository
    from ottla.server.telemetry.receiver import Receiver
    from ottla.server.telemetry.telemetry import Telemetry


class HasAuthorizer(Protocol):
    @property
    def authorizer(self) -> Authorizer | None:
        """What decides who may do what; None if everybody may do everything. Ask by way of `gate/access.py`."""


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


class HasGuardedGroups(HasAuthorizer, HasGroups, Protocol):
    """Groups, and what decides who may do what with them."""


class HasShareCoordinator(Protocol):
    @property
    def share_coordinator(self) -> ShareCoordinator: ...


class HasGuardedShareCoordinator(HasAuthorizer, HasShareCoordinator, Protocol):
    """The share coordinator, and what decides who may ask it."""


class HasTransactions(Protocol):
    @property
    def transactions(self) -> TransactionCoordinator: ...


class HasGuardedTransactions(HasAuthorizer, HasTransactions, Protocol):
    """Transactions, and what decides who may do what with them."""


class HasCoordinators(Protocol):
    @property
    def coordinators(self) -> Coordinators:
        """All coordinators, by the internal topics that they live in."""


class HasProducerIds(Protocol):
    @property
    def producer_ids(self) -> ProducerIdManager: ...


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
        """What asks coordinators about transactions."""


class HasPlanner(Protocol):
    @property
    def planner(self) -> TopicPlanner:
        """What makes plans of requests for topics."""


class HasReadiness(Protocol):
    @property
    def readiness(self) -> Readiness | None:
        """What serves sockets; None in a simulation."""


class HasAdministration(Protocol):
    @property
    def administration(self) -> Administration: ...

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once an internal topic exists; raises KafkaError if it cannot be made."""


class HasStreamsTopics(Protocol):
    @property
    def streams_topics(self) -> StreamsTopics:
        """What creates the topics that streams applications need for themselves."""


class HasMember(Protocol):
    @property
    def member(self) -> Member: ...

    @property
    def is_in_cluster(self) -> bool:
        """Whether there may be other brokers; else this one is alone."""


class HasGuardedMember(HasAuthorizer, HasMember, Protocol):
    """The cluster and the controller, and what decides who may ask them."""


class HasFetchSessions(Protocol):
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...


class HasThrottles(Protocol):
    @property
    def throttles(self) -> ReplicationThrottles: ...


class HasQuotas(Protocol):
    @property
    def quotas(self) -> ClientQuotas:
        """What clients may use, and have used."""


class HasDeadlines(Protocol):
    @property
    def deadlines(self) -> Deadlines:
        """What is to be called when the time of a waiting request is over."""


class HasLongAnswers(Protocol):
    @property
    def long_answers(self) -> LongAnswers:
        """Answers about the whole cluster, kept until it changes."""


class HasScramUsers(Protocol):
    @property
    def scram_users(self) -> ScramUsers:
        """Who may log in by SCRAM."""


class HasReceiver(Protocol):
    @property
    def receiver(self) -> Receiver | None:
        """What takes metrics that clients push; None if nobody does."""


class HasTelemetry(Protocol):
    @property
    def telemetry(self) -> Telemetry:
        """Which clients are asked for which metrics. There has to be a receiver."""


class HasEnvironment(Protocol):
    @property
    def environment(self) -> Environment:
        """Disks, clocks, threads."""

    def now_ms(self) -> int: ...
