"""The composition root: builds the parts of a broker, starts them in order, and stops them in the reverse order.

Start: bind the listeners (a taken port is told before anything is touched) -> lock the log directories -> cluster id,
settings, and load the logs, recovering what a crash left: as `Alone` or as a `ClusterMember` -> coordinators -> accept
connections -> join the cluster. Nobody is answered before everything is there.

Stop (SIGTERM, SIGINT): hand over what others can lead, stop accepting, end the connections, stop the coordinators, flush
and close the logs, leave the clean-shutdown mark, let go of the directories, and of the session. Each wait on the way has a
limit, and a second signal ends the hand-over (`stopping.py`).
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.service import GroupCoordinator
from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.replication import system
from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.replication.cluster.state import NO_BROKER_EPOCH, BrokerEndpoint, BrokerRegistration, ClusterState
from ottla.replication.control.topics import Controller
from ottla.replication.following.throttle import ReplicationThrottles
from ottla.replication.hosting.directories import LogDirectoryProblem
from ottla.replication.hosting.manager import ReplicaManager
from ottla.replication.log.descriptors import LIMIT_MIN, Descriptors, raise_limit
from ottla.replication.partition.fetch_session import FetchSessionCache
from ottla.server.alone import Alone, JoinProblem
from ottla.server.coordinators.coordinator_log import OffsetsTopic
from ottla.server.coordinators.producer_id_blocks import ProducerIdBlocks
from ottla.server.gate.dispatch import client_routes, served_routes
from ottla.server.net.calls import Calls
from ottla.server.net.connection_limits import ConnectionLimits
from ottla.server.net.deadlines import Deadlines
from ottla.server.net.inbox import ReceiveBuffers
from ottla.server.net.listener import Listener, bind
from ottla.server.net.long_answers import LongAnswers
from ottla.server.net.memory_budget import MemoryBudget
from ottla.server.net.readiness import Readiness
from ottla.server.process.stopping import StopSignals
from ottla.server.settings.repository import ConfigRepository
from ottla.server.surroundings import Surroundings
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.administration import Administration
    from ottla.server.cluster.member import ClusterMember
    from ottla.server.settings.broker_config import BrokerConfig, Endpoint

logger = logging.getLogger("ottla.broker")

INT_MAX = (1 << 31) - 1
SWITCH_SECONDS = 0.0005


class StartupError(Exception):
    """Why the broker cannot start although its configuration is in order, or had to stop; one line for the operator."""


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
            default_log_config=config.log,
            storage=self.surroundings.storage,
            descriptors=self.surroundings.descriptors,
            clock_ms=self.surroundings.clock_ms,
            run_in_thread=self.surroundings.run_in_thread,
            log_dirs_throttle=self.throttles.log_dirs,
        )
        self.controller = Controller(
            self.cluster,
            partition_count=config.replication.num_partitions,
            replication_factor=config.replication.default_replication_factor,
        )
        self.groups = GroupCoordinator(config.groups, OffsetsTopic(self), self.cluster)
        self.member: ClusterMember | None = None
        if config.zookeeper is not None:
            from ottla.server.cluster.member import ClusterMember  # here, because most brokers are alone

            self.member = ClusterMember(self)
        self.place: Alone | ClusterMember = self.member or Alone(self)
        self.administration: Administration = self.place.administration
        self.producer_ids = ProducerIdManager(
            ProducerIdBlocks(self.place.coordination, config.node_id).allocate_block, trio.Lock()
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
    def is_in_cluster(self) -> bool:
        """Whether this broker coordinates with others, through ZooKeeper."""
        return self.member is not None

    @property
    def node_id(self) -> int:
        return self.configs.started_with.node_id

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
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic}-{index} is offline")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.member is not None and (partition.must_hear or self.member.is_fenced):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker may have been replaced as a leader")
        return partition

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once an internal topic exists; raises KafkaError if it cannot be made."""
        await self.administration.ensure_topic(name)

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Load the logs, topics and settings. Nobody is served yet."""
        await self.replicas.open()
        await self.place.open()

    async def close(self) -> None:
        """Everything to disk, and the directories free for the next broker."""
        with trio.CancelScope(shield=True):
            await self.replicas.shutdown(self.member.broker_epoch if self.member else NO_BROKER_EPOCH)
            await self.place.close()

    def register(self, bound: Sequence[tuple[Endpoint, socket.socket]]) -> None:
        """Let the cluster know where clients reach this broker."""
        endpoints = {}
        for endpoint, sock in bound:
            told = self.config.advertised_endpoint(endpoint.listener, sock.getsockname()[1])
            rack = self.config.server.broker_rack
            endpoints[endpoint.listener] = BrokerEndpoint(self.node_id, told.host, told.port, rack)
        self.place.register(BrokerRegistration(self.node_id, endpoints, self.config.server.broker_rack))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """The background work; leaves when the last log directory has failed, too."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.replicas.run)
            await nursery.start(self.groups.run)
            await nursery.start(self.place.run)
            nursery.start_soon(self.deadlines.run)
            yield nursery
            nursery.cancel_scope.cancel()


async def serve(config: BrokerConfig, *, on_ready: Callable[[Broker], None]) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises StartupError if it cannot start, or stops for want of a disk.

    `on_ready` is called when clients are served; `broker.listeners` has the ports.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        descriptors = Descriptors(_limit_of_descriptors())
        bound = bind_all(config)
        stop = StopSignals()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop.heed, signals)
                await _serve_bound(config, descriptors, bound, stop, on_ready)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _startup_problem(group) from None
        finally:
            for _, sock in bound:
                sock.close()


async def _serve_bound(
    config: BrokerConfig,
    descriptors: Descriptors,
    bound: Sequence[tuple[Endpoint, socket.socket]],
    stop: StopSignals,
    on_ready: Callable[[Broker], None],
) -> None:
    broker = Broker(config, Surroundings(descriptors=descriptors), Readiness())
    broker.register(bound)
    async with trio.open_nursery() as session:

        async def start() -> None:
            await session.start(broker.place.hold)
            await broker.open()

        if await stop.unless(stop.asked, start):
            listen_all(bound, config.server.socket_listen_backlog_size)
            await _serve_until_signal(broker, bound, stop, on_ready)
        session.cancel_scope.cancel()


def _startup_problem(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What an operator can do something about, as a StartupError; or everything, which is a bug."""
    problem: BaseException = group
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    if isinstance(problem, (LogDirectoryProblem, InvalidSetting, JoinProblem)):
        return StartupError(str(problem))
    if isinstance(problem, CoordinationUnavailable):
        return StartupError(f"{problem.path or 'the coordination tree'} cannot be written; is there room on its disk?")
    if isinstance(problem, OSError):
        return StartupError(f"cannot use the data directory: {problem}")
    return problem if isinstance(problem, (StartupError, KeyboardInterrupt)) else group


async def _serve_until_signal(
    broker: Broker,
    bound: Sequence[tuple[Endpoint, socket.socket]],
    stop: StopSignals,
    on_ready: Callable[[Broker], None],
) -> None:
    failure = ""
    try:
        async with broker.running() as nursery:
            for_brokers, for_clients = calls_of(broker)
            buffers = ReceiveBuffers(MemoryBudget.of(broker.config.server.queued_max_request_bytes))
            assert broker.readiness is not None
            limits = ConnectionLimits(
                lambda: broker.config.server,
                broker.surroundings.descriptors,
                protected=broker.config.inter_broker_listener_name if len(bound) > 1 else None,
            )
            for endpoint, sock in bound:
                is_for_brokers = endpoint.listener == broker.config.inter_broker_listener_name
                calls = for_brokers if is_for_brokers else for_clients
                listener = Listener(endpoint.listener, sock, broker, calls, buffers, broker.readiness, limits)
                broker.listeners.append(listener)
                nursery.start_soon(listener.run)
            settle_interpreter()
            if broker.member is not None:
                nursery.start_soon(_open_when_told, broker.member, [for_brokers, for_clients])
            if await stop.unless(stop.asked, broker.place.join):
                on_ready(broker)
                failure = await _stopped(broker, stop)
            await stop.unless(stop.at_once, broker.place.leave)
    finally:
        await broker.close()
    if failure:
        raise StartupError(failure)


def calls_of(broker: Broker) -> tuple[Calls, Calls]:
    """The requests that are served on the inter-broker listener, and those on the others."""
    is_in_cluster = broker.is_in_cluster
    return (
        Calls(served_routes(is_in_cluster=is_in_cluster), is_open=not is_in_cluster),
        Calls(client_routes(is_in_cluster=is_in_cluster), is_open=not is_in_cluster),
    )


async def _open_when_told(member: ClusterMember, calls: Sequence[Calls]) -> None:
    await member.until_told()
    for each in calls:
        each.opened.set()


async def _stopped(broker: Broker, stop: StopSignals) -> str:
    """Return when it is time to stop: a signal (""), or no disk left to write to, which the answer says."""
    failures: list[str] = []

    def fail(failure: str) -> None:
        logger.critical("stopping: %s", failure)
        failures.append(failure)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:

        async def watch_signals() -> None:
            await stop.asked.wait()
            nursery.cancel_scope.cancel()

        async def watch_disks() -> None:
            await broker.replicas.all_directories_failed.wait()
            fail("every log directory is offline")

        async def watch_coordination() -> None:
            fail(await broker.place.until_broken())

        nursery.start_soon(watch_signals)
        nursery.start_soon(watch_disks)
        nursery.start_soon(watch_coordination)
    return failures[0] if failures else ""


def bind_all(config: BrokerConfig) -> list[tuple[Endpoint, socket.socket]]:
    """A bound socket for each listener, not listening yet; StartupError names the address that cannot be had."""
    bound: list[tuple[Endpoint, socket.socket]] = []
    for endpoint in config.listeners:
        try:
            bound.append((endpoint, bind(endpoint.host, endpoint.port, config.server.socket_receive_buffer_bytes)))
        except OSError as error:
            for _, sock in bound:
                sock.close()
            raise StartupError(f"cannot listen on {endpoint}: {error.strerror or error}") from None
    return bound


def listen_all(bound: Sequence[tuple[Endpoint, socket.socket]], backlog: int) -> None:
    """Let clients connect; they are served once the broker runs."""
    for endpoint, sock in bound:
        try:
            sock.listen(backlog)
        except OSError as error:  # another broker bound the address at the same moment and was faster
            raise StartupError(f"cannot listen on {endpoint}: {error.strerror or error}") from None


def settle_interpreter() -> None:
    """Keep the interpreter from holding up the event loop.

    What was made at start stays, and a full collection becomes rare: young garbage is collected as ever, and what grows
    old here is what a broker keeps, topics, partitions and groups. A collection of young objects looks at few of them, since
    a thousand take up to a millisecond. Large requests in work may hold millions, and created topics leave many. A thread
    that computes gives way sooner. Memory that was needed once goes back to the system.
    """
    system.keep_little_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 3, 100_000)


def _limit_of_descriptors() -> int:
    limit = raise_limit()
    if limit < LIMIT_MIN:
        raise StartupError(
            f"the system allows this process {limit} open files and connections; it needs {LIMIT_MIN} at least,"
            f" and some thousand to serve many clients (`ulimit -n`)"
        )
    return limit
