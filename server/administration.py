"""Changing topics and settings: the shell around the controller's decisions.

The way of a change: wait for the topic's turn -> let the controller plan -> make the logs of new partitions, which nobody sees
-> write to the coordination tree, by which the change has happened -> let everybody see it, and give up the logs of what was
deleted. An answer goes out only after all of that. If logs cannot be made the tree hears nothing of the topic; if the tree
cannot be written its logs are removed. After a crash the tree says what there is: logs that no topic claims are put aside
or removed at start, and missing ones are made. Once begun a change is not cancelled, whoever asked for it.

Changes of one topic take turns; changes of different topics run side by side and share the journal's syncs.
"""

from __future__ import annotations

import logging
import math
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import Protocol

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
)
from ottla.replication.cluster.state import topic_name_problem
from ottla.replication.config import LogConfig
from ottla.replication.control.topics import Controller, NewTopic, TopicPlan
from ottla.replication.hosting.loading import HostedPartition
from ottla.replication.hosting.new_logs import MadeLog
from ottla.server.coordinators.internal_topics import new_topic
from ottla.server.net.turns import computed
from ottla.server.settings.changes import check_broker, check_topic
from ottla.server.settings.repository import ConfigRepository, Overrides, Texts
from ottla.server.start.becoming_controller import finish_deletion, forget_unnamed_partitions
from ottla.wire.errors import ErrorCode, KafkaError, bare

logger = logging.getLogger("ottla.administration")

AUTO_CREATIONS_MAX = 10_000
TOPICS_PER_TURN = 50  # changed before others get a turn on the event loop
RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")

_random = random.Random()

SettingsChange = Callable[[Texts], Texts]
PlanOrError = TopicPlan | KafkaError


class TopicConfigTaker(Protocol):
    """Whoever has to know when the settings of a topic change."""

    def update_topic_config(self, topic: str, config: LogConfig) -> None: ...


class PartitionHost(TopicConfigTaker, Protocol):
    """What keeps partitions on disk; the replica manager."""

    async def make_logs(
        self, partitions: Sequence[HostedPartition], made: list[MadeLog]
    ) -> Mapping[str, OSError | KafkaError]: ...

    async def adopt_logs(self, made: Sequence[MadeLog]) -> None: ...

    async def discard_logs(self, made: Sequence[MadeLog]) -> None: ...

    async def delete_partitions(self, partitions: Sequence[tuple[str, int]]) -> None: ...


def random_topic_id() -> bytes:
    """A topic id that is neither of the two that Kafka reserves.

    The system is not asked for each: after such a call the event loop may have to wait for every thread that computes.
    """
    while (topic_id := uuid.UUID(int=_random.getrandbits(128), version=4).bytes) in RESERVED_IDS:
        pass
    return topic_id


class OutdatedSettings(KafkaError):
    """Somebody else has changed the same settings in between."""


class Administration(ABC):
    """Changes of topics and settings, as handlers ask for them: what a lone broker and a member of a cluster do alike.

    `timeout_s` is how long to wait until a change that was made shows; REQUEST_TIMED_OUT says that it does not yet.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        controller: Controller,
        configs: ConfigRepository,
        partitions: TopicConfigTaker,
        make_topic_id: Callable[[], bytes],
        replicas_max: int | None,
    ) -> None:
        self.controller = controller
        self.configs = configs
        self._cluster = controller.cluster
        self._coordination = coordination
        self._config_taker = partitions
        self._make_topic_id = make_topic_id
        self._replicas_max = replicas_max
        self._node_id = configs.started_with.node_id
        self._turns: dict[str, trio.Lock] = {}
        self._writers = trio.CapacityLimiter(TOPICS_PER_TURN)  # of all requests together
        self._wanted: dict[str, None] = {}
        self._in_creation: set[str] = set()
        self._wakeup = trio.Event()

    @property
    @abstractmethod
    def is_controller(self) -> bool:
        """Whether topics can be created, extended and deleted here."""

    # ------------------------------------------------------------------ topics

    @abstractmethod
    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        is_internal: bool = False,
        timeout_s: float = math.inf,
    ) -> list[PlanOrError]:
        """Create what can be created; the outcome of each topic is its plan or the error that kept it from being."""

    @abstractmethod
    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_s: float = math.inf,
    ) -> None:
        """Raise a topic's number of partitions to `count`."""

    @abstractmethod
    async def delete_topics(self, names: Sequence[str], *, timeout_s: float = math.inf) -> list[KafkaError | None]:
        """Delete topics; None for each that is gone now."""

    def _planned(self, topic: NewTopic, is_internal: bool) -> PlanOrError:
        try:
            self.controller.check_name(topic.name)
            if not is_internal:
                check_topic(self.configs, topic.configs or {})
            return self.controller.plan_creation(topic, self._make_topic_id())
        except KafkaError as error:
            return bare(error)

    @asynccontextmanager
    async def _turn_of(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the turn of each name; taken in order, so that two requests cannot wait for each other."""
        taken: list[tuple[str, trio.Lock]] = []
        try:
            for name in sorted(set(names)):
                turn = self._turns.setdefault(name, trio.Lock())
                await turn.acquire()
                taken.append((name, turn))
            yield
        finally:
            for name, turn in taken:
                turn.release()
                # `release` gives the lock to the next in line. If it is free now nobody wants it, and names must not
                # pile up.
                if not turn.locked():
                    del self._turns[name]

    # ------------------------------------------------------------------ writes

    async def _write_all(self, plans: Sequence[TopicPlan], outcomes: list[PlanOrError]) -> None:
        """Write plans side by side; a plan that cannot be written is replaced by its error in `outcomes`."""
        for start in range(0, len(plans), TOPICS_PER_TURN):
            async with trio.open_nursery() as nursery:
                for plan in plans[start : start + TOPICS_PER_TURN]:
                    nursery.start_soon(self._write, plan, outcomes)

    async def _write(self, plan: TopicPlan, outcomes: list[PlanOrError]) -> None:
        try:
            async with self._writers:
                await self._write_plan(plan)
        except CoordinationError as error:
            logger.error("the change of topic %s cannot be written: %r", plan.name, error)
            self.controller.abandon(plan)
            outcomes[outcomes.index(plan)] = self._refusal(error)

    def _refusal(self, error: CoordinationError) -> KafkaError:
        """The error for a client whose change cannot be written."""
        return as_kafka_error(error)

    @abstractmethod
    async def _write_plan(self, plan: TopicPlan) -> None:
        """Put a plan into the coordination tree."""

    # ------------------------------------------------------------------ settings

    async def alter_topic(
        self, name: str, change: SettingsChange, *, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        """Change a topic's settings. `in_thread`: the change is so long that a thread is to work it out."""
        async with self._turn_of([name]):
            # Read while the turn is held. A change that is worked out from older settings would undo another one.
            known = self.configs.topic_overrides(name)
            texts = await computed(partial(change, known.texts), in_thread=in_thread)
            check_topic(self.configs, texts)
            if name not in self._cluster.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            if validate_only or texts == known.texts:
                return
            # Written first: what is in force here has to be in the tree, or it would be gone after a restart.
            self.apply_topic(name, await self._write_settings(znodes.topic_config_path(name), known, texts))

    async def alter_broker(
        self, change: SettingsChange, *, for_all: bool, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        """Change settings of this broker, or those of all brokers."""
        path = znodes.broker_config_path(None if for_all else self._node_id)
        async with self._turn_of([path]):
            known = self.configs.broker_overrides(for_all=for_all)
            texts = await computed(partial(change, known.texts), in_thread=in_thread)
            check_broker(self.configs, texts, for_all=for_all)
            if validate_only or texts == known.texts:
                return
            await self.apply_broker(await self._write_settings(path, known, texts), for_all=for_all)

    async def _write_settings(self, path: str, known: Overrides, texts: Texts) -> Overrides:
        data = znodes.encode_config(texts)
        write: Operation = Create(path, data) if known.version is None else SetData(path, data, known.version)
        try:
            # One transaction with the notice, so that no broker misses the change.
            await self._coordination.multi([write, *self._notice_of_settings(path)])
        except CoordinationError as error:
            if error.path == path and isinstance(error, (NodeExists, NoNode, BadVersion)):
                # Another broker has changed the settings since they were read here.
                raise OutdatedSettings(ErrorCode.UNKNOWN_SERVER_ERROR) from None
            logger.error("the settings in %s cannot be written: %r", path, error)
            raise self._refusal(error) from None
        return Overrides(dict(texts), 0 if known.version is None else known.version + 1)

    def _notice_of_settings(self, path: str) -> list[Operation]:
        """What else to write, so that others hear of changed settings."""
        return []

    @abstractmethod
    async def refresh(self, topics: Sequence[str]) -> None:
        """Know the settings of topics and of this broker as they are written now."""

    def apply_topic(self, name: str, overrides: Overrides) -> None:
        """Put a topic's settings into force here."""
        self.configs.put_topic(name, overrides)
        self._config_taker.update_topic_config(name, self.configs.log_config(name))

    async def apply_broker(self, overrides: Overrides, *, for_all: bool) -> None:
        """Put settings of this broker, or of all, into force here; raises InvalidSetting."""
        log_before = self.configs.current.log
        self.configs.put_broker(overrides, for_all=for_all)
        # Telling all partitions takes time, so it is done only if the defaults did change.
        if self.configs.current.log != log_before:
            await self._spread_defaults()

    async def _spread_defaults(self) -> None:
        """Let every partition know its topic's settings after the defaults changed."""
        for number, name in enumerate(list(self._cluster.topics), 1):
            self._config_taker.update_topic_config(name, self.configs.log_config(name))
            if number % TOPICS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ topics that are created by asking for them

    def request_creation(self, names: Iterable[str]) -> None:
        """Have missing topics created soon; names that are wanted already, or cannot be, are passed over."""
        for name in names:
            # Any client can ask for any number of names.
            if len(self._wanted) + len(self._in_creation) >= AUTO_CREATIONS_MAX:
                return
            if name not in self._in_creation and topic_name_problem(name) is None:
                self._wanted[name] = None
        if self._wanted:
            self._wakeup.set()

    async def run(self) -> None:
        """Create what `request_creation` was asked for, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                names = [name for name in self._wanted if name not in self._cluster.topics]
                self._wanted.clear()
                self._in_creation.update(names)
                nursery.start_soon(self._create_wanted, names)

    async def _create_wanted(self, names: Sequence[str]) -> None:
        try:
            for start in range(0, len(names), TOPICS_PER_TURN):
                some = names[start : start + TOPICS_PER_TURN]
                timeout_s = self.configs.current.server.request_timeout_ms / 1000
                outcomes = await self._created_somewhere([self._to_create(name) for name in some], timeout_s)
                self._log_refusals(dict(zip(some, outcomes, strict=True)))
        finally:
            self._in_creation.difference_update(names)

    @staticmethod
    def _log_refusals(outcomes: Mapping[str, PlanOrError | None]) -> None:
        """One line, however many topics a client asked for."""
        refused = {
            name: outcome
            for name, outcome in outcomes.items()
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }
        for name, outcome in islice(refused.items(), 1):
            logger.warning("%d topics cannot be created by asking for them, such as %s: %s", len(refused), name, outcome)

    async def _created_somewhere(self, topics: Sequence[NewTopic], timeout_s: float) -> Sequence[PlanOrError | None]:
        """Have topics created, here or elsewhere, by the rules for internal topics."""
        try:
            return await self.create_topics(topics, is_internal=True, timeout_s=timeout_s)
        except KafkaError as error:
            return [bare(error)] * len(topics)

    @abstractmethod
    async def ensure_topic(self, name: str) -> None:
        """Return once `name` exists, created by the rules for internal topics if need be; raises KafkaError."""

    def _to_create(self, name: str) -> NewTopic:
        return new_topic(name, self.configs.current, replicas_max=self._replicas_max)


class TopicAdministration(Administration):
    """Creates, changes and deletes topics, and changes settings of topics and of this broker, which is alone."""

    is_controller = True

    def __init__(
        self,
        *,
        coordination: Coordination,
        controller: Controller,
        configs: ConfigRepository,
        partitions: PartitionHost,
        on_topics_deleted: Callable[[Mapping[str, bytes]], Awaitable[None]] | None = None,
        make_topic_id: Callable[[], bytes] = random_topic_id,
        replicas_max: int | None = 1,
    ) -> None:
        super().__init__(
            coordination=coordination,
            controller=controller,
            configs=configs,
            partitions=partitions,
            make_topic_id=make_topic_id,
            replicas_max=replicas_max,
        )
        self._partitions = partitions
        self._on_topics_deleted = on_topics_deleted
        self._half_written: set[str] = set()

    # ------------------------------------------------------------------ topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        is_internal: bool = False,
        timeout_s: float = math.inf,
    ) -> list[PlanOrError]:
        self.controller.check_partition_total(topics)
        async with self._turn_of(topic.name for topic in topics):
            outcomes = []
            for number, topic in enumerate(topics):
                if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                    # Planning very many topics must not hold the event loop.
                    await trio.lowlevel.checkpoint()
                outcomes.append(self._planned(topic, is_internal))
            plans = [each for each in outcomes if isinstance(each, TopicPlan)]
            self.controller.check_batch(plans)
            if not validate_only:
                await self._carry_out(plans, outcomes)
        return outcomes

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_s: float = math.inf,
    ) -> None:
        async with self._turn_of([name]):
            plan = self.controller.plan_partitions(self._cluster.topics.get(name), count, assignments)
            if validate_only:
                return
            outcomes: list[PlanOrError] = [plan]
            await self._carry_out([plan], outcomes)
            if isinstance(outcomes[0], KafkaError):
                raise outcomes[0]

    async def delete_topics(self, names: Sequence[str], *, timeout_s: float = math.inf) -> list[KafkaError | None]:
        async with self._turn_of(names):
            outcomes: list[PlanOrError] = [self._deletion(name) for name in names]
            plans = [plan for plan in outcomes if isinstance(plan, TopicPlan)]
            try:
                # A client that leaves must not leave a change half done.
                with trio.CancelScope(shield=True):
                    await self._write_all(plans, outcomes)
                    gone = [plan for plan in outcomes if isinstance(plan, TopicPlan)]
                    for plan in gone:
                        # Clients stop seeing the topic before its logs go.
                        self.controller.finish(plan)
                        self.configs.remove_topic(plan.name)
                    await self._forget(gone)
            finally:
                for plan in plans:
                    self.controller.abandon(plan)
        return [each if isinstance(each, KafkaError) else None for each in outcomes]

    def hosted_partitions(self) -> list[HostedPartition]:
        """Every partition that should be on this broker's disks."""
        return [
            HostedPartition(topic.name, index, topic.topic_id, self.configs.log_config(topic.name), state)
            for topic in self._cluster.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._node_id in state.replicas
        ]

    def _deletion(self, name: str) -> PlanOrError:
        if name not in self._cluster.topics:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message)
        plan = self.controller.plan_deletion(name)
        self.controller.begin(plan)
        return plan

    async def _carry_out(self, plans: Sequence[TopicPlan], outcomes: list[PlanOrError]) -> None:
        """Make the logs of new partitions, write the plans, and let what was written be seen."""
        made: list[MadeLog] = []
        try:
            with trio.CancelScope(shield=True):
                for plan in plans:
                    self.controller.begin(plan)
                # The logs come before the tree: a topic that is in the tree must have its logs.
                failures = await self._partitions.make_logs([each for plan in plans for each in self._added(plan)], made)
                for plan in [plan for plan in plans if plan.name in failures]:
                    self._give_up(plan, outcomes, failures[plan.name])
                await self._write_all([plan for plan in plans if plan.name not in failures], outcomes)
                await self._let_be_seen([plan for plan in outcomes if isinstance(plan, TopicPlan)], made)
        finally:
            for plan in plans:
                self.controller.abandon(plan)

    def _give_up(self, plan: TopicPlan, outcomes: list[PlanOrError], failure: OSError | KafkaError) -> None:
        logger.error("partitions of %s cannot be made: %s", plan.name, failure)
        self.controller.abandon(plan)
        outcomes[outcomes.index(plan)] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    async def _let_be_seen(self, written: Sequence[TopicPlan], made: Sequence[MadeLog]) -> None:
        names = {plan.name for plan in written}
        began_with = {each.hosted.topic: each.hosted.config for each in made}
        # The partitions come first: clients that hear of a topic send to it at once.
        await self._partitions.adopt_logs([each for each in made if each.hosted.topic in names])
        for plan in written:
            if plan.configs is not None:
                self.configs.put_topic(plan.name, Overrides(plan.configs, 0))
            self.controller.finish(plan)
            config = self.configs.log_config(plan.name)
            if began_with.get(plan.name, config) != config:  # the defaults were changed meanwhile
                self._config_taker.update_topic_config(plan.name, config)
        if in_vain := [each for each in made if each.hosted.topic not in names]:
            await self._partitions.discard_logs(in_vain)

    def _added(self, plan: TopicPlan) -> list[HostedPartition]:
        """The partitions that a plan adds, with the settings that they begin with."""
        assert plan.after is not None
        if plan.before is None:
            config = self.configs.log_config_with(plan.name, plan.configs or {})
        else:
            config = self.configs.log_config(plan.name)
        return [
            HostedPartition(plan.name, index, plan.after.topic_id, config, state)
            for index, state in enumerate(plan.after.partitions)
            if index >= plan.first_new and self._node_id in state.replicas
        ]

    async def _forget(self, gone: Sequence[TopicPlan]) -> None:
        """Remove the partitions of deleted topics, and let those know who remember topics by name and id."""
        if not gone:
            return
        await self._partitions.delete_partitions([each for plan in gone for each in _hosted_before(plan)])
        if self._on_topics_deleted is not None:
            await self._on_topics_deleted({plan.name: plan.before.topic_id for plan in gone if plan.before is not None})

    async def _write_plan(self, plan: TopicPlan) -> None:
        """Write a plan whole; what is left of one that cannot be is removed now, before the next change, or at start."""
        # What is left of an earlier change of this topic would mix with this one.
        if plan.name in self._half_written:
            await self._finish_half_written(plan.name)
        writes = self.controller.writes(plan)
        # An error of the first transaction needs no clearing away, because nothing was written before it.
        await self._coordination.multi(next(writes))
        try:
            for operations in writes:
                await self._coordination.multi(operations)
        except CoordinationError:
            self._half_written.add(plan.name)
            if plan.after is None:
                return  # the topic is marked as to be deleted, so its deletion has happened
            # If this fails as well, the next change of the topic or the next start does it.
            with suppress(CoordinationError):
                await self._finish_half_written(plan.name)
            raise

    async def _finish_half_written(self, name: str) -> None:
        await finish_deletion(self._coordination, self.controller, name)
        await forget_unnamed_partitions(self._coordination, self.controller, name)
        self._half_written.discard(name)

    async def refresh(self, topics: Sequence[str]) -> None:
        """Nobody else can have changed them."""

    async def ensure_topic(self, name: str) -> None:
        if name in self._cluster.topics:
            return
        (outcome,) = await self.create_topics([self._to_create(name)], is_internal=True)
        # TOPIC_ALREADY_EXISTS: somebody else was faster, which is as good.
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome


def _hosted_before(plan: TopicPlan) -> list[tuple[str, int]]:
    assert plan.before is not None
    return [(plan.name, index) for index in range(len(plan.before.partitions))]


def as_kafka_error(error: CoordinationError) -> KafkaError:
    if isinstance(error, (BadVersion, SessionExpired)) and error.path in ("", znodes.CONTROLLER_EPOCH):
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    if isinstance(error, NodeExists):
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
    if isinstance(error, (NoNode, BadVersion)):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change cannot be stored.")
