"""Creating, extending and deleting topics.

Only the active controller does that. The steps of a creation or an extension: hold the topic's lock -> plan it (`TopicPlanner`)
-> the controller writes it, elects leaders and tells the brokers -> wait until this broker's metadata cache shows
it, or its time is over (Kafka's DelayedCreatePartitions, DelayedDeleteTopics). A deletion is a mark below
/admin/delete_topics, which the controller sees.

A single broker creates the logs first, invisible to clients (`PreparedLogs`). If the disk fails, the topic is refused and
nothing is written to the tree. In a cluster a topic exists although one of its replicas cannot be made.

Topics that come into being because a client asked for them are asked for with CreateTopics where the controller is another
broker (Kafka's AutoTopicCreationManager).
"""

from __future__ import annotations

import logging
import math
from functools import partial
from itertools import islice
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
    SessionExpired,
)
from ottla.replication.cluster.metadata_cache import NO_LEADER, topic_name_problem
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.controller.topic_planner import NewTopic, TopicPlan
from ottla.replication.keyed_lock import KeyedLock
from ottla.replication.random_ids import random_topic_id
from ottla.server.cluster.controller.decision_writer import not_stored
from ottla.server.cluster.settings_administration import SettingsAdministration
from ottla.server.config.changes import check_topic
from ottla.server.coordinators.coordinators import new_topic
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.replication.cluster.metadata_cache import MetadataCache, TopicState
    from ottla.replication.controller.topic_planner import TopicPlanner
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.cluster.controller.active_controller import ActiveController
    from ottla.server.cluster.ports import Member
    from ottla.server.cluster.prepared_logs import PreparedLogs
    from ottla.server.config.coordination_config import ZooKeeperConfig
    from ottla.server.config.passwords import KeptPasswords
    from ottla.server.config.repository import ConfigRepository
    from ottla.wire.messages.create_topics import CreateTopicsResponse

    OnOutcome = Callable[[str, KafkaError | None], None]

logger = logging.getLogger("ottla.administration")

AUTO_CREATIONS_MAX = 10_000
TOPICS_PER_SLICE = 50  # changed before others get a turn on the event loop
CREATE_TOPICS_VERSION = 7
DELETION_PATIENCE_S = 3.0  # how long a topic that is being deleted holds up its being created again
ENSURE_TIMEOUT_S = 5.0  # a client that waits for an internal topic asks again
ALONE_PATIENCE_S = 30.0  # how long a broker that is alone waits for itself

PlanOrError = TopicPlan | KafkaError


def _kept_passwords(zookeeper: ZooKeeperConfig) -> KeptPasswords:
    from ottla.server.config.passwords import KeptPasswords  # here, because most brokers are alone

    return KeptPasswords.of(zookeeper)


class Administration:
    """Service that creates, extends and deletes topics. Its attribute `settings` changes topic and broker settings.

    REQUEST_TIMED_OUT: the change was made, but within `timeout_s` it did not become visible in this broker's metadata.
    """

    def __init__(
        self,
        *,
        member: Member,
        coordination: Coordination,
        planner: TopicPlanner,
        configs: ConfigRepository,
        partitions: ReplicaManager,
        prepared_logs: PreparedLogs | None = None,
        make_topic_id: Callable[[], bytes] = random_topic_id,
    ) -> None:
        """Create the service. `prepared_logs`: given for a lone broker only; None in a cluster."""
        self.planner, self.configs, self._member = planner, configs, member
        self._cluster = planner.cluster
        self._coordination, self._prepared_logs = coordination, prepared_logs
        self._make_topic_id = make_topic_id
        self._locks = KeyedLock()
        self._marking = trio.CapacityLimiter(TOPICS_PER_SLICE)  # of all requests together
        self._wanted: dict[str, None] = {}
        self._in_creation: set[str] = set()
        self._ordered: list[tuple[Sequence[NewTopic], OnOutcome]] = []
        self._wakeup = trio.Event()
        zookeeper = configs.started_with.zookeeper
        self.settings = SettingsAdministration(
            coordination=coordination,
            cluster=planner.cluster,
            configs=configs,
            partitions=partitions,
            refusal=self.refusal,
            has_readers=not self._is_alone,
            passwords=None if zookeeper is None else _kept_passwords(zookeeper),
        )

    @property
    def is_controller(self) -> bool:
        """True if this broker is the controller and can thus create, extend and delete topics."""
        return self._member.controller is not None

    @property
    def _is_alone(self) -> bool:
        return self._prepared_logs is not None

    def _patience_s(self, timeout_s: float) -> float:
        # Kafka's single node waits until a change is stored. Here it is shown a moment later.
        return ALONE_PATIENCE_S if self._is_alone else timeout_s

    # ------------------------------------------------------------------ creation

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        is_internal: bool = False,
        timeout_s: float = math.inf,
        take: Callable[[int], None] = lambda partitions: None,
    ) -> list[PlanOrError]:
        """Create topics; return a plan or an error for each.

        `take` gets each creatable topic's number of partitions, even if `validate_only`. If `take` raises KafkaError,
        the topic is refused with that error.
        """
        if (controller := self._member.controller) is None:
            return [KafkaError(ErrorCode.NOT_CONTROLLER) for _ in topics]
        # 1. Plan, and take the names.
        self.planner.check_partition_total(topics)
        begun: list[TopicPlan] = []
        try:
            async with self._locks.hold(topic.name for topic in topics):
                outcomes = await each_in_slices(topics, partial(self._planned, is_internal=is_internal, take=take))
                await self._refuse_what_is_marked(outcomes)
                plans = [each for each in outcomes if isinstance(each, TopicPlan)]
                self.planner.check_batch(plans)
                if validate_only:
                    return outcomes
                for plan in plans:
                    self.planner.begin(plan)
                    begun.append(plan)
                # 2. Let the controller write them.
                await self._carry_out(controller, plans, outcomes, timeout_s)
            # 3. Outside of the turns: who asks for the same topics now finds their names planned, and is answered at
            # once.
            await self._await_leaders(outcomes, timeout_s)
        finally:
            for plan in begun:
                self.planner.abandon(plan)  # the cluster learns of the topics from the active controller
        return outcomes

    def _planned(self, topic: NewTopic, *, is_internal: bool, take: Callable[[int], None]) -> PlanOrError:
        if self.planner.is_planned(topic.name):
            return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        try:
            self.planner.check_name(topic.name)
            if not is_internal:
                check_topic(self.configs, topic.configs or {})
            plan = self.planner.plan_creation(topic, self._make_topic_id())
            take(len(plan.after.partitions))
            return plan
        except KafkaError as error:
            return bare(error)

    async def _refuse_what_is_marked(self, outcomes: list[PlanOrError]) -> None:
        """Refuse new topics that have the name of a topic under deletion. First wait briefly for the deletion to end.

        Kafka refuses without a wait. But metadata omits a topic shortly before its deletion is complete, and a client
        that no longer finds the topic may create it again immediately.
        """
        plans = [each for each in outcomes if isinstance(each, TopicPlan)]
        marks = await self._read([znodes.deleted_topic_path(plan.name) for plan in plans])
        marked = [plan for plan, mark in zip(plans, marks, strict=True) if mark is not None]
        with trio.move_on_after(DELETION_PATIENCE_S):
            while marked:
                await self._until_gone(znodes.deleted_topic_path(marked[-1].name))
                marked.pop()
        message = "Topic '{}' is marked for deletion."
        _refuse(
            outcomes,
            {plan.name: KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, message.format(plan.name)) for plan in marked},
        )

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

    async def _carry_out(
        self, controller: ActiveController, plans: Sequence[TopicPlan], outcomes: list[PlanOrError], timeout_s: float
    ) -> None:
        if self._prepared_logs is None:
            await self._create(controller, plans, outcomes, timeout_s)
            return
        failures = await self._prepared_logs.make(plans)
        _refuse(
            outcomes, {name: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(each)) for name, each in failures.items()}
        )
        in_vain = possible = [plan for plan in plans if plan.name not in failures]
        try:
            in_vain = await self._create(controller, possible, outcomes, ALONE_PATIENCE_S)
        finally:
            # Also if the client has left before the controller came to it.
            await self._prepared_logs.discard(in_vain)

    async def _create(
        self, controller: ActiveController, plans: Sequence[TopicPlan], outcomes: list[PlanOrError], timeout_s: float
    ) -> list[TopicPlan]:
        """Let the controller carry out `plans`; put errors into `outcomes` and return the plans that failed.

        A plan that failed by a timeout may still succeed later if this broker is in a cluster.
        """
        names = [plan.name for plan in plans]
        errors: Mapping[str, KafkaError | None] = {}
        try:
            with trio.fail_after(timeout_s):
                errors = await controller.create_topics(plans)
        except trio.TooSlowError:
            errors = dict.fromkeys(names, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        except KafkaError as error:
            errors = dict.fromkeys(names, self._resigned(error))
        refused = {name: error for name, error in errors.items() if error is not None}
        _refuse(outcomes, refused)
        return [plan for plan in plans if plan.name in refused]

    def _resigned(self, error: KafkaError) -> KafkaError:
        """Return the client's error for a request that the controller refused with `error`."""
        # A broker that is alone is the controller until it has lost its tree.
        if self._is_alone and error.code is ErrorCode.NOT_CONTROLLER:
            return not_stored()
        return bare(error)

    async def _await_leaders(self, outcomes: list[PlanOrError], timeout_s: float) -> None:
        """Wait until all created partitions have leaders. After `timeout_s`, the other topics get REQUEST_TIMED_OUT."""
        awaited = {plan.name: plan for plan in outcomes if isinstance(plan, TopicPlan)}

        def are_led() -> bool:
            for name in [name for name, plan in awaited.items() if self._is_led(plan)]:
                del awaited[name]
            return not awaited

        if not await until_shown(self._cluster, are_led, timeout_s=self._patience_s(timeout_s)):
            _refuse(outcomes, dict.fromkeys(awaited, KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def _is_led(self, plan: TopicPlan) -> bool:
        shown = self._cluster.topics.get(plan.name)
        # After an extension the cluster shows the topic without its new partitions for a while.
        if shown is None or len(shown.partitions) < len(plan.after.partitions):
            return False
        # An older partition may have lost its disk long ago.
        return all(each.leader != NO_LEADER for each in shown.partitions[plan.first_new :])

    # ------------------------------------------------------------------ extension

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_s: float = math.inf,
        take: Callable[[int], None] = lambda partitions: None,
    ) -> None:
        """Increase a topic's partitions to `count`. `take` gets the number of new ones, and may raise KafkaError."""
        if (controller := self._member.controller) is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if topic_name_problem(name) is not None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is_taken = False

        def plan(topic: TopicState | None) -> TopicPlan:
            nonlocal is_taken
            planned = self.planner.plan_partitions(topic, count=count, assignments=assignments)
            if not is_taken:  # the controller may plan several times
                take(len(planned.after.partitions) - planned.first_new)
                is_taken = True
            return planned

        outcomes: list[PlanOrError] = [KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
        async with self._locks.hold([name]):
            if self._prepared_logs is not None and not validate_only:
                outcomes = [await self._extend_alone(controller, self._prepared_logs, name, plan)]
            else:
                with trio.move_on_after(timeout_s):  # an extension that has begun by then goes on
                    outcomes = [await controller.add_partitions(name, plan, validate_only=validate_only)]
        if not validate_only:
            await self._await_leaders(outcomes, timeout_s)
        if isinstance(outcomes[0], KafkaError):
            raise outcomes[0]

    async def _extend_alone(
        self, controller: ActiveController, prepared_logs: PreparedLogs, name: str, plan: Callable[..., TopicPlan]
    ) -> TopicPlan:
        try:
            with trio.fail_after(ALONE_PATIENCE_S):
                planned = await controller.add_partitions(name, plan, validate_only=True)
        except trio.TooSlowError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        if (failure := (await prepared_logs.make([planned])).get(name)) is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        is_done = False
        try:
            with trio.fail_after(ALONE_PATIENCE_S):
                await controller.add_partitions(name, partial(_still, planned))
            is_done = True
        except trio.TooSlowError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        except KafkaError as error:
            raise self._resigned(error) from None
        finally:
            if not is_done:
                await prepared_logs.discard([planned])
        return planned

    # ------------------------------------------------------------------ deletion

    async def delete_topics(
        self, names: Sequence[str], *, wanted_ids: Mapping[str, bytes] | None = None, timeout_s: float = math.inf
    ) -> list[KafkaError | None]:
        """Delete topics; return None or an error for each. `wanted_ids`: by name, the ids of topics requested by id."""
        if not self.is_controller:
            return [KafkaError(ErrorCode.NOT_CONTROLLER) for _ in names]
        # A topic that is made again meanwhile does not count as the one that is to go.
        ids = {name: topic.topic_id for name in names if (topic := self._cluster.topics.get(name)) is not None}
        results: dict[str, KafkaError | None] = {}
        for start in range(0, len(names), TOPICS_PER_SLICE):
            async with trio.open_nursery() as nursery:
                for name in names[start : start + TOPICS_PER_SLICE]:
                    nursery.start_soon(self._mark_deleted, name, results, (wanted_ids or {}).get(name))

        left = [name for name, error in results.items() if error is None]

        def are_gone() -> bool:
            # Each name is looked at until it is gone, and not all names after every change.
            while left and not self._is_shown(left[-1], ids):
                left.pop()
            return not left

        if not await until_shown(self._cluster, are_gone, timeout_s=self._patience_s(timeout_s)):
            for name in left:
                if self._is_shown(name, ids):
                    results[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return [results[name] for name in names]

    async def _mark_deleted(self, name: str, results: dict[str, KafkaError | None], wanted_id: bytes | None) -> None:
        """Mark a topic for deletion and put None or an error into `results`. An already marked topic is no error.

        `wanted_id`: topic id that the client requested, None if it gave a name.
        """
        if (controller := self._member.controller) is None:
            results[name] = KafkaError(ErrorCode.NOT_CONTROLLER)
            return
        fence = Check(znodes.CONTROLLER_EPOCH, controller.epoch_version)
        exists, mark = Check(znodes.topic_path(name), ANY_VERSION), Create(znodes.deleted_topic_path(name))
        results[name] = None
        try:
            async with self._marking:
                # While this waited, another topic may have got the name. What the controller has decided comes before what
                # the cluster shows, and the mark before whatever it decides next.
                decided = controller.states.topics.get(name)
                if wanted_id is not None and decided is not None and decided.topic_id != wanted_id:
                    results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
                    return
                await self._coordination.multi([fence, exists, mark])
        except NodeExists:
            return
        except NoNode:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[name] = KafkaError(unknown, unknown.message)
        except CoordinationError as error:
            logger.error("the deletion of topic %s cannot be written: %r", name, error)
            results[name] = self.refusal(error)

    def _is_shown(self, name: str, ids: Mapping[str, bytes]) -> bool:
        topic = self._cluster.topics.get(name)
        return topic is not None and topic.topic_id == ids.get(name, topic.topic_id)

    async def _read(self, paths: Sequence[str]) -> Sequence[Node | None]:
        try:
            return await self._coordination.get_all(paths)
        except CoordinationError as error:
            raise self.refusal(error) from None

    def refusal(self, error: CoordinationError) -> KafkaError:
        """Return the client's error for a change that could not be written into the coordination tree."""
        if isinstance(error, (CoordinationUnavailable, SessionExpired)) and not self._is_alone:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination tree cannot be reached.")
        if isinstance(error, BadVersion) and error.path == znodes.CONTROLLER_EPOCH:
            return KafkaError(ErrorCode.NOT_CONTROLLER)
        if isinstance(error, (NoNode, BadVersion)):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return not_stored()

    # ------------------------------------------------------------------ topics that are created by asking for them

    def request_creation(self, names: Iterable[str]) -> None:
        """Request the creation of missing topics in the background; skip invalid and already requested names."""
        for name in names:
            # Any client can ask for any number of names.
            if len(self._wanted) + len(self._in_creation) >= AUTO_CREATIONS_MAX:
                return
            if name not in self._in_creation and topic_name_problem(name) is None:
                self._wanted[name] = None
        if self._wanted:
            self._wakeup.set()

    def request_topics(self, topics: Sequence[NewTopic], on_outcome: OnOutcome) -> None:
        """Request the creation of topics in the background. `on_outcome` is called with each topic's outcome."""
        self._ordered.append((topics, on_outcome))
        self._wakeup.set()

    async def run(self) -> None:
        """Create the topics requested in the background, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                names = [name for name in self._wanted if name not in self._cluster.topics]
                self._wanted.clear()
                self._in_creation.update(names)
                nursery.start_soon(self._create_wanted, names)
                for order in self._ordered:
                    nursery.start_soon(self._create_ordered, *order)
                self._ordered.clear()

    async def _create_wanted(self, names: Sequence[str]) -> None:
        try:
            for start in range(0, len(names), TOPICS_PER_SLICE):
                some = names[start : start + TOPICS_PER_SLICE]
                timeout_s = self.configs.current.server.request_timeout_ms / 1000
                outcomes = await self._created_somewhere([self._to_create(name) for name in some], timeout_s)
                _log_refusals(dict(zip(some, outcomes, strict=True)))
        finally:
            self._in_creation.difference_update(names)

    async def _create_ordered(self, topics: Sequence[NewTopic], on_outcome: OnOutcome) -> None:
        timeout_s = self.configs.current.server.request_timeout_ms / 1000
        outcomes = await self._created_somewhere(topics, timeout_s, is_internal=False)
        for topic, outcome in zip(topics, outcomes, strict=True):
            on_outcome(topic.name, outcome if isinstance(outcome, KafkaError) else None)

    def _to_create(self, name: str) -> NewTopic:
        return new_topic(name, self.configs.current, replicas_max=1 if self._is_alone else None)

    async def _created_somewhere(
        self, topics: Sequence[NewTopic], timeout_s: float, *, is_internal: bool = True
    ) -> Sequence[PlanOrError | None]:
        """Create topics on this broker if it is the controller; otherwise send the controller a request."""
        if not self.is_controller:
            return await self._created_elsewhere(topics, timeout_s)
        try:
            return await self.create_topics(topics, is_internal=is_internal, timeout_s=timeout_s)
        except KafkaError as error:
            return [bare(error)] * len(topics)

    async def _created_elsewhere(self, topics: Sequence[NewTopic], timeout_s: float) -> Sequence[KafkaError | None]:
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
        """Wait until the internal topic `name` exists; create it if it is missing. Raises KafkaError."""
        if name in self._cluster.topics:
            return
        async with self._locks.hold([f"ensure/{name}"]):  # not the topic's own turn, which its creation here takes
            if name in self._cluster.topics:
                return
            deadline = trio.current_time() + ENSURE_TIMEOUT_S
            (outcome,) = await self._created_somewhere([self._to_create(name)], ENSURE_TIMEOUT_S)
            # TOPIC_ALREADY_EXISTS: somebody else was faster, which is as good.
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            left_s = deadline - trio.current_time()
            if not await until_shown(self._cluster, lambda: name in self._cluster.topics, timeout_s=left_s):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _refuse(outcomes: list[PlanOrError], errors: Mapping[str, KafkaError]) -> None:
    """Replace plans in `outcomes` by errors; `errors` has the errors by topic name."""
    if errors:
        for number, each in enumerate(outcomes):
            if isinstance(each, TopicPlan) and each.name in errors:
                outcomes[number] = errors[each.name]


def _still(planned: TopicPlan, topic: TopicState | None) -> TopicPlan:
    """Return `planned` if its topic has not changed since the plan was made; else raise UNKNOWN_TOPIC_OR_PARTITION."""
    if topic is None or (topic.topic_id, len(topic.partitions)) != (planned.after.topic_id, planned.first_new):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return planned


def _log_refusals(outcomes: Mapping[str, PlanOrError | None]) -> None:
    """Log one warning that counts the topics that could not be created, with the first one's error."""
    refused = {
        name: outcome
        for name, outcome in outcomes.items()
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }
    for name, outcome in islice(refused.items(), 1):
        logger.warning("automatic creation of %d topics failed, such as %s: %s", len(refused), name, outcome)


def _error_code(code: int) -> ErrorCode:
    return next((each for each in ErrorCode if each == code), ErrorCode.UNKNOWN_SERVER_ERROR)


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


async def until_shown(cluster: MetadataCache, is_shown: Callable[[], bool], *, timeout_s: float) -> bool:
    """Call `is_shown` after each change in `cluster` until it returns True; return False after `timeout_s`."""
    changed = trio.Event()

    def on_change(_: str = "") -> None:
        changed.set()

    cancel_both = cluster.on_topic_change(on_change), cluster.on_broker_change(on_change)
    try:
        with trio.move_on_after(max(timeout_s, 0)):
            while not is_shown():
                await changed.wait()
                changed = trio.Event()
            return True
        # The change may have come together with the end of the time.
        return is_shown()
    finally:
        for cancel in cancel_both:
            cancel()
