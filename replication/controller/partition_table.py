"""The controller's table of partitions, brokers and disks, and how committed decisions change it. Sans-IO.

`PartitionStates` makes decisions from the table. Only `load_*`, `commit` and inputs about facts (brokers, disks, deletions)
change the table. Its contents are also in the coordination tree, except the failed log directories, which brokers report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ottla.replication.cluster import znodes
from ottla.replication.cluster.metadata_cache import NO_LEADER, NO_PARTITION_EPOCH, BrokerRegistration, PartitionState
from ottla.replication.cluster.znodes import LeaderAndIsr, TopicAssignment
from ottla.replication.controller.decisions import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    OPERATIONS_PER_MULTI,
    Change,
    ControlBatch,
    Decision,
    NodeRemoval,
    StateChange,
    TopicChange,
    TopicCreation,
    TopicExtension,
    TopicPartition,
)
from ottla.wire.schema import ZERO_UUID


class TopicDeletions:
    """Topics under deletion, with the replicas that are still to be deleted. Sans-IO; part of `PartitionStates`.

    Works like Kafka's TopicDeletionManager with fewer states, because no further decision is made on such a topic. It
    is *queued* once it is marked below /admin/delete_topics, *started* when the controller has announced to all brokers
    that it has no leader (-2) and has asked the brokers of its replicas to delete them, and *finished* when each of
    these brokers has confirmed. Then its nodes are removed, the mark last. A broker that is dead or failed to delete a
    replica blocks the deletion until it restarts and gets the request again. A new controller repeats all steps:
    deleting a replica that is gone succeeds. The deletion ends reassignments of the topic.
    """

    def __init__(self) -> None:
        # By topic: partition and broker of each replica. A topic that is in here is queued.
        self._left: dict[str, set[tuple[int, int]]] = {}
        self._started: set[str] = set()
        self._announced: tuple[PartitionState, PartitionState] | None = None
        """The last state that was announced as gone, and the state that the brokers got in its place."""

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def add(self, name: str, partitions: Mapping[int, PartitionState]) -> None:
        # Marks are looked at again and again. What was deleted meanwhile stays noted.
        if name not in self._left:
            self._left[name] = {(index, broker) for index, state in partitions.items() for broker in state.replicas}

    def remove(self, name: str) -> None:
        self._left.pop(name, None)
        self._started.discard(name)

    def not_started(self) -> list[str]:
        return [name for name in self._left if name not in self._started]

    def start(self, name: str) -> None:
        self._started.add(name)

    def finished(self) -> list[str]:
        return [name for name in sorted(self._started) if not self._left[name]]

    def note_deleted(self, partition: TopicPartition, broker: int) -> None:
        name, index = partition
        # Otherwise the answer is about a replica that a reassignment removed, or about a topic that is gone.
        if name in self._started:
            self._left[name].discard((index, broker))

    def left_on(self, broker: int) -> list[TopicPartition]:
        """Return the replicas under deletion that a broker still has, to ask again when the broker restarts."""
        return [
            (name, index) for name in sorted(self._started) for index, at in sorted(self._left[name]) if at == broker
        ]

    def announce(
        self, batch: ControlBatch, partition: TopicPartition, state: PartitionState, brokers: Iterable[int]
    ) -> None:
        """Announce to `brokers` that a partition's topic is being deleted; the requests are added to `batch`.

        The announced state has no leader and no epochs, as in Kafka.
        """
        # Thousands of partitions of a topic have the same state.
        if self._announced is None or self._announced[0] is not state:
            gone = replace(state, leader=LEADER_DURING_DELETE, leader_epoch=0, partition_epoch=0)
            self._announced = state, gone
        batch.announce(brokers, partition, self._announced[1], ())

    def stop(self, batch: ControlBatch, partition: TopicPartition, brokers: Iterable[int]) -> None:
        for broker in brokers:
            # With this epoch a broker deletes the replica whatever leader epoch it knows.
            batch.stop(broker, partition, EPOCH_DURING_DELETE, delete=True)

    def removal(self, name: str, paths: list[str]) -> list[NodeRemoval]:
        """Build the changes that remove a topic's nodes in the given order."""
        starts = range(0, len(paths), OPERATIONS_PER_MULTI)
        # Only the last part names the topic: the controller forgets it when all of its nodes are gone.
        last = starts[-1]
        return [
            NodeRemoval(tuple(paths[start : start + OPERATIONS_PER_MULTI]), name if start == last else None)
            for start in starts
        ]


@dataclass(slots=True)
class ControlledTopic:
    """A topic with the contents and the version of its node."""

    name: str
    topic_id: bytes
    version: int
    partitions: dict[int, PartitionState]


class PartitionTable:
    """All partitions of the cluster; `is_unclean(topic)` says whether a topic allows unclean elections."""

    def __init__(self, *, controller_epoch: int, is_unclean: Callable[[str], bool] = lambda _: False) -> None:
        self.controller_epoch = controller_epoch
        self.is_unclean = is_unclean
        self.brokers: dict[int, BrokerRegistration] = {}  # those that have a session
        self.shutting_down: set[int] = set()  # they live until their sessions end, and no leader is elected there
        self.topics: dict[str, ControlledTopic] = {}
        self.deletions = TopicDeletions()
        self.topic_names: dict[bytes, str] = {}  # AlterPartition and answers to LeaderAndIsr name topics by id
        self.offline: dict[int, set[TopicPartition]] = {}  # by broker: replicas on log directories that failed
        self.reassigned: set[TopicPartition] = set()  # so that `pending` need not look at every partition
        self.unwritten: set[str] = set()  # topics whose nodes still name the replicas of a complete reassignment
        self.nodes: dict[str, bool] = {}  # by path: what writes that failed have shown; see `note_node`

    # ------------------------------------------------------------------ what is known

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition[0])
        return None if topic is None else topic.partitions.get(partition[1])

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yield all partitions, except partitions of topics under deletion."""
        for name, topic in self.topics.items():
            if name not in self.deletions:
                for index, state in topic.partitions.items():
                    yield (name, index), state

    def alive(self, partition: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Return the brokers in `replicas` that are alive and whose log directory of this partition works."""
        return {
            broker for broker in replicas if broker in self.brokers and partition not in self.offline.get(broker, ())
        }

    def online(self, partition: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Return the brokers in `replicas` that are alive (see `alive`) and not shutting down."""
        return self.alive(partition, replicas) - self.shutting_down

    def led_by(self, broker: int) -> list[TopicPartition]:
        """Return partitions that a broker leads and that have other replicas; a controlled shutdown must move them."""
        # A sole replica cannot be handed over. If it counted, a broker that stops would ask again in vain.
        return [name for name, state in self.partitions() if state.leader == broker and len(state.replicas) > 1]

    def reassignments(self) -> dict[TopicPartition, PartitionState]:
        """Return the partitions that are being reassigned."""
        return {name: state for name, state in self.partitions() if state.is_being_reassigned}

    def topic_ids(self) -> dict[str, bytes]:
        return {name: topic.topic_id for name, topic in self.topics.items()}

    # ------------------------------------------------------------------ loading

    def load_broker(self, broker: BrokerRegistration) -> None:
        self.brokers[broker.node_id] = broker

    def load_topic(
        self,
        name: str,
        assignment: TopicAssignment,
        version: int,
        states: Mapping[int, tuple[LeaderAndIsr, int]],
    ) -> None:
        """Load a topic from its node and its partitions' states; each state comes with its node's version."""
        topic_id = assignment.topic_id or ZERO_UUID
        topic = ControlledTopic(name, topic_id, version, assigned_all(assignment, assignment.partitions))
        for index, known in states.items():
            if index in topic.partitions:
                topic.partitions[index] = _with_leadership(topic.partitions[index], *known)
        # A topic that was deleted and made again has another id, and the old one must not lead to it.
        if (former := self.topics.get(name)) is not None:
            self.topic_names.pop(former.topic_id, None)
        self.topics[name] = topic
        if assignment.topic_id is not None:
            self.topic_names[topic_id] = name
        # A reassignment that was complete, but not yet settled in the node, shows here once more and is completed
        # again.
        self.reassigned = {each for each in self.reassigned if each[0] != name}
        self.reassigned.update((name, index) for index, state in topic.partitions.items() if state.is_being_reassigned)
        self.unwritten.discard(name)

    def note_node(self, path: str, *, exists: bool) -> None:
        """Record after a failed write whether a node exists: a failed Kafka controller may have left nodes behind."""
        self.nodes[path] = exists

    # ------------------------------------------------------------------ from decision to fact

    def commit(self, decision: Decision) -> ControlBatch:
        """Apply a decision after its writes are durable; return the requests to the brokers."""
        batch = decision.batch
        for change in decision.changes:
            if isinstance(change, StateChange):
                self._commit_state(change, batch)
            elif isinstance(change, TopicChange):
                self._commit_topic(change)
            elif isinstance(change, TopicCreation):
                self.forget_nodes(change.topic)
                self.load_topic(change.topic, change.assignment, 0, {})
                for state in change.states:
                    self._commit_state(state, batch)
            elif isinstance(change, TopicExtension):
                self._commit_topic(change.change)
                for state in change.states:
                    self._commit_state(state, batch)
            elif change.topic is not None:
                self.forget_topic(change.topic)
        return batch

    def _commit_state(self, change: StateChange, batch: ControlBatch) -> None:
        partition, state = change.partition, change.state
        known = self.topics[partition[0]].partitions[partition[1]]
        # The write went through on the version before. Anything else would mean that this table and the tree differ.
        assert state.partition_epoch == known.partition_epoch + 1 and state.leader_epoch >= known.leader_epoch
        self.topics[partition[0]].partitions[partition[1]] = state
        self._note_reassignment(partition, state)
        # The topic's node follows with `pending`: until then it names the replicas that still have to be deleted.
        if change.completes:
            self.unwritten.add(partition[0])
        # A broker that is down hears of everything it replicates when it comes up (`brokers_up`).
        for broker in change.recipients:
            if broker in self.brokers:
                batch.lead_or_follow(broker, partition, state, is_new=broker in change.newcomers)
        # A replica that left while its broker was down is not deleted later either: its log stays, as with Kafka.
        for brokers, delete in ((change.stopped, False), (change.deleted, True)):
            for broker in brokers:
                if broker in self.brokers:
                    batch.stop(broker, partition, state.leader_epoch, delete=delete)
        self.notify_all(batch, partition, state)

    def _commit_topic(self, change: TopicChange) -> None:
        topic = self.topics[change.topic]
        assert topic.version == change.version
        # The write has raised the node's version.
        topic.version += 1
        for index, state in change.states.items():
            topic.partitions[index] = state
            self._note_reassignment((change.topic, index), state)
        self.unwritten.discard(change.topic)

    def forget_topic(self, name: str) -> None:
        """Forget a topic after its nodes were removed."""
        topic = self.topics.pop(name)
        self.topic_names.pop(topic.topic_id, None)
        self.deletions.remove(name)
        self.unwritten.discard(name)
        self.reassigned = {each for each in self.reassigned if each[0] != name}
        # A new topic of the same name begins with nothing known of its replicas and nodes.
        for index in topic.partitions:
            for offline in self.offline.values():
                offline.discard((name, index))
        self.forget_nodes(name)

    def forget_nodes(self, name: str) -> None:
        """Forget which of a topic's nodes exist, as recorded by `note_node`."""
        self.nodes = {path: exists for path, exists in self.nodes.items() if not _belongs(path, name)}

    def _note_reassignment(self, partition: TopicPartition, state: PartitionState) -> None:
        if state.is_being_reassigned:
            self.reassigned.add(partition)
        else:
            self.reassigned.discard(partition)

    # ------------------------------------------------------------------ parts of decisions

    def topic_change(self, name: str, states: Mapping[int, PartitionState] | None = None) -> TopicChange:
        """Build the write of a topic's node; `states` holds new replicas for some partitions."""
        topic = self.topics[name]
        merged = {**topic.partitions, **(states or {})}
        # Kafka names in the last two only partitions that are being reassigned.
        assignment = TopicAssignment(
            topic.topic_id,
            {index: list(state.replicas) for index, state in merged.items()},
            {index: list(state.adding_replicas) for index, state in merged.items() if state.adding_replicas},
            {index: list(state.removing_replicas) for index, state in merged.items() if state.removing_replicas},
        )
        return TopicChange(name, topic.version, znodes.encode_topic(assignment), states or {})

    def change(
        self,
        partition: TopicPartition,
        state: PartitionState,
        recipients: Iterable[int] = (),
        *,
        stopped: Iterable[int] = (),
        deleted: Iterable[int] = (),
        completes: bool = False,
    ) -> StateChange:
        """Build a state change with this controller's epoch; recipients that may lack a log become newcomers."""
        # A newcomer makes its log even where one of its log directories has failed, because the log cannot be in
        # there. Version 0 is the first state of a partition: no broker had a log before.
        receivers = tuple(sorted(recipients))
        is_first = state.partition_epoch == 0
        return StateChange(
            partition=partition,
            state=replace(state, controller_epoch=self.controller_epoch),
            recipients=receivers,
            newcomers=tuple(each for each in receivers if is_first or each in _arriving(state)),
            stopped=tuple(stopped),
            deleted=tuple(deleted),
            completes=completes,
        )

    def notify(self, batch: ControlBatch, partition: TopicPartition, state: PartitionState, brokers: set[int]) -> None:
        for broker in brokers:
            batch.lead_or_follow(broker, partition, state, is_new=broker in _arriving(state))

    def notify_all(self, batch: ControlBatch, partition: TopicPartition, state: PartitionState) -> None:
        batch.announce(self.brokers, partition, state, self.offline_replicas(partition, state))

    def offline_replicas(self, partition: TopicPartition, state: PartitionState) -> tuple[int, ...]:
        online = self.online(partition, state.replicas)
        return tuple(broker for broker in state.replicas if broker not in online)

    def decision(self, changes: Iterable[Change], batch: ControlBatch | None = None) -> Decision:
        # Several first states of a topic share the node above them. The first change makes it for all of them.
        made: set[str] = set()
        placed = [self._placed(change, made) if isinstance(change, StateChange) else change for change in changes]
        return Decision(changes=tuple(placed), batch=batch or ControlBatch())

    def _placed(self, change: StateChange, made: set[str], partition: TopicPartition | None = None) -> StateChange:
        """Add the missing parent nodes to a change that writes a partition's first state.

        `made` collects the parents of all changes, so that each node is created once.
        """
        if change.state.partition_epoch:
            return change
        partition = partition or change.partition
        topic, index = partition
        parents = []
        # What a failed write has shown counts. Otherwise the states tell: where one is written, the node above is
        # there.
        if self.nodes.get(above := znodes.partitions_path(topic)) is not True and above not in made:
            known = self.topics.get(topic)  # None: the topic is created by the same write
            if known is None or all(each.partition_epoch == NO_PARTITION_EPOCH for each in known.partitions.values()):
                parents.append(above)
        if self.nodes.get(above := znodes.partition_path(topic, index)) is not True:
            parents.append(above)
        made.update(parents)
        return replace(change, partition=partition, parents=tuple(parents))


def _belongs(path: str, topic: str) -> bool:
    above = znodes.topic_path(topic)
    return path in (above, znodes.topic_config_path(topic), znodes.deleted_topic_path(topic)) or path.startswith(
        above + "/"
    )


def _arriving(state: PartitionState) -> tuple[int, ...]:
    """Return the added replicas that are not in sync yet; they may have no log of the partition."""
    return tuple(broker for broker in state.adding_replicas if broker not in state.isr)


def assigned(assignment: TopicAssignment, index: int) -> PartitionState:
    return PartitionState(
        # The first election raises both epochs by one, to 0, where Kafka's begin.
        leader=NO_LEADER,
        leader_epoch=-1,
        replicas=tuple(assignment.partitions[index]),
        isr=(),
        partition_epoch=NO_PARTITION_EPOCH,
        adding_replicas=tuple(assignment.adding_replicas.get(index, ())),
        removing_replicas=tuple(assignment.removing_replicas.get(index, ())),
    )


def assigned_all(assignment: TopicAssignment, partitions: Iterable[int]) -> dict[int, PartitionState]:
    """Return states before the first election, by partition number; equal replica lists share one object.

    Creating 10,000 objects would block the event loop.
    """
    if assignment.adding_replicas or assignment.removing_replicas:
        return {index: assigned(assignment, index) for index in partitions}
    shared: dict[tuple[int, ...], PartitionState] = {}
    states: dict[int, PartitionState] = {}
    for index in partitions:
        replicas = tuple(assignment.partitions[index])
        if (state := shared.get(replicas)) is None:
            state = shared[replicas] = assigned(assignment, index)
        states[index] = state
    return states


def _with_leadership(state: PartitionState, known: LeaderAndIsr, version: int) -> PartitionState:
    return replace(
        state,
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        isr=tuple(known.isr),
        partition_epoch=version,
        leader_recovery_state=known.leader_recovery_state,
        controller_epoch=known.controller_epoch,
    )
