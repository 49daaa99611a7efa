"""The broker that is the controller: it carries out what `PartitionStates` decides, from its election until it resigns.

    await ActiveController(session, node_id, epoch, epoch_version, ...).run()  # until Deposed or SessionExpired

One task works on one event after the other (`events.py`): looks at the tree, which its watches ask for, answers of brokers,
and requests. A watch is set before its node is read, so that nothing is missed. The controller writes a decision, commits it
and sends it to the brokers (`decision_writer.py`, `controller_channel_manager.py`) before the next event has its turn. So its
state differs from the tree only while a write is on its way.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    Coordination,
    CoordinationError,
    CoordinationUnavailable,
    SessionExpired,
)
from ottla.replication.cluster.metadata_cache import BrokerRegistration, PartitionState, TopicState
from ottla.replication.cluster.peers import Peer
from ottla.replication.controller.decisions import ControlBatch, ControlRequest, Decision, Sender, TopicPartition
from ottla.replication.controller.partition_states import Leads, PartitionStates, TopicIds, leads_nothing
from ottla.replication.controller.topic_planner import TopicPlan
from ottla.replication.random_ids import random_topic_id
from ottla.replication.reminders import counted
from ottla.server.cluster.controller.controller_channel_manager import (
    BrokerChannel,
    ControllerChannelManager,
    deleted_replicas,
)
from ottla.server.cluster.controller.decision_writer import CarriedOut, Decide, DecisionWriter, Tally, TopicRequests
from ottla.server.cluster.controller.events import ControllerEvents
from ottla.server.cluster.controller.finalized_levels import FinalizedLevels
from ottla.server.cluster.controller.partition_requests import Outcomes, PartitionRequests, in_parts, some_of
from ottla.server.cluster.controller.tree import ControllerTree, Deposed, TreeReader
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.controller.elect_leaders import ElectionType
    from ottla.replication.controller.reassignment import Targets
    from ottla.server.cluster.features import Update
    from ottla.server.config.broker_config import BrokerConfig

logger = logging.getLogger("ottla.controller")

FIRST_BALANCE_S = 5.0  # after the election, as in Kafka
TOPICS_PER_DECISION = 100


class ActiveController:
    """Active controller of the cluster. Requests raise KafkaError NOT_CONTROLLER if it resigns before they begin."""

    def __init__(
        self,
        session: Coordination,
        node_id: int,
        *,
        epoch: int,
        epoch_version: int,
        peer: Callable[[BrokerRegistration], Peer],
        inter_broker_listener: str,
        is_unclean: Callable[[str], bool],
        config: Callable[[], BrokerConfig],
        is_alone: bool = False,
        leads: Leads = leads_nothing,
        on_doubt: Callable[[], None] = lambda: None,
        make_topic_id: Callable[[], bytes] = random_topic_id,
    ) -> None:
        """Create the controller; `is_alone`: this process alone writes topics into the tree.

        `leads` says which partitions this broker leads; `on_doubt` is called when a broker reports a newer controller.
        """
        self.epoch, self.epoch_version = epoch, epoch_version
        self.states = PartitionStates(controller_epoch=epoch, is_unclean=is_unclean)
        self._node_id, self._session, self._peer = node_id, session, peer
        self._listener = inter_broker_listener
        self._config, self._is_alone = config, is_alone
        self._leads, self._on_doubt = leads, on_doubt
        self._events = ControllerEvents()
        self._tree = ControllerTree(session, epoch_version)
        self._reader = TreeReader(self._tree, make_topic_id)
        self._writer = DecisionWriter(self._tree, self._reader, self.states, self._notify)
        self._levels = FinalizedLevels(self._tree, self.states, node_id, is_alone=is_alone)
        self._topics = TopicRequests(self.states, self._writer, self._begin_to_watch, self._events.put)
        self._requests = PartitionRequests(self.states, self._writer, self._tree, self._reader)
        self._watches: dict[str, Callable[[], None]] = {}
        self._channels: ControllerChannelManager

    @property
    def elections(self) -> tuple[int, int]:
        """Two counts of replacement leaders elected by this controller: all, and unclean (out-of-sync) ones."""
        return self._writer.elections, self._writer.unclean_elections

    # ------------------------------------------------------------------ requests

    async def create_topics(self, plans: Sequence[TopicPlan]) -> dict[str, KafkaError | None]:
        """Create topics; return None or an error for each name. Raises KafkaError.

        On a lone broker, a cancelled call has created nothing, because cancellation during the creation is ignored.
        """
        return await self._events.ask(partial(self._topics.create, plans), to_the_end=self._is_alone)

    async def add_partitions(
        self, name: str, plan: Callable[[TopicState | None], TopicPlan], *, validate_only: bool = False
    ) -> TopicPlan:
        """Extend a topic and return the plan that was carried out. Raises KafkaError, and the errors of `plan`.

        `plan` gets the topic's last decided state (None: there is no such topic) and returns the plan of the extension.
        """
        extend = partial(self._topics.add_partitions, name, plan, validate_only=validate_only)
        return await self._events.ask(extend, to_the_end=self._is_alone)

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Carry out an AlterPartition request. Errors are returned in the response, not raised, even NOT_CONTROLLER."""
        try:
            return await self._events.ask(partial(self._requests.alter_partition, request, version))
        except KafkaError as error:
            return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; return the partitions that it still leads. Raises KafkaError.

        Partitions without another replica are not returned.
        """
        return await self._events.ask(partial(self._requests.controlled_shutdown, broker_id, broker_epoch))

    async def elect_leaders(self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None) -> Outcomes:
        """Elect leaders for `partitions` (None: for all that need one). Return the outcomes. Raises KafkaError."""
        return await self._events.ask(partial(self._requests.elect_leaders, election_type, partitions))

    async def reassign(self, targets: Targets, *, allow_replication_factor_change: bool = True) -> Outcomes:
        """Reassign each partition to its target; a target of None cancels. Return the outcomes. Raises KafkaError."""

        async def reassign() -> Outcomes:
            outcomes = await self._requests.reassign(targets, allow_replication_factor_change)
            await self._requests.settle_reassignments()
            return outcomes

        return await self._events.ask(reassign)

    async def reassignments(self) -> dict[TopicPartition, PartitionState]:
        """Return the partitions under reassignment. Raises KafkaError."""

        async def look() -> dict[TopicPartition, PartitionState]:
            return self.states.reassignments()

        return await self._events.ask(look)

    async def update_features(self, updates: Sequence[Update], *, validate_only: bool) -> None:
        """Set feature levels: all of `updates` or none. Raises KafkaError."""

        async def update() -> None:
            await self._levels.update(updates, validate_only=validate_only)
            await self._look_at_brokers()  # who was left out may come, where a level was lowered

        await self._events.ask(update, to_the_end=self._is_alone)

    def unclean_election_changed(self, topics: Iterable[str] | None) -> None:
        """Retry elections in topics (None: all topics) for which a changed setting now allows out-of-sync leaders."""
        names = None if topics is None else list(topics)
        self._events.put(partial(self._carry_out, lambda: self.states.elect_offline(names)))

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Act as the controller. Raises Deposed, SessionExpired; CoordinationUnavailable if the tree never returns."""
        end: Deposed | CoordinationError | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._channels = ControllerChannelManager(
                    nursery,
                    self._peer,
                    self._on_answer,
                    lambda: self._config().server.controller_socket_timeout_ms / 1000,
                )
                try:
                    await self._work(nursery)
                except (Deposed, SessionExpired, CoordinationUnavailable) as error:
                    end = error
                nursery.cancel_scope.cancel()
        finally:
            self._events.close()  # whoever waits for an answer gets NOT_CONTROLLER
            for cancel in self._watches.values():
                cancel()
        assert end is not None
        raise end

    async def _work(self, nursery: trio.Nursery) -> None:
        started = trio.current_time()
        # 1. Watch, then read: what changes meanwhile is an event that waits for its turn.
        self._set_watches()
        # 2. Know everything that was decided before.
        await self._load()
        # 3. Decide what is due, and tell all brokers everything.
        await self._start()
        count = sum(len(topic.partitions) for topic in self.states.topics.values())
        logger.info(
            "Controller loaded %s, %s and %s in %d ms",
            counted(len(self.states.brokers), "broker"),
            counted(len(self.states.topics), "topic"),
            counted(count, "partition"),
            (trio.current_time() - started) * 1000,
        )
        # 4. One event after the other, each to its end.
        if not self._is_alone:  # else there is nobody to move leadership to
            nursery.start_soon(self._balance_now_and_then)
        while True:
            action = await self._events.next()
            await action()
            await self._after()

    def _set_watches(self) -> None:
        self._watch_children(znodes.BROKER_IDS, self._look_at_brokers)
        if not self._is_alone:
            self._watch_children(znodes.TOPICS, self._look_at_topics)
            self._watch_node(znodes.FEATURE, self._look_at_levels)
        self._watch_children(znodes.DELETED_TOPICS, self._look_at_deletions)
        self._watch_children(znodes.LOG_DIR_EVENTS, self._look_at_log_dirs)
        self._watch_children(znodes.ISR_CHANGES, self._look_at_isr_changes)
        self._watch_node(znodes.REASSIGNMENTS, self._requests.look_at_reassignments)
        self._watch_node(znodes.PREFERRED_ELECTION, self._requests.look_at_preferred_elections)

    def _watch_children(self, path: str, look: Callable[[], Awaitable[None]]) -> None:
        self._watches[path] = self._session.watch_children(path, lambda _: self._events.look(path, look))

    def _watch_node(self, path: str, look: Callable[[], Awaitable[None]]) -> None:
        if path not in self._watches:  # the same brokers are looked at again and again
            self._watches[path] = self._session.watch_node(path, lambda _: self._events.look(path, look))

    def _watch_topic(self, name: str) -> None:
        if not self._is_alone:
            self._watch_node(znodes.topic_path(name), partial(self._look_at_topic, name))

    def _begin_to_watch(self, topic: str) -> None:
        """Watch the node of a topic that this controller wrote. Then read the node, to see changes before the watch."""
        self._watch_topic(topic)
        if not self._is_alone:
            self._events.look(znodes.topic_path(topic), partial(self._look_at_topic, topic))

    def _unwatch(self, path: str) -> None:
        if (cancel := self._watches.pop(path, None)) is not None:
            cancel()

    async def _load(self) -> None:
        """Load the state that earlier controllers wrote into the coordination tree.

        Pending notices of log directory failures and ISR changes are deleted, because the brokers' first responses
        report the same facts.
        """
        for path in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            await self._tree.delete_below(path)
        await self._levels.load()
        # Brokers before topics, because elections ask who lives.
        for broker in (await self._brokers()).values():
            self.states.load_broker(broker)
        await self._load_topics(await self._tree.children(znodes.TOPICS))
        # Before the first decision, so that nobody is elected in topics that have to go.
        await self._mark_deletions()

    async def _load_topics(self, names: Iterable[str]) -> list[str]:
        """Load the topics among `names` that are not loaded yet; return the names of the topics loaded now."""
        new = sorted(set(names) - self.states.topics.keys())
        time_slice = TimeSlice()
        for name in new:
            self._watch_topic(name)  # before the node is read, so that no change is missed in between
            await time_slice.yield_if_over()
        found = await self._reader.topics(new)
        for name, topic in found.items():
            self.states.load_topic(name, *topic)
            await time_slice.yield_if_over()
        for name in new:
            if name not in found:
                self._unwatch(znodes.topic_path(name))
        return list(found)

    async def _start(self) -> None:
        await self._levels.raise_newest()  # before brokers are told anything: then they know the levels when they serve
        for broker in self.states.brokers.values():
            self._channels.open(broker)  # what is told to a broker without a channel is lost
        await self._writer.carry_out(lambda: self.states.start(self._leads))
        await self._requests.look_at_reassignments()
        await self._requests.look_at_preferred_elections()
        await self._after()

    async def _balance_now_and_then(self) -> None:
        """Move leadership to preferred leaders every leader.imbalance.check.interval.seconds.

        Only brokers whose imbalance exceeds leader.imbalance.per.broker.percentage are rebalanced.
        """
        await trio.sleep(FIRST_BALANCE_S)
        while True:
            if self._config().replication.auto_leader_rebalance_enable:
                self._events.look("balance", self._balance)  # once, however long the events before it take
            await trio.sleep(self._config().replication.leader_imbalance_check_interval_seconds)

    async def _balance(self) -> None:
        # Here, because it is not needed to start.
        from ottla.replication.controller.elect_leaders import balance_leaders

        percentage = self._config().replication.leader_imbalance_per_broker_percentage
        await self._carry_out(lambda: balance_leaders(self.states, percentage))

    # ------------------------------------------------------------------ telling the brokers

    async def _notify(self, batch: ControlBatch) -> None:
        sender = Sender(
            controller_id=self._node_id,
            controller_epoch=self.epoch,
            listener=self._listener,
            brokers=self.states.brokers,
            topic_ids=TopicIds(self.states),
        )
        time_slice = TimeSlice()
        for broker in batch.receivers():
            self._channels.put(broker, await time_slice.take(sender.requests(batch, broker)))
            await trio.lowlevel.checkpoint()
            time_slice.begin()

    def _on_answer(self, channel: BrokerChannel, request: ControlRequest, response: Any) -> None:
        if response.error_code != ErrorCode.NONE or not self._is_known(channel.broker.node_id, request, response):
            self._events.put(partial(self._hear, channel, request, response))

    def _is_known(self, broker: int, request: ControlRequest, response: Any) -> bool:
        """Return True if a broker's error-free response contains no news for the controller.

        An UpdateMetadata response contains none. A LeaderAndIsr response contains none if no replica of the broker is
        offline and no event is queued; a queued event may be an earlier response of the broker.
        """
        if isinstance(request, LeaderAndIsrRequest):
            return (
                not self._events.is_anything_waiting
                and not self.states.offline.get(broker)
                and not any(each.error_code for topic in response.topics for each in topic.partition_errors)
            )
        return isinstance(request, UpdateMetadataRequest)

    async def _hear(self, channel: BrokerChannel, request: ControlRequest, response: Any) -> None:
        broker = channel.broker.node_id
        if not self._channels.is_open(channel):  # the answer of an earlier incarnation says nothing of the present one
            return
        if response.error_code != ErrorCode.NONE:
            logger.warning("Broker %d answered %s with %s", broker, type(request).__name__, response.error_code)
            if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._on_doubt()  # the broker may be wrong, so /controller decides
        elif isinstance(request, LeaderAndIsrRequest):
            errors = self._replica_errors(response)
            await self._carry_out(lambda: self.states.replicas_answered(broker, errors))
        elif isinstance(request, StopReplicaRequest):
            gone = deleted_replicas(request, response)
            await self._carry_out(lambda: self.states.replicas_deleted(broker, gone))

    def _replica_errors(self, response: LeaderAndIsrResponse) -> dict[TopicPartition, int]:
        names = self.states.topic_names
        return {
            (names[topic_id], each.partition_index): each.error_code
            for topic in response.topics
            if (topic_id := bytes(topic.topic_id)) in names
            for each in topic.partition_errors
        }

    # ------------------------------------------------------------------ looking at the tree

    async def _brokers(self) -> dict[int, BrokerRegistration]:
        ids = await self._reader.broker_ids()
        for node_id in ids:
            self._watch_node(znodes.broker_path(node_id), self._look_at_brokers)
        return self._levels.admitted(await self._reader.brokers(ids))

    async def _look_at_brokers(self) -> None:
        registrations = await self._brokers()
        changes = self.states.compare(registrations)
        # First who came: they can take over from those who went. A broker that bounced goes before it comes, as its
        # former incarnation has lost what it led.
        if changes.up:
            await self._come(changes.up)
        if changes.down:
            await self._go(changes.down)
            for node_id in changes.down:
                if node_id not in registrations:  # one that bounced is watched on
                    self._unwatch(znodes.broker_path(node_id))
        if changes.bounced:
            await self._come(changes.bounced)
        for broker in registrations.values():
            if (known := self.states.brokers.get(broker.node_id)) is not None and known != broker:
                logger.info("Broker %d is reached elsewhere", broker.node_id)
                self._channels.update(broker)
                await self._carry_out(partial(self.states.broker_updated, broker))
        await self._levels.raise_newest()

    async def _look_at_levels(self) -> None:
        await self._levels.load()
        await self._look_at_brokers()

    async def _come(self, brokers: list[BrokerRegistration]) -> None:
        for broker in brokers:
            self._channels.open(broker)
        await self._carry_out(lambda: self.states.brokers_up(brokers))
        logger.info("Brokers %s came: %s", [broker.node_id for broker in brokers], self._leaders())

    async def _go(self, node_ids: list[int]) -> None:
        for node_id in node_ids:
            self._channels.close(node_id)  # before the decision: nothing of it is for them
        await self._carry_out(lambda: self.states.brokers_down(node_ids))
        logger.info("Brokers %s went: %s", node_ids, self._leaders())

    def _leaders(self) -> str:
        return self._writer.tally.take_leaders()

    async def _look_at_topics(self) -> None:
        names = await self._tree.children(znodes.TOPICS)
        gone = self.states.topics.keys() - set(names)
        for name in sorted(gone):
            logger.warning("Another client removed the nodes of topic %s", name)
            self._unwatch(znodes.topic_path(name))
            self.states.forget_topic(name)
        new = await self._load_topics(names)
        # States that are there already come from another controller, and no broker has heard of them.
        for part in in_parts(new, TOPICS_PER_DECISION):
            await self._writer.restate(part)
            await self._carry_out(partial(self.states.elect_offline, part))
        time_slice = TimeSlice()
        for name in new:
            if name in self.states.topics:
                count = len(self.states.topics[name].partitions)
                logger.info("Topic %s was created, %s", name, counted(count, "partition"))
            await time_slice.yield_if_over()
        # Marks of topics that are gone can go as well.
        if gone:
            await self._look_at_deletions()

    async def _look_at_topic(self, name: str) -> None:
        known = self.states.topics.get(name)
        if known is None:
            return
        node = await self._tree.get(znodes.topic_path(name))
        if node is None:
            return
        if node.version == known.version:
            # Most often it was this controller that wrote it. What somebody else has added was read if a write failed on it.
            await self._carry_out(partial(self.states.elect_new, name, known.partitions))
            return
        found = (await self._reader.topics([name])).get(name)
        if found is not None and found.assignment.topic_id != known.topic_id:
            self.states.forget_topic(name)  # made again under the same name
            await self._look_at_topics()
        elif found is not None:
            # Outside of `_carry_out`, which decides again after a failed write: by then this version may be out of
            # date.
            self.states.topic_changed(name, found.assignment, found.version)
            await self._carry_out(lambda: self.states.elect_offline([name]))

    async def _look_at_deletions(self) -> None:
        names = await self._tree.children(znodes.DELETED_TOPICS)
        # A topic may have been marked before it was looked at. Otherwise its mark would count as that of no topic.
        if any(name not in self.states.topics for name in names):
            await self._look_at_topics()
        await self._mark_deletions()
        await self._carry_out(Decision)  # decides nothing; `pending` does the rest

    async def _mark_deletions(self) -> None:
        """Begin requested topic deletions. Drop requests for unknown topics; drop all if delete.topic.enable is off."""
        names = await self._tree.children(znodes.DELETED_TOPICS)
        known = dict.fromkeys(name for name in names if name in self.states.topics)  # in their order
        if not self._config().replication.delete_topic_enable:
            known = {}
        await self._tree.delete([znodes.deleted_topic_path(name) for name in names if name not in known])
        new = [name for name in known if name not in self.states.deletions]
        if new:
            logger.debug("Topics to be deleted: %s", some_of(new))
        for name in new:  # before it goes: a watch that fires is set again, and that of a node that is gone would stay
            self._unwatch(znodes.topic_path(name))
        self.states.delete_topics(list(known))

    async def _look_at_log_dirs(self) -> None:
        brokers, nodes = await self._reader.log_dir_failures()
        for broker in sorted(brokers):
            logger.warning("Broker %d lost a log directory", broker)
            await self._carry_out(partial(self.states.log_dir_failed, broker))
        await self._tree.delete(nodes)  # a controller that takes over before that asks all brokers anyway

    async def _look_at_isr_changes(self) -> None:
        partitions, nodes = await self._reader.isr_changes()
        await self._writer.read_again(sorted({topic for topic, _ in partitions}))
        await self._carry_out(Decision)
        await self._tree.delete(nodes)

    async def _carry_out(self, decide: Decide) -> CarriedOut:
        return await self._writer.carry_out(decide)

    async def _after(self) -> None:
        tally, self._writer.tally = self._writer.tally, Tally()
        for name in tally.deleted:
            logger.info("Topic %s was deleted", name)
        if tally.led or tally.offline:
            logger.info("Leaders have changed: %s", tally.take_leaders())
        if tally.reassigned:
            done = [f"{name}-{index}" for name, index in tally.reassigned]
            logger.info("Reassignments of %d partitions are complete: %s", len(done), some_of(done))
            await self._requests.settle_reassignments()
