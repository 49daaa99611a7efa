"""The controller's state of all partitions, and its decisions when brokers, disks and topics come and go.

Sans-IO; owned by the task of the active controller, from the moment it was elected until it resigns. The state equals the
coordination tree's: `commit` is called after the writes of each decision, one decision at a time.

Theory
    A partition is in one of Kafka's states (its class PartitionStateMachine):

| state    | is                                                        | ways out                                     |
|----------|-----------------------------------------------------------|----------------------------------------------|
| new      | assigned, nobody elected: `partition_epoch` -1, no /state | a replica is online: all who are form the ISR|
| online   | `leader` is alive                                         | the leader is lost: another one, or offline  |
| offline  | `leader` is NO_LEADER                                     | one of the ISR returns; unclean election     |
| deleting | its topic is in `deletions`; nothing is decided on it     | all replicas are gone: nodes are removed     |

    An online or offline partition can be reassigned as well: see `reassignment.py`. The elections are in `leader_election.py`.

| input                      | decides                                                                             |
|----------------------------|-------------------------------------------------------------------------------------|
| start                      | all that follows, and tells everybody everything                                    |
| create_topic               | a topic's nodes, with first states of its partitions                                |
| add_partitions             | the topic's node, with first states of the new partitions                           |
| brokers_up                 | tells them all; elections of new and offline partitions; deletions go on            |
| brokers_down, log dir lost | elections of what they led; they leave every ISR where somebody else is alive       |
| controlled_shutdown        | moves what the broker leads, if somebody else is in sync; takes it out of other ISRs|
| topic_changed              | first states of partitions that have none                                           |
| elect_offline              | elections of offline partitions, where unclean elections are allowed now            |
| pending                    | what earlier decisions lead to: complete reassignments, topics' nodes, deletions    |

    Decisions that look at all partitions are made in steps (`decisions.Steps`). Inputs about facts (brokers, disks,
    deletions) count at once, and can be repeated: after a write that failed, read the nodes again (`load_topic`) and give
    the same input once more.

Invariants
    A leader is in the ISR, and was in the ISR that was written last unless the election was unclean. Leader epochs only
    grow, and the partition epoch is the version of the /state node: both are asserted by `commit`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.replication.cluster import znodes
from ottla.replication.cluster.metadata_cache import (
    NO_LEADER,
    NO_PARTITION_EPOCH,
    BrokerRegistration,
    PartitionState,
    TopicState,
    is_internal_topic,
)
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.replication.controller.decisions import (
    Change,
    ControlBatch,
    Decision,
    NodeRemoval,
    StateChange,
    Steps,
    TopicCreation,
    TopicExtension,
    TopicPartition,
)
from ottla.replication.controller.leader_election import (
    after_loss,
    controlled_shutdown_election,
    is_complete,
    offline_election,
    reassignment_election,
    succeed,
    without_replica,
)
from ottla.replication.controller.partition_table import PartitionTable, assigned_all
from ottla.wire.errors import ErrorCode, KafkaError

DELETIONS_PER_DECISION = 1_000  # topics
DELETED_PER_DECISION = 2_000  # partitions, unless one topic has more; then other tasks have a turn
FIRST_STATES_PER_WRITE = 500
"""The partitions of a topic that get their first states together with it; others get theirs by `elect_new`."""


Leads = Callable[[TopicPartition, int], bool]
"""Whether a controller's own broker leads a partition, and has done so since this leader epoch began."""


def leads_nothing(partition: TopicPartition, leader_epoch: int) -> bool:
    """Return False; stands in for `Leads` if the controller's own broker leads no partition."""
    return False


def nothing() -> Steps[Decision]:
    """Return an empty decision."""
    yield
    return Decision()


class BrokerChanges(NamedTuple):
    """Changes of live brokers; handled in order `up`, `down`, `bounced` (restarted brokers, treated like `up`)."""

    up: list[BrokerRegistration]
    down: list[int]
    bounced: list[BrokerRegistration]


class PartitionStates(PartitionTable):
    """State machine of all partitions of the cluster."""

    def start(self, leads: Leads = leads_nothing) -> Steps[Decision]:
        """Make the first decision of a new controller, after the whole state was loaded."""
        # The former controller's requests are unknown, so this one sends everything.
        batch = ControlBatch()
        if len(self.brokers) > 1:
            batch.introduce_brokers(self.brokers)
        else:  # there is nobody to follow, and clients are to be let in when everything is led
            batch.announce_brokers(self.brokers)
        changes: list[Change] = []
        for partition, state in self.partitions():
            yield
            if (change := self._restored(partition, state, leads)) is not None:
                changes.append(change)  # everybody concerned hears of it when it is written
            elif state.partition_epoch != NO_PARTITION_EPOCH:
                self.notify(batch, partition, state, self.online(partition, state.replicas))
                self.notify_all(batch, partition, state)
        return self.decision(changes, batch)

    def _restored(self, partition: TopicPartition, state: PartitionState, leads: Leads) -> StateChange | None:
        change = self._elected(partition, state)
        # A controller that is the only broker may not have seen how its last life ended. Clients may have been shown
        # records that a crash has taken from the log; by a new epoch they notice it. If the broker has lived on, a new
        # epoch would hide from them how far the partition goes, until as many replicas are in sync again as it needs.
        is_alone = len(self.brokers) == 1 and state.leader in self.brokers
        if change is None and is_alone and not leads(partition, state.leader_epoch):
            change = self.change(partition, succeed(state, state.leader, state.isr), (state.leader,))
        known = change.state if change is not None else state
        # A complete reassignment is finished by `pending`; a partition without a state gets its first one when
        # somebody lives.
        if not state.is_being_reassigned or is_complete(known) or known.partition_epoch == NO_PARTITION_EPOCH:
            return change
        # The controller before may have failed before the leader heard of the new replicas. Brokers pass over
        # LeaderAndIsr of an epoch that they know, so the same leader gets a new epoch.
        if change is None:
            known = succeed(state, state.leader, state.isr)
        return self.change(partition, known, known.replicas)

    # ------------------------------------------------------------------ brokers

    def compare(self, registrations: Mapping[int, BrokerRegistration]) -> BrokerChanges:
        """Return the changes from the known live brokers to `registrations`, the live brokers in /brokers/ids."""
        changes = BrokerChanges([], [], [])
        for node_id, broker in sorted(registrations.items()):
            known = self.brokers.get(node_id)
            if known is None:
                changes.up.append(broker)
            # The broker restarted between two looks and leads nothing any more. So it counts as a broker that went
            # down and came up again.
            elif known.epoch < broker.epoch:
                changes.down.append(node_id)
                changes.bounced.append(broker)
        changes.down.extend(sorted(self.brokers.keys() - registrations.keys()))
        return changes

    def brokers_up(self, brokers: Iterable[BrokerRegistration]) -> Steps[Decision]:
        new = {broker.node_id: broker for broker in brokers}
        self.brokers.update(new)
        for node_id in new:
            # The LeaderAndIsr below names all of its replicas. Its answer says which of them are on a failed
            # directory.
            self.offline.pop(node_id, None)
            self.shutting_down.discard(node_id)
        return self._arrivals(new)

    def _arrivals(self, new: Mapping[int, BrokerRegistration]) -> Steps[Decision]:
        batch = ControlBatch()
        batch.introduce_brokers(self.brokers)
        changes: list[Change] = []
        for partition, state in self.partitions():
            yield
            if state.partition_epoch != NO_PARTITION_EPOCH:
                returned = new.keys() & set(state.replicas)
                self.notify(batch, partition, state, returned)
                # Where a replica has returned everybody hears so, because all were told that it was offline. Otherwise
                # only the new brokers have something to learn.
                hearers = self.brokers if returned else new
                batch.announce(hearers, partition, state, self.offline_replicas(partition, state))
            if (change := self._elected(partition, state)) is not None:
                changes.append(change)
        # A deletion waits for every replica, and this broker has not heard of it while it was away.
        for node_id in new:
            for partition in self.deletions.left_on(node_id):
                self.deletions.stop(batch, partition, [node_id])
        return self.decision(changes, batch)

    def brokers_down(self, node_ids: Iterable[int]) -> Steps[Decision]:
        gone = set(node_ids)
        for node_id in gone:
            self.brokers.pop(node_id, None)
            self.offline.pop(node_id, None)
            self.shutting_down.discard(node_id)
        return self._losses((partition, state) for partition, state in self.partitions() if gone & {*state.replicas})

    def broker_updated(self, broker: BrokerRegistration) -> Decision:
        """Replace the endpoints of a broker whose incarnation is unchanged."""
        self.brokers[broker.node_id] = broker
        batch = ControlBatch()
        batch.announce_brokers(self.brokers)
        return self.decision([], batch)

    def controlled_shutdown(self, broker: int, broker_epoch: int) -> Steps[Decision]:
        """Elect other leaders for the partitions of a broker that shuts down.

        After the commit `led_by` lists the partitions that it still leads. Raises KafkaError if the broker or its epoch
        is not current.
        """
        known = self.brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
        # Requests below v2 say no epoch (-1).
        if -1 < broker_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Received controlled shutdown request from an old broker epoch {broker_epoch} for broker {broker}. "
                f"Current broker epoch is {known.epoch}.",
            )
        # It counts from here to the end of the broker's session, also for partitions that cannot be moved yet.
        self.shutting_down.add(broker)
        return self._departure(broker)

    def _departure(self, broker: int) -> Steps[Decision]:
        batch = ControlBatch()
        changes = list[Change]()
        for partition, state in self.partitions():
            yield
            # A sole replica serves until its broker stops: no replica can take over.
            if broker not in state.replicas or len(state.replicas) == 1 or state.partition_epoch == NO_PARTITION_EPOCH:
                continue
            if (change := self._shut_down(partition, state, broker)) is not None:
                changes.append(change)
            # Its leaving changes no state, but it is to stop fetching here as well.
            elif state.leader != broker:
                batch.stop(broker, partition, state.leader_epoch, delete=False)
                self.notify_all(batch, partition, state)
        return self.decision(changes, batch)

    def _shut_down(self, partition: TopicPartition, state: PartitionState, broker: int) -> StateChange | None:
        alive = self.alive(partition, state.replicas)
        if state.leader == broker:
            moved = controlled_shutdown_election(state, alive, self.shutting_down)
            return None if moved is None else self.change(partition, moved, alive)
        # Without a live leader the ISR stays as it is: its first member that returns may lead.
        if state.leader not in alive or (smaller := without_replica(state, broker)) is None:
            return None
        return self.change(partition, smaller, alive - {broker}, stopped=(broker,))

    # ------------------------------------------------------------------ log directories

    def log_dir_failed(self, broker: int) -> Steps[Decision]:
        """Ask a broker that lost a log directory about all its replicas; its answer goes to `replicas_answered`."""
        # The broker knows these states already. Their answers count: replicas on the failed directory are refused with
        # KAFKA_STORAGE_ERROR, and a log that could not be made before is made now.
        batch = ControlBatch()
        for partition, state in self.partitions():
            yield
            is_known = broker in self.brokers and broker in state.replicas
            if is_known and state.partition_epoch != NO_PARTITION_EPOCH:
                self.notify(batch, partition, state, {broker})
                self.notify_all(batch, partition, state)
        return self.decision([], batch)

    def replicas_answered(self, broker: int, errors: Mapping[TopicPartition, int]) -> Steps[Decision]:
        """Process a broker's response to LeaderAndIsr, which says which replicas are on a failed log directory."""
        if broker not in self.brokers:
            return nothing()
        offline = self.offline.setdefault(broker, set())
        # In the order of the answer: to sort ten thousand would take long.
        lost = dict.fromkeys(each for each, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR)
        new = lost.keys() - offline
        # Some of these logs could not be made for a passing reason, and are there after all.
        there = [each for each, code in errors.items() if code == ErrorCode.NONE]
        offline.difference_update(there)
        offline.update(lost)
        return self._answered(lost, new, there)

    def _answered(
        self, lost: Iterable[TopicPartition], new: Collection[TopicPartition], there: Iterable[TopicPartition]
    ) -> Steps[Decision]:
        yield
        # All that is there and has no leader, whether or not it counted as lost: as below, the same answer may come once more.
        elected = yield from self._elections(there)
        affected = list[tuple[TopicPartition, PartitionState]]()
        for partition in lost:
            yield
            state = self.partition(partition)
            if state is None or partition[0] in self.deletions:
                continue
            # Not only what is new: if the write of this decision failed, the same answer comes once more, and is known by
            # then.
            if partition in new or self._elected(partition, state) is not None:
                affected.append((partition, state))
        return (yield from self._losses(affected, elected)) if affected else self.decision(elected)

    def _elections(self, partitions: Iterable[TopicPartition]) -> Steps[list[Change]]:
        """Elect leaders for the given partitions that have none."""
        changes = list[Change]()
        for partition in partitions:
            yield
            state = self.partition(partition)
            if state is not None and state.leader == NO_LEADER and partition[0] not in self.deletions:
                change = self._elected(partition, state)
                changes += [] if change is None else [change]
        return changes

    # ------------------------------------------------------------------ topics

    def topic(self, name: str) -> TopicState | None:
        """Return a topic as of the last decision; None if it is unknown.

        Raises KafkaError while the topic is being deleted or reassigned.
        """
        if (known := self.topics.get(name)) is None:
            return None
        if name in self.deletions:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if any(state.is_being_reassigned for state in known.partitions.values()):
            message = f"A partition reassignment is in progress for the topic '{name}'."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        return TopicState(name, known.topic_id, tuple(known.partitions.values()), is_internal_topic(name))

    def create_topic(
        self, name: str, topic_id: bytes, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> TopicCreation:
        """Create a topic; raises KafkaError if the name is taken."""
        if name in self.topics or self.nodes.get(znodes.topic_path(name)):
            self.forget_nodes(name)  # by the next attempt it may be gone
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        assignment = TopicAssignment(topic_id, {index: list(ids) for index, ids in enumerate(replicas)})
        return TopicCreation(
            topic=name,
            assignment=assignment,
            configs=configs,
            states=self._first_states(
                name, assigned_all(assignment, range(min(len(replicas), FIRST_STATES_PER_WRITE)))
            ),
            has_settings=self.nodes.get(znodes.topic_config_path(name)) is True,
        )

    def add_partitions(self, name: str, replicas: Sequence[Sequence[int]]) -> TopicExtension:
        """Add partitions to a topic, with the given replicas for each new partition."""
        known = self.topics[name]
        first, end = len(known.partitions), len(known.partitions) + len(replicas)
        assignment = TopicAssignment(known.topic_id, {first + number: list(ids) for number, ids in enumerate(replicas)})
        new = assigned_all(assignment, range(first, end))
        return TopicExtension(
            change=self.topic_change(name, new),
            states=self._first_states(name, dict(islice(new.items(), FIRST_STATES_PER_WRITE))),
        )

    def elect_new(self, name: str, partitions: Iterable[int]) -> Decision:
        """Elect the first leaders of the given partitions, which have no state yet."""
        known = self.topics.get(name)
        if known is None or name in self.deletions:
            return self.decision([])
        changes = []
        for index in partitions:
            state = known.partitions.get(index)
            if state is not None and state.partition_epoch == NO_PARTITION_EPOCH:
                change = self._elected((name, index), state)
                changes += [] if change is None else [change]
        return self.decision(changes)

    def _first_states(self, name: str, new: Mapping[int, PartitionState]) -> tuple[StateChange, ...]:
        """Return the changes that create new partitions; omit partitions that have no live replica."""
        made: set[str] = set()
        elected: dict[int, StateChange | None] = {}
        changes = []
        for index, state in new.items():
            # Those that share a state are elected alike: no log of theirs can be on a directory that failed.
            if id(state) not in elected:
                elected[id(state)] = self._elected((name, index), state)
            if (change := elected[id(state)]) is not None:
                changes.append(self._placed(change, made, (name, index)))
        return tuple(changes)

    def topic_changed(self, name: str, assignment: TopicAssignment, version: int) -> Steps[Decision]:
        """Add the new partitions in a changed topic node and elect leaders for them.

        Other changes in the node are ignored, because only controllers reassign partitions.
        """
        topic = self.topics[name]
        topic.version = version
        if name in self.deletions:
            return nothing()
        topic.partitions |= assigned_all(assignment, assignment.partitions.keys() - topic.partitions.keys())
        topic.partitions = dict(sorted(topic.partitions.items()))
        return self.elect_offline([name])  # those without a state have no leader either

    def elect_offline(self, topics: Iterable[str] | None = None) -> Steps[Decision]:
        """Elect leaders for offline partitions of the topics (None: all), e.g. after unclean elections were allowed."""
        wanted = None if topics is None else set(topics)
        changes = list[Change]()
        for partition, state in self.partitions():
            yield
            if (wanted is None or partition[0] in wanted) and state.leader == NO_LEADER:
                change = self._elected(partition, state)
                changes += [] if change is None else [change]
        return self.decision(changes)

    def delete_topics(self, names: Iterable[str]) -> Decision:
        """Begin the deletion of topics marked in /admin/delete_topics; later decisions of `pending` continue it."""
        for name in names:
            if name in self.topics:
                self.deletions.add(name, self.topics[name].partitions)
                # Nothing is written of the topic any more, except its end.
                self.unwritten.discard(name)
                self.reassigned = {each for each in self.reassigned if each[0] != name}
        return self.decision([])

    def replicas_deleted(self, broker: int, errors: Mapping[TopicPartition, int]) -> Decision:
        """Process a broker's response to a StopReplica request that deletes replicas."""
        for partition, code in errors.items():
            # What could not be deleted holds the topic up until its broker comes up again.
            if code == ErrorCode.NONE:
                self.deletions.note_deleted(partition, broker)
        return self.decision([])

    def pending(self) -> Decision | None:
        """Return the next decision that follows from earlier ones, or None. Call this after a decision's last part."""
        if names := self.deletions.not_started():
            return self._deletion_start(self._some(names))
        # Each reassignment and each deletion takes one step: the topic's node follows a reassignment that is complete,
        # a reassignment whose new replicas are in sync completes, and a topic without replicas loses its nodes.
        changes: list[Change] = [self.topic_change(name) for name in sorted(self.unwritten)]
        changes += self._completions()
        for name in self._some(self.deletions.finished()):
            changes += self._removal(name)
        return self.decision(changes) if changes else None

    def _some(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the first topics in `names`, up to the limit of one decision."""
        left = DELETED_PER_DECISION
        for name in names[:DELETIONS_PER_DECISION]:
            yield name
            left -= len(self.topics[name].partitions)
            if left <= 0:
                return

    def _completions(self) -> Iterator[StateChange]:
        for partition in sorted(self.reassigned):
            state = self.partition(partition)
            if state is None or not is_complete(state):
                continue
            following = reassignment_election(state, self.online(partition, state.replicas))
            if following is not None:
                yield self.change(
                    partition, following, following.replicas, deleted=state.removing_replicas, completes=True
                )

    def _deletion_start(self, names: Iterable[str]) -> Decision:
        batch = ControlBatch()
        for name in names:
            self.deletions.start(name)
            for index, state in self.topics[name].partitions.items():
                self.deletions.announce(batch, (name, index), state, self.brokers)
                # Brokers that are down are asked when they come up (`brokers_up`).
                self.deletions.stop(batch, (name, index), [each for each in state.replicas if each in self.brokers])
        return self.decision([], batch)

    def _removal(self, name: str) -> list[NodeRemoval]:
        paths = list[str]()
        for index, state in self.topics[name].partitions.items():
            # A partition that never had a leader has no nodes, unless another controller failed while it made them.
            has_state = state.partition_epoch != NO_PARTITION_EPOCH
            above = znodes.partition_path(name, index)
            paths += [znodes.state_path(name, index)] if has_state else []
            paths += [above] if has_state or self.nodes.get(above) else []
        above = znodes.partitions_path(name)
        paths += [above] if paths or self.nodes.get(above) else []
        # The mark goes last: until then it tells the next controller that there is something left to remove.
        paths += [znodes.topic_path(name), znodes.topic_config_path(name), znodes.deleted_topic_path(name)]
        # Removing a node that is known to be missing would fail the whole multi again.
        return self.deletions.removal(name, [path for path in paths if self.nodes.get(path) is not False])

    # ------------------------------------------------------------------ parts of decisions

    def _elected(self, partition: TopicPartition, state: PartitionState) -> StateChange | None:
        """Elect a leader for a partition that is new, leaderless or has lost replicas; return the change.

        Returns None if nothing can or must change.
        """
        online = self.online(partition, state.replicas)
        # New: there are no records yet, so everybody who is online is in sync from the start.
        if state.partition_epoch == NO_PARTITION_EPOCH:
            in_sync = tuple(broker for broker in state.replicas if broker in online)
            if not in_sync:
                return None
            return self.change(partition, succeed(state, in_sync[0], in_sync), in_sync)
        # Offline, or online.
        unclean = self.is_unclean(partition[0])
        if state.leader == NO_LEADER:
            following = offline_election(state, online, unclean=unclean)
        else:
            following = after_loss(state, self.alive(partition, {*state.replicas, *state.isr}), online, unclean=unclean)
        # A leader hears of it even while its broker shuts down: it leads until somebody else is elected.
        return (
            None if following is None else self.change(partition, following, online | {following.leader} - {NO_LEADER})
        )

    def _losses(
        self, partitions: Iterable[tuple[TopicPartition, PartitionState]], others: Iterable[Change] = ()
    ) -> Steps[Decision]:
        """Decide on partitions that lost live replicas; add the changes in `others` to the decision."""
        batch = ControlBatch()
        # Everybody hears which brokers are left, even if no leader changes.
        batch.announce_brokers(self.brokers)
        changes = list(others)
        for partition, state in partitions:
            yield
            # No broker was ever notified of such a partition.
            if state.partition_epoch == NO_PARTITION_EPOCH:
                continue
            change = self._elected(partition, state)
            if change is not None:
                changes.append(change)
            else:
                # The state stays, but clients are to see that the replica is offline.
                self.notify_all(batch, partition, state)
        return self.decision(changes, batch)


# A view and no copy, which would be as long as the list of all topics, for every batch.
class TopicIds(Mapping[str, bytes]):
    """Live mapping from topic names to the present topic ids."""

    def __init__(self, states: PartitionStates) -> None:
        self._states = states

    def __getitem__(self, name: str) -> bytes:
        return self._states.topics[name].topic_id

    def __iter__(self) -> Iterator[str]:
        return iter(self._states.topics)

    def __len__(self) -> int:
        return len(self._states.topics)
