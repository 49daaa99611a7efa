"""A broker's membership of its cluster: session with the coordination tree, registration, and the tasks that depend on them.

A broker that is alone is a cluster of one: its tree is its own (`start/own_tree.py`), its session lasts as long as the
process, and the controller is always here.

The life of a member

    hold: a session -> open: read settings, load logs -> join: register, take part -> leave: hand over
            ^                                                     |
            +------- the session has ended: another one ----------+

Registration: the ephemeral node /brokers/ids/<id>. The transaction that made it is the *broker epoch*, by which requests
for an earlier life of this broker are told apart (KIP-380). When the session ends, its node is deleted. Then the member
registers again, and the controller sends it the partitions that it leads and follows.

Fencing: a broker must not serve what it leads when it may have been replaced without hearing of it. It is *fenced* while its
session may have ended (`session_sure_until`), and after a new registration until a controller has spoken to it under the
new epoch. What it led before it serves only after LeaderAndIsr has named it again (`ControllerRequests.begin_anew`). A fenced
broker answers NOT_LEADER_OR_FOLLOWER for every partition, so that clients look for the leader elsewhere. It may lead again a
moment later; `replication/partition/retry_window.py` keeps the order of what producers send meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    AccessDenied,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    NodeExists,
    SessionExpired,
)
from ottla.replication.cluster.metadata_cache import NO_BROKER_EPOCH, BrokerRegistration
from ottla.replication.cluster.peers import Peer
from ottla.replication.replica_manager.controller_fencing import ControllerFencing
from ottla.replication.replica_manager.controller_requests import ControllerRequests, NoFetchers
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.administration import Administration, until_shown
from ottla.server.cluster.broker_connections import BrokerConnections
from ottla.server.cluster.config_notifications import ConfigNotifications
from ottla.server.cluster.controller.controller_election import ControllerElection
from ottla.server.cluster.controller_channel import ask_active_controller
from ottla.server.cluster.features import Features
from ottla.server.cluster.log_dirs import LogDirFailures, settle_identities
from ottla.server.cluster.prepared_logs import PreparedLogs
from ottla.server.cluster.security import Security
from ottla.server.cluster.session import (
    ClusterSession,
    CoordinationTree,
    JoinProblem,
    Session,
    random_cluster_id,
    settle_cluster_id,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.replication.controller.decisions import TopicPartition
    from ottla.replication.fetcher.fetcher_manager import ReplicaFetcherManager
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.alter_partition_manager import AlterPartitionManager
    from ottla.server.cluster.acl_store import AclStore
    from ottla.server.cluster.broker_connections import BrokerPort
    from ottla.server.cluster.controller.active_controller import ActiveController
    from ottla.server.cluster.forwarding import ForwardingManager
    from ottla.server.cluster.token_store import TokenStore
    from ottla.wire.schema import Message

logger = logging.getLogger("ottla.cluster")

RETRY_S = 1.0
ASK_AGAIN_S = 0.1
SETTINGS_RETRY_S = 5.0
METADATA_WAIT_S = 10.0  # how long a starting broker waits until the controller names it
TOPICS_WAIT_S = 5.0  # how long clients then wait until the controller names the topics


class ClusterMember:
    def __init__(self, broker: BrokerPort, tree: CoordinationTree) -> None:
        self._broker, self._tree = broker, tree
        self._registration: BrokerRegistration | None = None
        self._connections = BrokerConnections(broker, is_alone=not tree.is_shared)
        self._to_controller = self._connections.controller_channel()
        # A session is held before the logs are loaded, but the broker registers only when `join` is called.
        self._may_join, self._has_joined, self._has_started = trio.Event(), trio.Event(), trio.Event()
        self._join_problem = ""
        self._background: trio.Nursery | None = None
        self._loaded: Counter[str] = Counter()  # partitions, by topic
        # Read again at every use (the lambdas below), as each registration has its own.
        self.broker_epoch, self.session = NO_BROKER_EPOCH, ClusterSession()
        self.fetchers = self._fetchers() if tree.is_shared else None
        self.controller_requests = ControllerRequests(
            broker.replicas,
            broker.cluster,
            self.fetchers or NoFetchers(),
            self,
            topic_config=broker.configs.log_config,
            learn_settings=self._learn_settings,
            broker_epoch=lambda: self.broker_epoch,
            clock_ms=broker.now_ms,
            # Only a lone broker itself can speak in its controller's name.
            fencing=ControllerFencing(self.session, broker.node_id) if tree.is_shared else None,
            is_alone=not tree.is_shared,
        )
        self.election = ControllerElection(
            self.session,
            broker.node_id,
            peer=self._connections.from_controller,
            inter_broker_listener=broker.config.inter_broker_listener_name,
            is_unclean=lambda topic: broker.configs.log_config(topic).unclean_leader_election_enable,
            config=lambda: broker.config,
            is_alone=not tree.is_shared,
            leads=self._leads,
            clock_ms=broker.now_ms,
        )
        self.administration = Administration(
            member=self,
            coordination=self.session,
            planner=broker.planner,
            configs=broker.configs,
            partitions=broker.replicas,
            prepared_logs=None if tree.is_shared else PreparedLogs(broker.replicas, broker.configs),
        )
        self.notifications = ConfigNotifications(
            coordination=self.session,
            cluster=broker.cluster,
            settings=self.administration.settings,
            on_unclean_allowed=self._on_unclean_allowed,
            is_alone=not tree.is_shared,
            clock_ms=broker.now_ms,
        )
        kinds = broker.config.groups.group_coordinator_rebalance_protocols
        beside = None if broker.config.zookeeper is None else broker.config.zookeeper.inter_broker_protocol_version
        self.features = Features(self.session, is_alone=not tree.is_shared, kinds_of_groups=kinds, beside_kafka=beside)
        self.log_dir_failures = LogDirFailures(self.session, broker.node_id)
        self._connect_replicas()

    def _fetchers(self) -> ReplicaFetcherManager:
        from ottla.replication.fetcher.fetcher_manager import (
            ReplicaFetcherManager,  # here, because most brokers are alone
        )

        broker = self._broker
        return ReplicaFetcherManager(
            broker.node_id,
            connect=lambda leader, number: self.peer(leader, purpose=f"broker-{broker.node_id}-fetcher-{number}"),
            config=lambda: broker.config.replication,
            clock_ms=broker.now_ms,
            broker_epoch=lambda: self.broker_epoch,
            throttle=broker.throttles.follower,
            removals=broker.replicas.removals,
        )

    @cached_property
    def alter_partition_manager(self) -> AlterPartitionManager:
        """Sender of AlterPartition requests, which change the in-sync replicas of partitions that this broker leads."""
        from ottla.replication.replica_manager.alter_partition_manager import (
            AlterPartitionManager,  # here, because most brokers are alone
        )

        broker = self._broker
        return AlterPartitionManager(
            broker.node_id,
            partitions=broker.replicas.partitions,
            ask_controller=self.ask_controller,
            broker_epoch=lambda: self.broker_epoch,
            is_fenced=lambda: self.is_fenced,
            config=lambda: broker.config.replication,
            clock_ms=broker.now_ms,
        )

    @cached_property
    def security(self) -> Security:
        """ACLs, delegation tokens and the login secret in the coordination tree."""
        return Security(
            self._broker,
            self.session,
            refusal=self.administration.refusal,
            is_controller=lambda: self.controller is not None,
            has_readers=self._tree.is_shared,
        )

    @property
    def acls(self) -> AclStore | None:
        """Store of the authorizer's ACLs; None without an authorizer."""
        return self.security.acls

    @property
    def tokens(self) -> TokenStore | None:
        """Store of the delegation tokens; None if delegation tokens are disabled."""
        return self.security.tokens

    @cached_property
    def forwarding(self) -> ForwardingManager:
        """Forwarder of requests that only the controller carries out."""
        from ottla.server.cluster.forwarding import ForwardingManager  # here, because most brokers are alone

        return ForwardingManager(
            self.election, self._connections.controller_channel, lambda: self._broker.config.server.request_timeout_ms
        )

    def _connect_replicas(self) -> None:
        replicas, cluster = self._broker.replicas, self._broker.cluster
        replicas.on_directory_failure = self.log_dir_failures.note
        # A leader proposes only brokers that live. Whether it means the right incarnation the controller judges.
        replicas.is_eligible = lambda node_id, _: node_id in cluster.brokers

    @property
    def controller(self) -> ActiveController | None:
        """The active controller if it runs on this broker, else None."""
        return self.election.active

    @property
    def controller_id(self) -> int:
        return self.election.controller_id

    @property
    def is_fenced(self) -> bool:
        """True if this broker's registration is not certainly valid: another broker may have taken its place."""
        # The session may have ended unheard, or no controller has spoken to this registration yet.
        return not self.session.is_sure or self.controller_requests.confirmed_epoch < self.broker_epoch

    def _leads(self, partition: TopicPartition, leader_epoch: int) -> bool:
        found = self._broker.replicas.partition(*partition)
        if found is None or not found.is_leader:
            return False
        return found.leader_epoch == leader_epoch and found.has_begun_epoch

    # ------------------------------------------------------------------ connections to brokers

    def registration(self, broker_id: int) -> BrokerRegistration | None:
        """Return the registration of a live broker, as the controller announced it."""
        return self._broker.cluster.brokers.get(broker_id)

    def peer(self, broker_id: int, *, purpose: str) -> Peer:
        """Connect to a broker. Raises PeerUnavailable if no controller has announced the broker."""
        return self._connections.to_broker(broker_id, purpose=purpose)

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request to the current controller, without retries. Raises PeerUnavailable."""
        return await ask_active_controller(self._to_controller, self.election, request, version, timeout_s=timeout_s)

    # ------------------------------------------------------------------ sessions

    def register(self, registration: BrokerRegistration) -> None:
        """Set the endpoints for this broker's registration. The registration itself happens in `hold`."""
        self._registration = replace(registration, features=self.features.supported_levels)

    async def hold(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold sessions with the tree, one after another. Raises JoinProblem if one cannot begin before the join.

        The join is this broker's first registration. Later, the broker waits for a new session as long as necessary.
        """
        problem = await self._hold_one(task_status)
        # Until it has joined, a broker without a session cannot start. Later it waits for one as long as it takes.
        while problem is None or self._has_joined.is_set():
            logger.warning(
                "No session with the coordination tree%s; opening another one",
                "" if problem is None else f": {problem}",
            )
            if problem is not None:
                await trio.sleep(RETRY_S)
            problem = await self._hold_one(trio.TASK_STATUS_IGNORED)
        raise JoinProblem(str(problem))

    async def _hold_one(self, task_status: trio.TaskStatus[None]) -> Exception | None:
        """Hold one session until it ends; return None, or the error if the session could not begin."""
        session = await self._tree.open_session()
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self._run_session, session, nursery.cancel_scope)
            except (CoordinationUnavailable, AccessDenied, SessionExpired) as problem:
                return problem
            self.session.attach(session)
            try:
                task_status.started()
                await self._take_part(session)
                await trio.sleep_forever()  # until `_run_session` ends this life
            finally:
                self.session.attach(None)  # a request now gets SessionExpired, and not an old answer
        return None

    async def _run_session(self, session: Session, life: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        await session.run(task_status)
        # Watches and the election belong to this session, and end with it.
        life.cancel()

    async def _take_part(self, session: Session) -> None:
        """Register this broker and take part in elections until the session ends."""
        await self._may_join.wait()
        try:
            self.broker_epoch = await self._register(session)
            # No await in between: nothing is served under the new epoch that the controller has not confirmed.
            self.controller_requests.begin_anew()
            # Last: from here on this broker may serve what it does not have to hear of.
            self.session.note_registered()
        except SessionExpired:
            return
        except JoinProblem as problem:
            self._join_problem = str(problem)
            self._has_joined.set()  # `join` returns, and raises it
            return
        # From here on requests are carried out: those for an earlier life can be told from those for this one.
        self.controller_requests.registered.set()
        logger.info("Broker %d is registered, broker epoch %d", self._broker.node_id, self.broker_epoch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, "Settings", self.notifications.run)
            if self._tree.is_shared:  # only its own controller changes the levels of a broker that is alone
                nursery.start_soon(self._listen, "Levels of features", self.features.run)
            for what, listen in self.security.listeners().items():
                nursery.start_soon(self._listen, what, listen)
            await nursery.start(self.election.run)
            self._has_joined.set()  # the election has begun: the controller is known

    async def _listen(self, what: str, listen: Callable[[], Awaitable[None]]) -> None:
        """Run `listen`, which applies changes, until the session ends. After an error, log `what` and run it again."""
        while True:
            try:
                await listen()
            except SessionExpired:
                return
            except Exception:
                logger.exception("%s cannot be read; this is tried again", what)
                await trio.sleep(SETTINGS_RETRY_S)

    async def _register(self, session: Session) -> int:
        """Create this broker's registration node; return its broker epoch. Raises JoinProblem or SessionExpired."""
        assert self._registration is not None
        path = znodes.broker_path(self._broker.node_id)
        patience = trio.current_time() + self._tree.patience_s
        while True:
            # The watch comes before the look, so that no change is missed in between.
            changed = trio.Event()
            cancel_watch = session.watch_node(path, lambda _, changed=changed: changed.set())  # type: ignore[misc]
            try:
                (node,) = await session.get_all([path])
                if node is None:
                    data = znodes.encode_broker(self._registration, self._broker.now_ms())
                    await session.multi([Create(path, data, ephemeral=True)])
                # Our creation is seen here as well, also one whose answer was lost.
                elif node.owner == session.session_id:
                    return node.creation_id
                else:
                    await self._wait_for_namesake(changed, patience)
            except NodeExists:
                continue  # another broker was faster
            except CoordinationUnavailable:
                await session.until_available()
            finally:
                cancel_watch()

    async def _wait_for_namesake(self, gone: trio.Event, patience: float) -> None:
        """Wait for `gone`: the deletion of a registration node with this broker's id, but not of this session.

        Raises JoinProblem at the time `patience` if this broker has never been a member.
        """
        # A broker that has been a member goes on waiting. One that starts gives up below: its id may be given to two
        # brokers.
        if self._has_joined.is_set():
            logger.error("Another broker is registered as %d; this one waits for it to go", self._broker.node_id)
            await gone.wait()
            return
        # A broker that was killed and comes back at once finds the node of its last life until that session times out.
        with trio.move_on_at(patience):
            await gone.wait()
            return
        raise self._namesake_problem()

    # ------------------------------------------------------------------ start and stop

    async def open(self) -> None:
        """Load the cluster's id, the settings and all local logs."""
        broker = self._broker
        cluster_id = await self._learn_of_cluster()
        hosted = await self._tree.hosted(self.session)
        self._loaded.update(each.topic for each in hosted)
        await self._broker.coordinators.ensure_code(self._loaded, self._broker.environment.run_in_thread)
        await broker.replicas.load(hosted, cluster_id=cluster_id)

    async def _learn_of_cluster(self) -> str:
        """Read from the tree what a start needs; return the cluster's id. Retry while a shared tree is unavailable."""
        while True:
            try:
                return await self._read_tree()
            except (CoordinationUnavailable, SessionExpired) as problem:
                # No other try mends a tree on a disk of this broker's own.
                if not self._tree.is_shared:
                    raise
                # A session that cannot be opened again ends the start (`hold`).
                logger.warning("The start waits for the coordination tree (%r)", problem)
                await trio.sleep(RETRY_S)

    async def _read_tree(self) -> str:
        # Every step looks first at what there is, so a try goes on where the last one was cut off.
        broker = self._broker
        # A log directory that was in use names its cluster. The id has to stay the same even if the tree is new.
        known_id = broker.replicas.cluster_id
        wanted_id = broker.configs.started_with.first_cluster_id
        fill = partial(self._tree.fill, self.session)
        cluster_id = await settle_cluster_id(self.session, lambda: known_id or wanted_id or random_cluster_id(), fill)
        if wanted_id not in (None, cluster_id):
            logger.warning(
                "The cluster keeps its id %s; the id %s of this start is for a new one", cluster_id, wanted_id
            )
        if self._tree.is_shared and known_id not in (None, cluster_id):
            raise JoinProblem(
                f"the log directories belong to cluster {known_id}, but the coordination tree is that of cluster {cluster_id}"
            )
        broker.cluster.cluster_id = cluster_id
        await self._settle_identities(cluster_id)
        # Not before the checks above: if they refuse this start, the journal is still what a lone broker begins with.
        await self._tree.begin()
        # Before the logs, which are loaded with them.
        await self.administration.settings.read_all()
        await self._read_security()
        await self.features.read()
        return cluster_id

    async def _read_security(self) -> None:
        try:
            await self.security.read_all()
        except znodes.MalformedNode as problem:
            # What cannot be read may be a deny. Kafka does not start either.
            raise JoinProblem(f"the ACLs of the cluster cannot be read: {problem}") from None

    async def _settle_identities(self, cluster_id: str) -> None:
        """Assign ids to the log directories. Raises JoinProblem if another registered broker has this node id."""
        broker = self._broker
        accepted = broker.configs.started_with.accepted_log_dirs
        (namesake,) = await self.session.get_all([znodes.broker_path(broker.node_id)])
        if accepted and namesake is not None:
            raise self._namesake_problem()
        try:
            await settle_identities(
                self.session, broker.replicas, cluster_id=cluster_id, accepted=accepted, keep=self._tree.keep
            )
        except LogDirectoryProblem:
            if namesake is not None:
                raise self._namesake_problem() from None
            raise

    def _namesake_problem(self) -> JoinProblem:
        return JoinProblem(f"broker.id={self._broker.node_id}: another broker with this id is a member of the cluster")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the background tasks of this broker's membership in the cluster."""
        async with trio.open_nursery() as nursery:
            self._background = nursery
            if self.fetchers is not None:
                await nursery.start(self.fetchers.run)
            if self._tree.is_shared:  # no replica joins or leaves the in-sync replicas of a broker that is alone
                await nursery.start(self.alter_partition_manager.run)
            nursery.start_soon(self.administration.run)
            if self.tokens is not None:
                nursery.start_soon(self.tokens.work)
            task_status.started()
            await self.log_dir_failures.run()

    async def join(self) -> None:
        """Wait until this broker is registered and a controller has announced it as live. Raises JoinProblem."""
        self._may_join.set()
        await self._has_joined.wait()
        if self._join_problem:
            raise JoinProblem(self._join_problem)
        # The controller of a broker that is alone is here, and has its word for certain.
        with trio.move_on_after(METADATA_WAIT_S if self._tree.is_shared else math.inf):
            await self.await_metadata()
        await self.features.catch_up()
        await self._tree.end_start()
        self._has_started.set()
        # Those who serve clients from now on go first: who hears that this broker has joined finds it serving.
        await trio.lowlevel.checkpoint()

    async def keep(self) -> None:
        """Make the changes of this start to the coordination tree durable. Raises CoordinationUnavailable."""
        await self._tree.keep()

    async def until_started(self) -> None:
        """Wait until clients may be served: metadata is known, and this start's changes to the tree are durable."""
        await self.await_metadata()
        await self._has_started.wait()

    async def await_metadata(self) -> None:
        """Wait until a controller has sent this broker the topics and the live brokers, including this broker.

        A new controller sends brokers first, then topics. If clients got UNKNOWN_TOPIC_OR_PARTITION in between, they
        might drop records.
        """
        cluster, node_id = self._broker.cluster, self._broker.node_id
        await until_shown(cluster, lambda: node_id in cluster.brokers, timeout_s=math.inf)
        # There is nothing to tell of a topic that is half created.
        with trio.move_on_after(TOPICS_WAIT_S if self._tree.is_shared else math.inf):
            # A broker that is alone has loaded whatever it is going to lead, and knows the topics by that.
            missing = await self._topics_in_tree() if self._tree.is_shared else set(self._loaded)

            def are_shown() -> bool:
                missing.difference_update([name for name in missing if self._is_shown(name)])
                return not missing

            await until_shown(cluster, are_shown, timeout_s=math.inf)

    def _is_shown(self, topic: str) -> bool:
        shown = self._broker.cluster.topics.get(topic)
        # The partitions of a large topic are told of in several requests.
        return shown is not None and len(shown.partitions) >= self._loaded[topic]

    async def _topics_in_tree(self) -> set[str]:
        while True:
            with suppress(CoordinationError):
                deleted = await self.session.children(znodes.DELETED_TOPICS)
                return {*await self.session.children(znodes.TOPICS)}.difference(deleted)
            await trio.sleep(ASK_AGAIN_S)

    async def leave(self) -> None:
        """Move leadership to other brokers (controlled shutdown), as far as possible within the time limit."""
        config = self._broker.config.member
        if not self._tree.is_shared:  # no other broker can take over
            return
        # The cluster does not know a broker that never joined, so it has nothing to hand over.
        if not config.controlled_shutdown_enable or not self._has_joined.is_set() or self._join_problem:
            return
        from ottla.server.cluster.controlled_shutdown import ControlledShutdown  # here, because most are alone

        await ControlledShutdown(self._broker, self, lambda: self.broker_epoch).run()

    async def until_broken(self) -> str:
        """Wait until this broker cannot continue; return the reason."""
        return await self.features.until_broken(self._tree.until_broken)

    # ------------------------------------------------------------------ what the controller's word leads to

    async def _learn_settings(self, topics: Sequence[str]) -> None:
        """Read settings of new topics before their logs are created; import the coordinators of internal topics."""
        await self._broker.coordinators.ensure_code(topics, self._broker.environment.run_in_thread)
        try:
            await self.administration.settings.read_topics(topics)
        except CoordinationError as problem:
            # `ConfigNotifications` reads them when the cluster shows the topics.
            logger.warning("The settings of new topics cannot be read yet (%r); they begin with the defaults", problem)

    def _on_unclean_allowed(self, topics: Iterable[str] | None) -> None:
        if self.controller is not None:
            self.controller.unclean_election_changed(topics)

    def on_election(self, partition: Partition) -> None:
        """Tell the coordinators that this broker leads a partition from now on."""
        self._broker.coordinators.on_election(partition.topic, partition.index)

    def on_resignation(self, topic: str, index: int) -> None:
        """Tell the coordinators that this broker does not lead a partition any more."""
        self._broker.coordinators.on_resignation(topic, index)

    def on_logs_missing(self) -> None:
        """Notify the controller that logs could not be created, for a reason that may pass."""
        self.log_dir_failures.note_missing()

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget the committed offsets of deleted topics."""
        if self._background is not None:
            # In the background, so that the controller's next request does not wait for it.
            self._background.start_soon(self._broker.coordinators.on_topics_deleted, topics)
