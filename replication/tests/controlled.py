"""A coordination tree in memory and brokers that remember what they were told, for tests of the controller's decisions."""

from collections.abc import Iterator

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
)
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration, PartitionState
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.replication.controller.decisions import ControlBatch, Decision, Steps, T, TopicPartition
from ottla.replication.controller.partition_states import Leads, PartitionStates, leads_nothing
from ottla.wire.errors import ErrorCode

TOPIC = "t"
FIRST: TopicPartition = (TOPIC, 0)


def at_once(steps: Steps[T]) -> T:
    """Run a generator of steps to its end without a pause; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def registration(node_id: int, epoch: int = 100, rack: str | None = None) -> BrokerRegistration:
    endpoint = BrokerEndpoint(node_id, f"host{node_id}", 9000 + node_id)
    return BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, rack, epoch + node_id, {"PLAINTEXT": 0})


class Tree:
    """Nodes with versions; a multi does all or nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {znodes.CONTROLLER_EPOCH: (b"1", 1)}

    def multi(self, operations: list[Operation]) -> None:
        before = dict(self.nodes)
        try:
            for operation in operations:
                self._do(operation)
        except Exception:
            self.nodes = before
            raise

    def _do(self, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            if path in self.nodes:
                raise NodeExists(path)
            if path.count("/") > 4 and path.rsplit("/", 1)[0] not in self.nodes:
                raise NoNode(path)
            self.nodes[path] = (operation.data, 0)
            return
        if path not in self.nodes:
            raise NoNode(path)
        version = self.nodes[path][1]
        if operation.version not in (-1, version):
            raise BadVersion(path)
        if isinstance(operation, Delete):
            if any(each.startswith(path + "/") for each in self.nodes):
                raise NotEmpty(path)
            del self.nodes[path]
        elif not isinstance(operation, Check):
            self.nodes[path] = (operation.data, version + 1)

    def topic(self, name: str) -> tuple[TopicAssignment, int]:
        data, version = self.nodes[znodes.topic_path(name)]
        return znodes.decode_topic(data), version

    def state(self, partition: TopicPartition) -> tuple[znodes.LeaderAndIsr, int] | None:
        node = self.nodes.get(znodes.state_path(*partition))
        return None if node is None else (znodes.decode_state(node[0]), node[1])

    def topic_names(self) -> list[str]:
        return [
            path.rsplit("/", 1)[1] for path in self.nodes if path.startswith(znodes.TOPICS) and path.count("/") == 3
        ]


class Told:
    """What a broker made of all that it was told: its replicas, and what it knows of all partitions."""

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, PartitionState] = {}
        self.metadata: dict[TopicPartition, PartitionState] = {}

    def hear(self, batch: ControlBatch, broker: int) -> list[TopicPartition]:
        """Returns the replicas that it deleted."""
        for partition, (state, _) in batch.leader_and_isr.get(broker, {}).items():
            known = self.replicas.get(partition)
            if known is None or state.leader_epoch > known.leader_epoch:
                self.replicas[partition] = state
        for partition, (state, _) in batch.update_metadata.get(broker, {}).items():
            self.metadata[partition] = state
            if state.leader == -2:
                del self.metadata[partition]
        deleted = [partition for partition, (_, delete) in batch.stop_replica.get(broker, {}).items() if delete]
        for partition in deleted:
            self.replicas.pop(partition, None)
        return deleted


class Controlled:
    """A controller's `PartitionStates` with its tree and the brokers it tells."""

    def __init__(self, *brokers: int, unclean: bool = False) -> None:
        self.tree = Tree()
        self.unclean = unclean
        self.told: dict[int, Told] = {}
        self.batches: list[ControlBatch] = []
        self.states = PartitionStates(controller_epoch=1, is_unclean=lambda _: self.unclean)
        self.do(self.states.brokers_up([registration(broker) for broker in brokers]))

    # --- carrying out

    def do(self, decision: Decision | Steps[Decision], *, limit: int = 500) -> Decision:
        """As the shell does it: write, commit, tell, and go on with what follows."""
        if not isinstance(decision, Decision):
            decision = at_once(decision)
        for _ in self.steps(decision, limit=limit):
            pass
        return decision

    def steps(self, decision: Decision, *, limit: int = 500) -> Iterator[None]:
        """The same with a pause between each write and what is told after it."""
        following: Decision | None = decision
        while following is not None:
            for part in following.parts(limit):
                assert [each.size for each in part.changes] == [len(each.operations) for each in part.changes]
                self.tree.multi(part.operations(self.tree.nodes[znodes.CONTROLLER_EPOCH][1]))
                batch = self.states.commit(part)
                yield
                self.tell(batch)
            following = self.states.pending()

    def tell(self, batch: ControlBatch) -> None:
        self.batches.append(batch)
        for broker in batch.receivers():
            deleted = self.told.setdefault(broker, Told()).hear(batch, broker)
            self.states.replicas_deleted(broker, dict.fromkeys(deleted, ErrorCode.NONE))

    def fail_over(self, leads: Leads = leads_nothing) -> Decision:
        """Another controller, which knows what the tree says."""
        before = self.states
        self.states = PartitionStates(controller_epoch=before.controller_epoch + 1, is_unclean=lambda _: self.unclean)
        for broker in before.brokers.values():
            self.states.load_broker(broker)
        for name in self.tree.topic_names():
            assignment, version = self.tree.topic(name)
            found = {index: self.tree.state((name, index)) for index in assignment.partitions}
            known = {index: state for index, state in found.items() if state is not None}
            self.states.load_topic(name, assignment, version, known)
            if znodes.deleted_topic_path(name) in self.tree.nodes:
                self.states.delete_topics([name])
        return at_once(self.states.start(leads))

    # --- inputs

    def create(self, *replicas: tuple[int, ...], topic: str = TOPIC) -> None:
        assignment = TopicAssignment(topic.encode().rjust(16), {index: list(ids) for index, ids in enumerate(replicas)})
        self.tree.nodes[znodes.topic_path(topic)] = (znodes.encode_topic(assignment), 0)
        self.tree.nodes[znodes.topic_config_path(topic)] = (b"", 0)
        self.states.load_topic(topic, assignment, 0, {})
        self.do(self.states.elect_offline([topic]))

    def delete(self, topic: str = TOPIC) -> None:
        self.tree.nodes[znodes.deleted_topic_path(topic)] = (b"", 0)
        self.do(self.states.delete_topics([topic]))

    def up(self, *brokers: int, epoch: int = 100) -> None:
        self.do(self.states.brokers_up([registration(broker, epoch) for broker in brokers]))

    def down(self, *brokers: int) -> None:
        self.do(self.states.brokers_down(brokers))

    # --- looking

    def state(self, partition: TopicPartition = FIRST) -> PartitionState:
        state = self.states.partition(partition)
        assert state is not None
        return state

    def leadership(self, partition: TopicPartition = FIRST) -> tuple[int, int, tuple[int, ...], int]:
        """Leader, leader epoch, ISR and partition epoch, which the tree has as well."""
        state = self.state(partition)
        node = self.tree.state(partition)
        assert node is not None
        known, version = node
        assert (known.leader, known.leader_epoch, tuple(known.isr), version) == (
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
        )
        assert known.controller_epoch == state.controller_epoch
        assert known.leader_recovery_state == state.leader_recovery_state
        return state.leader, state.leader_epoch, state.isr, state.partition_epoch

    @property
    def last(self) -> ControlBatch:
        return self.batches[-1]
