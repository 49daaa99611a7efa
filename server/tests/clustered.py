"""Members of a cluster without network and logs: they share a tree, and a scripted controller plays what watches do."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Coordination,
    CoordinationUnavailable,
    Create,
    Delete,
    Operation,
    SetData,
)
from ottla.replication.cluster.metadata_cache import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.config import LogConfig
from ottla.replication.controller.elect_leaders import ElectionType
from ottla.replication.controller.topic_planner import TopicPlan, TopicPlanner
from ottla.server.cluster.administration import Administration
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.session import settle_cluster_id
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.server.config.repository import ConfigRepository
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.environment import Environment
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.schema import Message

Partition = tuple[str, int]
LISTENER = "PLAINTEXT"
RETRY_S = 0.1


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what would run in a thread."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class MemoryPartitions:
    """Remembers the settings that the logs of each topic have."""

    def __init__(self) -> None:
        self.configs: dict[str, LogConfig] = {}

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        self.configs[topic] = config


class ScriptedController:
    """Elects the first live replica of whatever is wanted in the tree, and shows it to all members.

    It writes the topics that it is asked for, and tries again while the tree is out of reach. `is_lazy`: whatever is
    written nobody is elected, and nothing is shown or removed. What else is asked of it is noted in `asked`; `answers`
    says what to answer, an exception is raised.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.epoch, self.epoch_version = 7, 1
        self.is_lazy = False
        self.asked: list[Any] = []
        self.answers: dict[str, Any] = {}
        self.decided: dict[Partition, PartitionState] = {}
        self.topics: dict[str, Any] = {}  # what a controller would say of the ids of topics: here nothing
        self.brokers = {1: BrokerRegistration(1, {}, None)}  # one that tells of no features, as Kafka 3.9
        self._cluster = cluster
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        tree = self._cluster.tree
        tree.watch_children(znodes.TOPICS, self._on_change)
        tree.watch_children(znodes.DELETED_TOPICS, self._on_change)
        task_status.started()
        watched: set[str] = set()
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            if self.is_lazy:
                continue
            for name in await tree.children(znodes.TOPICS):
                if name not in watched:
                    watched.add(name)
                    tree.watch_node(znodes.topic_path(name), self._on_change)
                await self._elect(name)
            for name in await tree.children(znodes.DELETED_TOPICS):
                paths = (znodes.topic_path(name), znodes.topic_config_path(name), znodes.deleted_topic_path(name))
                await tree.multi([Delete(path) for path in paths])
                self._cluster.show(name, None)

    def _on_change(self, _: str) -> None:
        self._changed.set()

    async def _elect(self, name: str) -> None:
        (node,) = await self._cluster.tree.get_all([znodes.topic_path(name)])
        if node is None:
            return
        self._cluster.show(name, self._elected(name, znodes.decode_topic(node.data)))

    def _elected(self, name: str, assignment: znodes.TopicAssignment) -> TopicState:
        partitions = []
        for replicas in assignment.partitions.values():
            isr = tuple(broker for broker in replicas if broker in self._cluster.live)
            partitions.append(PartitionState(isr[0] if isr else NO_LEADER, 0, tuple(replicas), isr))
        assert assignment.topic_id is not None
        return TopicState(name, assignment.topic_id, tuple(partitions))

    # ------------------------------------------------------------------ topics by request

    async def create_topics(self, plans: Sequence[TopicPlan]) -> dict[str, KafkaError | None]:
        return {plan.name: await self._create(plan) for plan in plans}

    async def _create(self, plan: TopicPlan) -> KafkaError | None:
        path, config_path = znodes.topic_path(plan.name), znodes.topic_config_path(plan.name)
        topic, config = await self._cluster.tree.get_all([path, config_path])
        if topic is not None:
            return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{plan.name}' already exists.")
        replicas = {index: list(state.replicas) for index, state in enumerate(plan.after.partitions)}
        settings = znodes.encode_config(plan.configs or {})
        await self._write(
            Create(config_path, settings) if config is None else SetData(config_path, settings),
            Create(path, znodes.encode_topic(znodes.TopicAssignment(plan.after.topic_id, replicas))),
        )
        return None

    async def add_partitions(
        self, name: str, plan: Callable[[TopicState | None], TopicPlan], *, validate_only: bool = False
    ) -> TopicPlan:
        (node,) = await self._cluster.tree.get_all([znodes.topic_path(name)])
        if node is None:
            return plan(None)
        known = znodes.decode_topic(node.data)
        if known.adding_replicas or known.removing_replicas:
            message = f"A partition reassignment is in progress for the topic '{name}'."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        if name in await self._cluster.tree.children(znodes.DELETED_TOPICS):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        planned = plan(self._elected(name, known))
        if not validate_only:
            replicas = {index: list(state.replicas) for index, state in enumerate(planned.after.partitions)}
            data = znodes.encode_topic(znodes.TopicAssignment(known.topic_id, replicas))
            await self._write(SetData(znodes.topic_path(name), data, node.version))
        return planned

    async def _write(self, *operations: Operation) -> None:
        while True:
            try:
                await self._cluster.tree.multi([Check(znodes.CONTROLLER_EPOCH, self.epoch_version), *operations])
                return
            except CoordinationUnavailable:
                await trio.sleep(RETRY_S)
            except BadVersion as error:
                if error.path == znodes.CONTROLLER_EPOCH:  # it resigns
                    raise KafkaError(ErrorCode.NOT_CONTROLLER) from None
                raise

    # ------------------------------------------------------------------ what handlers ask

    def _answer(self, name: str, *asked: Any) -> Any:
        self.asked.append((name, *asked))
        answer = self.answers[name]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    @property
    def states(self) -> ScriptedController:
        return self

    def partition(self, partition: Partition) -> PartitionState | None:
        """As it was decided last; None: deleted since."""
        return self.decided.get(partition)

    async def alter_partition(self, request: Message, version: int) -> Any:
        return self._answer("alter_partition", request, version)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Any:
        return self._answer("controlled_shutdown", broker_id, broker_epoch)

    async def elect_leaders(self, election_type: ElectionType, partitions: Iterable[Partition] | None) -> Any:
        return self._answer("elect_leaders", election_type, sorted(partitions or ()))

    async def reassign(
        self, targets: Mapping[Partition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> Any:
        return self._answer("reassign", dict(targets), allow_replication_factor_change)

    async def reassignments(self) -> Any:
        return self._answer("reassignments")


class MemberBroker:
    """What handlers need of a broker that is a member; its own member, too."""

    authorizer = None

    def __init__(self, cluster: Cluster, node_id: int, settings: Mapping[str, str] | None = None) -> None:
        self.configs = ConfigRepository(load_config({"node.id": str(node_id), **(settings or {})}))
        self.cluster = MetadataCache(cluster_id="cluster", controller_id=1)
        self.controller: ScriptedController | None = None
        self.session: Coordination = cluster.tree
        self.member = self
        self.partitions = MemoryPartitions()
        self.environment = Environment()
        self.sent: list[Any] = []
        self.quotas = ClientQuotas(self.config.quotas)
        self.forwarding: Any = None  # whoever tests it sets one
        self._all = cluster
        self._ids = itertools.count(2)
        self._planner = TopicPlanner(self.cluster, replication_factor=1)
        self.administration = Administration(
            member=cast(Any, self),
            coordination=cluster.tree,
            planner=self._planner,
            configs=self.configs,
            partitions=self.partitions,
            make_topic_id=lambda: next(self._ids).to_bytes(16),
        )

    @property
    def config(self) -> BrokerConfig:
        return self.configs.current

    receiver = None

    def now_ms(self) -> int:
        return 0

    @property
    def is_in_cluster(self) -> bool:
        return True

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float) -> Any:
        self.sent.append(request)
        for other in self._all.members.values():
            if other.controller is not None:
                return await other.answer(request, version)
        raise PeerUnavailable("nobody")

    async def answer(self, request: Message, version: int) -> Any:
        """Have a handler answer a request."""
        answer = all_routes()[type(request).api_key].handler(request, self.context(version))
        return await answer if isinstance(answer, Coroutine) else answer

    def context(self, version: int) -> RequestContext:
        context: RequestContext = RequestContext(cast(Any, self), api_version=version, listener_name=LISTENER)
        context.is_forwarded = True  # handlers are asked, and what hands their requests on has tests of its own
        return context

    async def ensure_internal_topic(self, name: str) -> None:
        await self.administration.ensure_topic(name)


class Cluster:
    """The tree and the members; the first of them is the controller."""

    def __init__(self, directory: Path, racks: Mapping[int, str | None], settings: Mapping[str, str] | None) -> None:
        self.tree = EmbeddedCoordination(directory, run_in_thread=at_once)
        self.live = set(racks)
        self.members = {node_id: MemberBroker(self, node_id, settings) for node_id in racks}
        for member in self.members.values():
            for node_id, rack in racks.items():
                endpoint = BrokerEndpoint(node_id, f"host-{node_id}", 9092, rack)
                member.cluster.put_broker(BrokerRegistration(node_id, {LISTENER: endpoint}, rack))
        self.controller = ScriptedController(self)
        self.members[min(racks)].controller = self.controller

    def __getitem__(self, node_id: int) -> MemberBroker:
        return self.members[node_id]

    def show(self, name: str, topic: TopicState | None) -> None:
        """Let every member see a topic as it is now, None: that it is gone."""
        for member in self.members.values():
            if topic is not None:
                member.cluster.put_topic(topic)
            elif name in member.cluster.topics:
                member.cluster.remove_topic(name)


@asynccontextmanager
async def clustered(
    directory: Path,
    *,
    racks: Mapping[int, str | None] | None = None,
    settings: Mapping[str, str] | None = None,
    also: Callable[[Cluster], Iterable[Callable[..., Any]]] = lambda _: (),
) -> AsyncIterator[Cluster]:
    """Three brokers, 1, 2 and 3, unless `racks` says otherwise; 1 is the controller. `also` runs beside them."""
    cluster = Cluster(directory, racks or {1: None, 2: None, 3: None}, settings)
    cluster.tree.open()
    await settle_cluster_id(cluster.tree, lambda: "cluster")
    await cluster.tree.multi([SetData(znodes.CONTROLLER_EPOCH, b"7")])
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.controller.run)
        for run in also(cluster):
            await nursery.start(run)
        for member in cluster.members.values():
            nursery.start_soon(member.administration.run)
        yield cluster
        nursery.cancel_scope.cancel()
    cluster.tree.close()
