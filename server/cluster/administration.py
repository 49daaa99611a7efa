"""Changing topics and settings in a cluster.

Topics: only the active controller creates, extends and deletes them, by a write that is fenced with the controller's
epoch. What is written is only what is wanted (/brokers/topics/<topic>, /admin/delete_topics/<topic>); the controller's
watches see it, elect leaders, and tell the brokers. A request is answered when this broker's picture of the cluster shows
the outcome, or its time is over (Kafka's DelayedCreatePartitions, DelayedDeleteTopics).

Settings: any broker changes those of topics and of all brokers, each broker its own. The write comes with a notice below
/config/changes, by which the others hear of it (`config_notifications.py`).

Topics that come into being because a client asked for them are asked for with CreateTopics where the controller is another
broker (Kafka's AutoTopicCreationManager).
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
)
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.cluster.state import (
    NO_LEADER,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.replication.control.topics import NewTopic, TopicPlan
from ottla.server.administration import (
    TOPICS_PER_TURN,
    Administration,
    OutdatedSettings,
    PlanOrError,
    SettingsChange,
    TopicConfigTaker,
    random_topic_id,
)
from ottla.server.cluster.waiting import until_shown
from ottla.server.net.turns import each_in_turns
from ottla.server.settings.repository import NO_OVERRIDES, ConfigRepository, Overrides
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.replication.control.topics import Controller
    from ottla.server.cluster.ports import Member
    from ottla.wire.messages.create_topics import CreateTopicsResponse

logger = logging.getLogger("ottla.administration")

CREATE_TOPICS_VERSION = 7
CONFIG_CHANGE_PREFIX = f"{znodes.CONFIG_CHANGES}/config_change_"
DELETION_PATIENCE_S = 3.0  # how long a topic that is being deleted holds up its being created again
ENSURE_TIMEOUT_S = 5.0  # a client that waits for an internal topic asks again


class ClusterAdministration(Administration):
    """Creates, changes and deletes topics, and changes settings, as a member of a cluster."""

    def __init__(
        self,
        *,
        member: Member,
        coordination: Coordination,
        controller: Controller,
        configs: ConfigRepository,
        partitions: TopicConfigTaker,
        make_topic_id: Callable[[], bytes] = random_topic_id,
    ) -> None:
        super().__init__(
            coordination=coordination,
            controller=controller,
            configs=configs,
            partitions=partitions,
            make_topic_id=make_topic_id,
            replicas_max=None,
        )
        self._member = member

    @property
    def is_controller(self) -> bool:
        return self._member.controller is not None

    # ------------------------------------------------------------------ topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        is_internal: bool = False,
        timeout_s: float = math.inf,
    ) -> list[PlanOrError]:
        if not self.is_controller:
            return [KafkaError(ErrorCode.NOT_CONTROLLER) for _ in topics]
        # 1. Plan, and take the names.
        self._take_epoch()
        self.controller.check_partition_total(topics)
        begun: list[TopicPlan] = []
        try:
            async with self._turn_of(topic.name for topic in topics):
                outcomes = await each_in_turns(topics, partial(self._planned, is_internal=is_internal))
                await self._refuse_what_is_marked(outcomes)
                plans = [each for each in outcomes if isinstance(each, TopicPlan)]
                self.controller.check_batch(plans)
                if validate_only:
                    return outcomes
                for plan in plans:
                    self.controller.begin(plan)
                    begun.append(plan)
                # 2. Write what is wanted. The active controller sees it by its watches.
                await self._write_all(plans, outcomes)
            # 3. Outside of the turns: who asks for the same topics now finds their names planned, and is answered at
            # once.
            await self._await_leaders(outcomes, timeout_s)
        finally:
            for plan in begun:
                self.controller.abandon(plan)  # the cluster learns of the topics from the active controller
        return outcomes

    def _planned(self, topic: NewTopic, is_internal: bool) -> PlanOrError:
        if self.controller.is_planned(topic.name):
            return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        return super()._planned(topic, is_internal)

    async def _refuse_what_is_marked(self, outcomes: list[PlanOrError]) -> None:
        """A topic that is being deleted still exists, also when the cluster shows it no more.

        Kafka refuses at once. But the cluster stops to show a topic a moment before it is gone, and a client that hears then
        that it was deleted may create it again.
        """
        plans = [each for each in outcomes if isinstance(each, TopicPlan)]
        marks = await self._read([znodes.deleted_topic_path(plan.name) for plan in plans])
        marked = [plan for plan, mark in zip(plans, marks, strict=True) if mark is not None]
        with trio.move_on_after(DELETION_PATIENCE_S):
            while marked:
                await self._until_gone(znodes.deleted_topic_path(marked[-1].name))
                marked.pop()
        for plan in marked:
            message = f"Topic '{plan.name}' is marked for deletion."
            outcomes[outcomes.index(plan)] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, message)

    async def _until_gone(self, path: str) -> None:
        while True:
            # The watch comes before the look, so that no deletion is missed in between.
            changed = trio.Event()
            cancel = self._coordination.watch_node(path, lambda _, changed=changed: changed.set())  # type: ignore[misc]
            try:
                if await self._read([path]) == [None]:
                    return
                await changed.wait()
            finally:
                cancel()

    async def _await_leaders(self, outcomes: list[PlanOrError], timeout_s: float) -> None:
        """Wait until the partitions of every created topic have leaders; those that have not are timed out."""
        awaited = {plan.name: plan for plan in outcomes if isinstance(plan, TopicPlan)}

        def are_led() -> bool:
            for name in [name for name, plan in awaited.items() if self._is_led(plan)]:
                del awaited[name]
            return not awaited

        if not await until_shown(self._cluster, are_led, timeout_s=timeout_s):
            for plan in awaited.values():
                outcomes[outcomes.index(plan)] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def _is_led(self, plan: TopicPlan) -> bool:
        assert plan.after is not None
        shown = self._cluster.topics.get(plan.name)
        # After an extension the cluster shows the topic without its new partitions for a while.
        if shown is None or len(shown.partitions) < len(plan.after.partitions):
            return False
        return all(each.leader != NO_LEADER for each in shown.partitions)

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_s: float = math.inf,
    ) -> None:
        if not self.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if topic_name_problem(name) is not None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._take_epoch()
        async with self._turn_of([name]):
            plan = await self._extend(name, count, assignments, validate_only=validate_only)
        if validate_only:
            return
        outcomes: list[PlanOrError] = [plan]
        await self._await_leaders(outcomes, timeout_s)
        if isinstance(outcomes[0], KafkaError):
            raise outcomes[0]

    async def _extend(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> TopicPlan:
        """Write more partitions. The topic's node counts, as the cluster may not show its last change yet."""
        while True:
            node, mark = await self._read([znodes.topic_path(name), znodes.deleted_topic_path(name)])
            if mark is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
            topic = None if node is None else _written_topic(name, node)
            plan = self.controller.plan_partitions(topic, count, assignments)
            if validate_only:
                return plan
            assert node is not None  # or `plan_partitions` has refused
            self._take_epoch()
            try:
                await self._coordination.multi(self.controller.extension(plan, node.version))
            except CoordinationError as error:
                if isinstance(error, BadVersion) and error.path == znodes.topic_path(name):
                    continue  # the controller has written it meanwhile
                raise self._refusal(error) from None
            return plan

    async def delete_topics(self, names: Sequence[str], *, timeout_s: float = math.inf) -> list[KafkaError | None]:
        if not self.is_controller:
            return [KafkaError(ErrorCode.NOT_CONTROLLER) for _ in names]
        self._take_epoch()
        # A topic that is made anew meanwhile does not count as the one that is to go.
        ids = {name: topic.topic_id for name in names if (topic := self._cluster.topics.get(name)) is not None}
        results: dict[str, KafkaError | None] = {}
        for start in range(0, len(names), TOPICS_PER_TURN):
            async with trio.open_nursery() as nursery:
                for name in names[start : start + TOPICS_PER_TURN]:
                    nursery.start_soon(self._mark_deleted, name, results)

        def are_gone() -> bool:
            return not any(self._is_shown(name, ids) for name, error in results.items() if error is None)

        if not await until_shown(self._cluster, are_gone, timeout_s=timeout_s):
            for name in names:
                if results[name] is None and self._is_shown(name, ids):
                    results[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return [results[name] for name in names]

    async def _mark_deleted(self, name: str, results: dict[str, KafkaError | None]) -> None:
        """Have the controller delete a topic; one that is being deleted already is as good."""
        exists, mark = Check(znodes.topic_path(name), ANY_VERSION), Create(znodes.deleted_topic_path(name))
        results[name] = None
        try:
            async with self._writers:
                await self._coordination.multi([self._take_epoch(), exists, mark])
        except NodeExists:
            return
        except NoNode:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[name] = KafkaError(unknown, unknown.message)
        except CoordinationError as error:
            results[name] = self._refusal(error)

    def _is_shown(self, name: str, ids: Mapping[str, bytes]) -> bool:
        topic = self._cluster.topics.get(name)
        return topic is not None and topic.topic_id == ids.get(name, topic.topic_id)

    # ------------------------------------------------------------------ writes

    async def _write_plan(self, plan: TopicPlan) -> None:
        self._take_epoch()
        fence, config, topic = self.controller.creation(plan)
        try:
            await self._coordination.multi([fence, config, topic])
        except NodeExists as error:
            if not isinstance(config, Create) or error.path != config.path:
                raise
            # left by an earlier topic, or set before there was a topic: what the new topic is created with counts
            await self._coordination.multi([fence, SetData(config.path, config.data), topic])

    def _take_epoch(self) -> Check:
        """Let `controller` fence its writes with the epoch of now; the epoch of one that resigned fails every write."""
        # Taken before each write. If this broker is the controller no more the former epoch stays, and the write
        # fails.
        if (active := self._member.controller) is not None:
            self.controller.epoch, self.controller.epoch_version = active.epoch, active.epoch_version
        return Check(znodes.CONTROLLER_EPOCH, self.controller.epoch_version)

    def _refusal(self, error: CoordinationError) -> KafkaError:
        if isinstance(error, (CoordinationUnavailable, SessionExpired)):
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper cannot be reached.")
        return super()._refusal(error)

    async def _read(self, paths: Sequence[str]) -> Sequence[Node | None]:
        try:
            return await self._coordination.get_all(paths)
        except CoordinationError as error:
            raise self._refusal(error) from None

    # ------------------------------------------------------------------ settings

    async def alter_topic(
        self, name: str, change: SettingsChange, *, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        while True:
            if name in self._cluster.topics:
                # The write names the version that is read here. If another broker is faster, the change is worked out
                # anew.
                await self._up_to_date(partial(self.read_topics, [name]))
            try:
                return await super().alter_topic(name, change, validate_only=validate_only, in_thread=in_thread)
            except OutdatedSettings:
                continue

    async def alter_broker(
        self, change: SettingsChange, *, for_all: bool, validate_only: bool = False, in_thread: bool = False
    ) -> None:
        while True:
            # The same as for topics.
            await self._up_to_date(partial(self.read_broker, for_all=for_all))
            try:
                return await super().alter_broker(
                    change, for_all=for_all, validate_only=validate_only, in_thread=in_thread
                )
            except OutdatedSettings:
                continue

    async def refresh(self, topics: Sequence[str]) -> None:
        await self._up_to_date(partial(self.read_topics, topics))
        for for_all in (True, False):
            await self._up_to_date(partial(self.read_broker, for_all=for_all))

    async def _up_to_date(self, read: Callable[[], Awaitable[None]]) -> None:
        """Read what the tree holds now, which this broker may not have heard of yet."""
        try:
            await read()
        except CoordinationError as error:
            raise self._refusal(error) from None

    def _notice_of_settings(self, path: str) -> list[Operation]:
        entity = path.removeprefix("/config/")
        return [Create(CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True)]

    async def read_settings(self) -> None:
        """Read all settings anew and put them into force here. Raises CoordinationError, as all of these do."""
        # Before those of topics, whose defaults they are.
        for for_all in (True, False):
            await self.read_broker(for_all=for_all)
        nodes = await self._coordination.children_data(znodes.TOPIC_CONFIGS)
        found = {znodes.entity_name(element): node for element, node in nodes.items()}
        # A topic without a node has no settings of its own any more.
        for name in [name for name in self.configs.topics if name not in found]:
            self._take_topic(name, None)
        for number, (name, node) in enumerate(found.items(), 1):
            self._take_topic(name, node)
            if number % TOPICS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()

    async def read_topics(self, names: Sequence[str]) -> None:
        """Read the settings of topics anew and put them into force here."""
        found = await self._coordination.get_all([znodes.topic_config_path(name) for name in names])
        for name, node in zip(names, found, strict=True):
            self._take_topic(name, node)

    def _take_topic(self, name: str, node: Node | None) -> None:
        if node is None:
            self.configs.remove_topic(name)
            # Its logs, if there are any, go on with the defaults.
            self._config_taker.update_topic_config(name, self.configs.log_config(name))
        else:
            self.apply_topic(name, Overrides(_settings(node), node.version))

    async def read_broker(self, *, for_all: bool) -> None:
        """Read the settings of this broker, or of all, anew and put them into force here."""
        (node,) = await self._coordination.get_all([znodes.broker_config_path(None if for_all else self._node_id)])
        found = NO_OVERRIDES
        if node is not None:
            # Brokers of Kafka may have written settings that Ottla does not take.
            found = Overrides(self.configs.takeable(_settings(node), for_all=for_all), node.version)
        if found != self.configs.broker_overrides(for_all=for_all):
            await self.apply_broker(found, for_all=for_all)

    # ------------------------------------------------------------------ topics that are created by asking for them

    async def _created_somewhere(self, topics: Sequence[NewTopic], timeout_s: float) -> Sequence[PlanOrError | None]:
        if self.is_controller:
            return await super()._created_somewhere(topics, timeout_s)
        # With no time at all the controller would not wait for the leaders.
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=max(int(timeout_s * 1000), 1)
        )
        try:
            response: CreateTopicsResponse = await self._member.ask_controller(
                request, CREATE_TOPICS_VERSION, timeout_s=timeout_s
            )
        except PeerUnavailable:
            return [KafkaError(ErrorCode.NOT_CONTROLLER, "The controller cannot be reached.") for _ in topics]
        errors = {
            each.name: KafkaError(_error_code(each.error_code), each.error_message)
            for each in response.topics
            if each.error_code
        }
        return [errors.get(topic.name) for topic in topics]

    async def ensure_topic(self, name: str) -> None:
        if name in self._cluster.topics:
            return
        async with self._turn_of([f"ensure/{name}"]):  # not the topic's own turn, which its creation here takes
            if name in self._cluster.topics:
                return
            deadline = trio.current_time() + ENSURE_TIMEOUT_S
            (outcome,) = await self._created_somewhere([self._to_create(name)], ENSURE_TIMEOUT_S)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            left_s = deadline - trio.current_time()
            if not await until_shown(self._cluster, lambda: name in self._cluster.topics, timeout_s=left_s):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _error_code(code: int) -> ErrorCode:
    return next((each for each in ErrorCode if each == code), ErrorCode.UNKNOWN_SERVER_ERROR)


def _settings(node: Node) -> dict[str, str]:
    try:
        return znodes.decode_config(node.data)
    except znodes.MalformedNode as error:
        logger.error("Left aside settings that cannot be read: %s", error)
        return {}


def _written_topic(name: str, node: Node) -> TopicState:
    """A topic as its node says: replicas, but nothing of leaders. Refused while any partition is being reassigned."""
    assignment = znodes.decode_topic(node.data)
    if assignment.adding_replicas or assignment.removing_replicas:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    partitions = tuple(PartitionState(NO_LEADER, 0, tuple(ids), ()) for ids in assignment.partitions.values())
    return TopicState(name, assignment.topic_id or bytes(16), partitions, is_internal_topic(name))


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in (topic.configs or {}).items()],
    )
