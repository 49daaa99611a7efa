"""The composition root: builds the parts of a broker. `serving.py` says in which order they start and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    NO_BROKER_EPOCH,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
)
from ottla.replication.cluster.metadata_changes import note_changes
from ottla.replication.cluster.znodes import SECURITY_PROTOCOLS
from ottla.replication.controller.topic_planner import TopicPlanner
from ottla.replication.fetcher.throttle import ReplicationThrottles
from ottla.replication.log.storage import OsStorage
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.server.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION, TRANSACTION_VERSION
from ottla.server.cluster.member import ClusterMember
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.broker_config import cordoned_among
from ottla.server.config.repository import ConfigRepository
from ottla.server.config.server_config import FOLDER
from ottla.server.coordinators.coordinators import Coordinators
from ottla.server.environment import Environment
from ottla.server.network.deadlines import Deadlines
from ottla.server.network.large_requests import LongAnswers
from ottla.server.network.readiness import Readiness
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.server.serving_state import ServingState
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import Happenings

if TYPE_CHECKING:
    import socket

    from ottla.groupcoord.service import GroupCoordinator
    from ottla.groupcoord.share.coordinator.service import ShareCoordinator
    from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
    from ottla.groupcoord.transactions.service import TransactionCoordinator
    from ottla.replication.log.storage import DirectoryLock, Storage
    from ottla.replication.partition.fetch_session import FetchSessionCache
    from ottla.replication.partition.partition import Partition
    from ottla.server.admin.telemetry.subscriptions import Receiver
    from ottla.server.admin.telemetry.telemetry import Telemetry
    from ottla.server.api.produce.schema_ids import SchemaIds
    from ottla.server.api.share.share_partition_manager import SharePartitionManager
    from ottla.server.api.tree_offsets import TreeOffsets
    from ottla.server.cluster.session import CoordinationTree
    from ottla.server.cluster.streams_topics import StreamsTopics
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.endpoint import Endpoint
    from ottla.server.coordinators.transaction_markers import TransactionMarkers
    from ottla.server.coordinators.transaction_verification import TransactionVerifier
    from ottla.server.network.listener import Listener
    from ottla.server.security.authorizer import AclAuthorizer
    from ottla.server.security.oauth.key_sources import KeySources
    from ottla.server.security.sasl_listener import FailedLogins, SaslListener, UnauthenticatedPeers
    from ottla.server.security.scram_users import FirstUser, ScramUsers
    from ottla.server.security.tls_listener import TlsListeners
    from ottla.server.security.tokens import DelegationTokens


class LatePart(Protocol):
    """Part of the broker that is created only when it is first used."""

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the background tasks of this part; they end with the nursery."""


PartT = TypeVar("PartT", bound=LatePart)


class Broker:
    """All parts of one broker, in one container for the request handlers. Each process has one."""

    def __init__(
        self, config: BrokerConfig, environment: Environment | None = None, readiness: Readiness | None = None
    ) -> None:
        self._nursery: trio.Nursery | None = None
        self._early: list[LatePart] = []
        self._workers_lock: DirectoryLock | None = None
        self.environment = environment or Environment()
        self.happenings = Happenings(self.environment.clock_ms)
        self.authorizer = self._authorizer(config)
        self.tokens = self._tokens(config)
        self.readiness = readiness
        self.configs = ConfigRepository(config)
        self.tls = self._tls(config)
        self.cluster = MetadataCache(controller_id=config.node_id)
        self.cluster.on_replaced = partial(note_changes, self.happenings.note, self.cluster)
        self.listeners: list[Listener] = []
        self.serving_state = ServingState()
        self.http_address: tuple[str, int] | None = None
        self.receiver: Receiver | None = None
        self.http_token = ""
        """Token that opens the console, if the operator has to be given one; else empty."""
        self.long_answers = LongAnswers()
        self.deadlines = Deadlines()
        self.throttles = ReplicationThrottles(
            config.node_id, config=lambda: self.config.replication, log_config=self.configs.log_config
        )
        self.replicas = ReplicaManager(
            [str(path) for path in config.log_dirs],
            node_id=config.node_id,
            config=config.replication,
            storage=self.environment.storage,
            descriptors=self.environment.descriptors,
            clock_ms=self.environment.clock_ms,
            run_in_thread=self.environment.run_in_thread,
            log_dirs_throttle=self.throttles.log_dirs,
            note=self.happenings.note,
        )
        self._cordon(config)
        self.planner = TopicPlanner(
            self.cluster,
            partition_count=config.replication.num_partitions,
            replication_factor=config.replication.default_replication_factor,
            # Of the others nobody knows: what brokers tell of themselves in ZooKeeper has no place for it.
            is_cordoned=lambda node_id: node_id == self.node_id and self.replicas.directories.are_all_cordoned,
        )
        self.is_in_cluster = config.is_member
        self.member = ClusterMember(self, self._tree())
        self.configs.has_eligible_leaders = lambda: self.member.features.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0
        self.administration = self.member.administration
        self.quotas = ClientQuotas(config.quotas)
        self.administration.settings.entities.on_change(self.quotas.take)
        self.coordinators = Coordinators(
            {
                GROUP_METADATA_TOPIC: lambda: self.groups,
                SHARE_GROUP_STATE_TOPIC: lambda: self.share_coordinator,
                TRANSACTION_STATE_TOPIC: lambda: self.transactions,
            },
            _import_coordinators,
        )
        self.configs.on_change(self._take_up_settings)

    def _authorizer(self, config: BrokerConfig) -> AclAuthorizer | None:
        if config.authorizer is None:
            return None
        from ottla.server.security.authorizer import AclAuthorizer  # here, because most brokers have none

        return AclAuthorizer(config.authorizer, lambda: self.environment.clock_ms() / 1000)

    def _tokens(self, config: BrokerConfig) -> DelegationTokens | None:
        if not config.tokens.secret_key:
            return None
        from ottla.server.security.tokens import DelegationTokens  # here, because most brokers have none

        return DelegationTokens(config.tokens.secret_key)

    def _tls(self, config: BrokerConfig) -> TlsListeners | None:
        if not any(each.is_encrypted for each in config.listeners):
            return None
        from ottla.server.security.tls_listener import TlsListeners  # here, because many brokers do without

        # A broker that is alone connects to nobody.
        return TlsListeners(config.listeners, self.configs, config.between_brokers if config.is_member else ())

    # ------------------------------------------------------------------ parts that a broker may do without

    # Their code is half of all. It is loaded when somebody first asks for one of them, or when this broker turns out to
    # lead a partition that one of them lives in.

    @cached_property
    def groups(self) -> GroupCoordinator:
        from ottla.server.coordinator_factory import make_groups

        coordinator = self._started(make_groups(self))
        self.coordinators.take_up(GROUP_METADATA_TOPIC, coordinator)
        return coordinator

    @property
    def begun_groups(self) -> GroupCoordinator | None:
        """Group coordinator; None until a client uses groups or this broker leads a `__consumer_offsets` partition."""
        return self.__dict__.get("groups")

    @cached_property
    def tree_offsets(self) -> TreeOffsets:
        from ottla.server.api.tree_offsets import TreeOffsets

        return TreeOffsets(
            self.member.session,
            topics=self.cluster,
            metadata_max=lambda: self.config.groups.offset_metadata_max_bytes,
        )

    @cached_property
    def producer_ids(self) -> ProducerIdManager:
        from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
        from ottla.server.coordinators.coordinators import ProducerIdBlocks

        return ProducerIdManager(ProducerIdBlocks(self.member.session, self.node_id).allocate_block, trio.Lock())

    @cached_property
    def fetch_sessions(self) -> FetchSessionCache:
        from ottla.replication.partition.fetch_session import FetchSessionCache, random_session_id

        slots = self.configs.started_with.replication.max_incremental_fetch_session_cache_slots
        return FetchSessionCache(slots, partial(random_session_id, self.environment.random_bytes))

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        from ottla.server.coordinator_factory import make_transactions

        coordinator = self._started(make_transactions(self))
        self.coordinators.take_up(TRANSACTION_STATE_TOPIC, coordinator)
        return coordinator

    @cached_property
    def transaction_markers(self) -> TransactionMarkers:
        from ottla.server.coordinator_factory import make_transaction_markers

        return self._started(make_transaction_markers(self))

    @cached_property
    def transaction_verifier(self) -> TransactionVerifier:
        from ottla.server.coordinators.transaction_verification import TransactionVerifier

        return self._started(TransactionVerifier(self))

    @cached_property
    def schema_ids(self) -> SchemaIds:
        from ottla.server.api.produce.schema_ids import SchemaIds

        return SchemaIds(self.configs.started_with.schema_registry)

    @cached_property
    def share_coordinator(self) -> ShareCoordinator:
        from ottla.server.coordinator_factory import make_share_coordinator

        coordinator = self._started(make_share_coordinator(self))
        self.coordinators.take_up(SHARE_GROUP_STATE_TOPIC, coordinator)
        return coordinator

    @cached_property
    def share_groups(self) -> SharePartitionManager:
        from ottla.server.api.share.share_partition_manager import SharePartitionManager

        return self._started(SharePartitionManager(self))

    @cached_property
    def telemetry(self) -> Telemetry:
        from ottla.server.admin.telemetry.telemetry import Telemetry

        assert self.receiver is not None  # or nobody would be asked for metrics
        return self._started(Telemetry(self.configs, self.receiver, self.environment.random_bytes, self.now_ms))

    @property
    def begun_telemetry(self) -> Telemetry | None:
        """Manager of client metrics; None until a client sends GetTelemetrySubscriptions."""
        return self.__dict__.get("telemetry")

    @cached_property
    def scram_users(self) -> ScramUsers:
        from ottla.server.security.scram_users import ScramUsers

        users = ScramUsers(self.member.security.login_secret, self.tokens)
        self.administration.settings.entities.on_change(users.on_entity)
        return users

    @cached_property
    def _failed_logins(self) -> FailedLogins:
        from ottla.server.security.sasl_listener import FailedLogins

        return FailedLogins(note=self.happenings.note)

    @cached_property
    def _unauthenticated_peers(self) -> UnauthenticatedPeers:
        from ottla.server.security.sasl_listener import UnauthenticatedPeers

        return UnauthenticatedPeers()

    @cached_property
    def _token_key_sources(self) -> KeySources:
        from ottla.server.security.oauth.key_sources import KeySources

        return self._started(KeySources())

    def sasl_of(self, listener: str) -> SaslListener | None:
        """Create the SASL authentication of `listener`; None if the listener does not use SASL."""
        if (config := self.configs.started_with.sasl.get(listener)) is None:
            return None
        from ottla.server.security.sasl_listener import SaslListener

        made = SaslListener(
            config, self.scram_users, self._failed_logins, self._unauthenticated_peers, lambda: self._token_key_sources
        )
        made.follow(self.configs, listener)
        return made

    @cached_property
    def streams_topics(self) -> StreamsTopics:
        from ottla.server.cluster.streams_topics import StreamsTopics

        return StreamsTopics(self.administration, self.environment.clock_ms)

    def _started(self, part: PartT) -> PartT:
        """Start `part`, immediately if the broker runs, otherwise when the broker starts; return `part`."""
        if self._nursery is None:
            self._early.append(part)
        else:
            part.start_in(self._nursery)
        return part

    # ------------------------------------------------------------------ what handlers ask

    @property
    def config(self) -> BrokerConfig:
        """Configuration in force, including changes made at run time."""
        return self.configs.current

    @property
    def node_id(self) -> int:
        return self.configs.started_with.node_id

    @property
    def transaction_version(self) -> int:
        """Feature level of transaction.version in use (KIP-890)."""
        return self.member.features.level(TRANSACTION_VERSION)

    def _tree(self) -> CoordinationTree:
        if self.config.zookeeper is not None:
            from ottla.server.cluster.start.member_trees import ZooKeeperTree  # here, because most brokers are alone

            return ZooKeeperTree(self, self.config.zookeeper)
        if self.config.worker is not None and self.config.worker.has_own_tree:
            from ottla.server.cluster.start.member_trees import WorkersTree

            return WorkersTree(self, self.config.coordination, self.config.worker.number)
        if self.config.is_member:
            from ottla.server.cluster.start.member_trees import ServedTree

            return ServedTree(self, self.config.coordination)
        from ottla.server.cluster.start.own_tree import OwnTree

        return OwnTree(self)

    def _take_up_settings(self, changed: BrokerConfig) -> None:
        self.replicas.config = changed.replication
        self._cordon(changed)

    def _cordon(self, config: BrokerConfig) -> None:
        self.replicas.directories.cordon(map(str, cordoned_among(config.log_dirs, config.server.cordoned_log_dirs)))

    def now_ms(self) -> int:
        return self.environment.clock_ms()

    def partition(self, topic: str, index: int) -> Partition:
        """Return the local replica of a partition. Raises KafkaError if this broker has none, or must not serve it."""
        partition = self.replicas.partition(topic, index)
        if partition is None:
            known = self.cluster.partition(topic, index)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if self.node_id in known.replicas and self.replicas.is_offline(topic, index):
                # Kafka's clients look for another leader when they hear this.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic}-{index} is offline")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # Nobody replaces a broker that is alone, which asks for every batch that it takes.
        if self.is_in_cluster and self.may_be_replaced_at(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker may have been replaced as a leader")
        return partition

    def may_be_replaced_at(self, partition: Partition) -> bool:
        """Return True if another broker may lead `partition` already; this broker must then not answer as leader."""
        return partition.must_hear or self.member.is_fenced

    async def ensure_internal_topic(self, name: str) -> None:
        """Wait until the internal topic `name` exists. Raises KafkaError if the topic cannot be created."""
        await self.administration.ensure_topic(name)

    # ------------------------------------------------------------------ life

    async def open(self, sessions: trio.Nursery) -> None:
        """Load logs and settings. No client is served before. A task in `sessions` holds the session with the tree."""
        await self.replicas.open()
        await self._keep_out_workers()
        await sessions.start(self.member.hold)
        await self.member.open()
        for user in self.configs.started_with.first_users:
            await self._add_user(user)

    async def _keep_out_workers(self) -> None:
        """Raise LogDirectoryProblem if workers, or their partitions, are in this lone broker's log directories.

        Do nothing if this broker is itself a worker.
        """
        config, storage = self.configs.started_with, self.environment.storage or OsStorage()
        if config.worker is None and any(_is_there(storage, f"{each}/{FOLDER}") for each in config.log_dirs):
            from ottla.server.cluster.start.worker_folders import (
                keep_out_workers,  # here, because most brokers were always alone
            )

            dirs = [str(each) for each in config.log_dirs]
            self._workers_lock = await self.environment.run_in_thread(keep_out_workers, storage, dirs)

    async def _add_user(self, user: FirstUser) -> None:
        """Add the SCRAM credential of `user`, unless the user already has one for this mechanism."""
        from ottla.server.security.scram_users import user_entity

        entity, entities = user_entity(user.name), self.administration.settings.entities
        if user.mechanism not in entities.texts(entity):
            credential = await self.environment.run_in_thread(user.credential)
            try:
                await entities.alter(entity, lambda texts: {user.mechanism: credential, **texts})
            except KafkaError as error:
                reason = error.message or error.code.name
                raise JoinProblem(f"--add-scram: user {user.name!r} cannot be kept: {reason}") from None

    async def close(self) -> None:
        """Flush all logs and unlock the log directories."""
        # Whatever cancels the broker, its logs have to reach the disk.
        with trio.CancelScope(shield=True):
            await self.replicas.shutdown(self.member.broker_epoch if self.is_in_cluster else NO_BROKER_EPOCH)
            if self._workers_lock is not None:
                self._workers_lock.release()

    def register(self, bound: Sequence[tuple[Endpoint, socket.socket]]) -> None:
        """Register the addresses at which clients reach this broker."""
        endpoints, protocols = {}, {}
        rack = self.config.server.broker_rack
        for endpoint, sock in bound:
            # The port of the setting may be 0, and clients need the one that was bound.
            told = self.config.advertised_endpoint(endpoint.listener, sock.getsockname()[1])
            endpoints[endpoint.listener] = BrokerEndpoint(self.node_id, told.host, told.port, rack)
            protocols[endpoint.listener] = SECURITY_PROTOCOLS[endpoint.security_protocol]
        self.member.register(BrokerRegistration(self.node_id, endpoints, rack, security_protocols=protocols))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """Run the background tasks of the broker until the block ends; yields their nursery."""
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self.replicas.run)
                self._nursery = nursery
                for part in self._early:
                    part.start_in(nursery)
                await nursery.start(self.member.run)
                nursery.start_soon(self.deadlines.run)
                if self.tls is not None:
                    nursery.start_soon(self.tls.watch_files)
                yield nursery
                nursery.cancel_scope.cancel()
            finally:
                # The controller may still ask this broker to lead, and so to have a coordinator. In here, because the nursery
                # is closed before whoever waits for its end has a turn.
                self._nursery = None


def _import_coordinators() -> None:
    from ottla.server import coordinator_factory  # noqa: F401


def _is_there(storage: Storage, folder: str) -> bool:
    try:
        return storage.is_directory(folder)
    except OSError:  # a broken disk, of which others tell
        return False
