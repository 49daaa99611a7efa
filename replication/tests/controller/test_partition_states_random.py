"""Brokers come and go, leaders move, replicas are reassigned and controllers fail, at random: what must hold all along."""

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Operation, SetData
from ottla.replication.cluster.metadata_cache import NO_LEADER, PartitionState
from ottla.replication.controller.alter_partition import judge
from ottla.replication.controller.decisions import ControlBatch, TopicPartition
from ottla.replication.controller.elect_leaders import ElectionType, balance_leaders, elect_leaders
from ottla.replication.controller.reassignment import plan_reassignments
from ottla.replication.tests.controlled import TOPIC, Controlled, Told, Tree, at_once
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import AlterPartitionRequest, BrokerState
from ottla.wire.tests.effort import examples

BROKERS = (1, 2, 3, 4)
ASSIGNMENTS = ((1, 2, 3), (2, 1), (3, 4), (4,))

brokers = st.sampled_from(BROKERS)
partitions = st.sampled_from([(TOPIC, index) for index in range(len(ASSIGNMENTS))])
targets = st.lists(brokers, min_size=1, max_size=3, unique=True)


class CheckedTree(Tree):
    """Looks at every state that is written over another."""

    def __init__(self) -> None:
        super().__init__()
        self.unclean = 0

    def _do(self, operation: Operation) -> None:
        if isinstance(operation, SetData) and operation.path.endswith("/state"):
            assert operation.version >= 0
            old = znodes.decode_state(self.nodes[operation.path][0])
            new = znodes.decode_state(operation.data)
            assert new.isr and len(set(new.isr)) == len(new.isr)
            assert new.leader == NO_LEADER or new.leader in new.isr
            assert new.controller_epoch >= old.controller_epoch
            if new.leader_epoch == old.leader_epoch:  # AlterPartition
                assert new.leader == old.leader != NO_LEADER
            elif new.leader_recovery_state > old.leader_recovery_state:
                self.unclean += 1
            else:
                assert new.leader_epoch == old.leader_epoch + 1
                assert set(new.isr) <= set(old.isr)
        super()._do(operation)


class Cluster(Controlled):
    tree: CheckedTree

    """Replicas hold what was committed: those in sync always all of it, others what there was when they were."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = CheckedTree()
        self.committed: dict[TopicPartition, int] = {}
        self.held: dict[tuple[TopicPartition, int], int] = {}

    def tell(self, batch: ControlBatch) -> None:
        for broker, stopped in batch.stop_replica.items():
            for partition, (_, delete) in stopped.items():
                if delete:
                    self.held.pop((partition, broker), None)
        super().tell(batch)


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.epoch = 1000
        self.leader_epochs: dict[TopicPartition, int] = {}

    @initialize()
    def create(self) -> None:
        self.cluster.up(*BROKERS)
        self.cluster.create(*ASSIGNMENTS)
        for index, replicas in enumerate(ASSIGNMENTS):
            self.cluster.committed[TOPIC, index] = 0
            self.cluster.held.update({((TOPIC, index), broker): 0 for broker in replicas})

    def states(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        yield from list(self.cluster.states.partitions())

    # --- brokers

    def _forget(self, *gone: int) -> None:
        for broker in gone:
            self.cluster.told[broker] = Told()

    @rule(gone=st.sets(brokers, min_size=1, max_size=3))
    def down(self, gone: set[int]) -> None:
        self._forget(*gone)
        self.cluster.down(*gone)

    @rule(broker=brokers)
    def up(self, broker: int) -> None:
        if broker not in self.cluster.states.brokers:
            self.epoch += 10
            self.cluster.up(broker, epoch=self.epoch)

    @rule(broker=brokers)
    def shut_down(self, broker: int) -> None:
        states = self.cluster.states
        if broker not in states.brokers:
            return
        led = {partition for partition, state in self.states() if state.leader != NO_LEADER}
        self.cluster.do(states.controlled_shutdown(broker, -1))
        for partition, state in self.states():
            assert state.leader != NO_LEADER or partition not in led
            if state.leader == broker and len(state.replicas) > 1:
                assert not states.online(partition, state.isr)

    @rule(broker=brokers, lost=st.sets(partitions, min_size=1))
    def lose_log_dir(self, broker: int, lost: set[TopicPartition]) -> None:
        states = self.cluster.states
        self.cluster.do(states.log_dir_failed(broker))
        answers = {partition: ErrorCode.KAFKA_STORAGE_ERROR for partition in lost}
        self.cluster.do(states.replicas_answered(broker, answers))

    # --- the controller

    @rule()
    def fail_over(self) -> None:
        self.cluster.do(self.cluster.fail_over())

    @rule(gone=brokers, writes=st.integers(1, 3))
    def fail_between_writing_and_telling(self, gone: int, writes: int) -> None:
        self._forget(gone)
        decision = at_once(self.cluster.states.brokers_down([gone]))
        for _ in zip(range(writes), self.cluster.steps(decision, limit=1), strict=False):
            pass
        self.fail_over()

    # --- leaders

    def _propose(self, partition: TopicPartition, isr: tuple[int, ...]) -> None:
        state = self.cluster.state(partition)
        known = self.cluster.told[state.leader].replicas[partition]
        data = AlterPartitionRequest.TopicData
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.cluster.states.brokers[state.leader].epoch,
            topics=[
                data(
                    topic_id=TOPIC.encode().rjust(16),
                    partitions=[
                        data.PartitionData(
                            partition_index=partition[1],
                            leader_epoch=known.leader_epoch,
                            new_isr_with_epochs=[BrokerState(broker_id=broker) for broker in isr],
                            partition_epoch=state.partition_epoch,
                        )
                    ],
                )
            ],
        )
        self.cluster.do(judge(self.cluster.states, request, 3))

    def _leads(self, partition: TopicPartition) -> bool:
        state = self.cluster.state(partition)
        return state.leader != NO_LEADER and state.leader in self.cluster.states.alive(partition, state.replicas)

    @rule(partition=partitions, broker=brokers)
    def join(self, partition: TopicPartition, broker: int) -> None:
        state = self.cluster.state(partition)
        follows = broker in self.cluster.told and partition in self.cluster.told[broker].replicas
        if not self._leads(partition) or broker in state.isr or broker not in state.replicas or not follows:
            return
        if broker not in self.cluster.states.alive(partition, [broker]):
            return
        self.cluster.held[partition, broker] = self.cluster.committed[partition]
        self._propose(partition, (*state.isr, broker))

    @rule(partition=partitions, broker=brokers)
    def shrink(self, partition: TopicPartition, broker: int) -> None:
        state = self.cluster.state(partition)
        if self._leads(partition) and broker != state.leader and broker in state.isr:
            self._propose(partition, tuple(each for each in state.isr if each != broker))

    @rule(partition=partitions)
    def produce(self, partition: TopicPartition) -> None:
        if self._leads(partition):
            self.cluster.committed[partition] += 1
            for broker in self.cluster.state(partition).isr:
                self.cluster.held[partition, broker] = self.cluster.committed[partition]

    @rule(partition=partitions)
    def elect_preferred(self, partition: TopicPartition) -> None:
        self.cluster.do(elect_leaders(self.cluster.states, [partition], ElectionType.PREFERRED))

    @rule(percentage=st.integers(0, 50))
    def balance(self, percentage: int) -> None:
        self.cluster.do(balance_leaders(self.cluster.states, percentage))

    # --- reassignment

    @rule(partition=partitions, wanted=targets)
    def reassign(self, partition: TopicPartition, wanted: list[int]) -> None:
        self.cluster.do(plan_reassignments(self.cluster.states, {partition: wanted}))

    @rule(partition=partitions)
    @precondition(lambda self: self.cluster.states.reassignments())
    def cancel(self, partition: TopicPartition) -> None:
        self.cluster.do(plan_reassignments(self.cluster.states, {partition: None}))

    # --- what holds

    @invariant()
    def nothing_is_lost(self) -> None:
        for partition, state in self.states():
            self.cluster.leadership(partition)
            assert self.cluster.tree.unclean == 0  # type: ignore[attr-defined]
            assert set(state.isr) <= set(state.replicas)
            assert state.leader == NO_LEADER or self._leads(partition)
            for broker in state.isr:
                assert self.cluster.held[partition, broker] == self.cluster.committed[partition]

    @invariant()
    def leader_epochs_only_grow(self) -> None:
        for partition, state in self.states():
            assert state.leader_epoch >= self.leader_epochs.get(partition, 0)
            self.leader_epochs[partition] = state.leader_epoch

    @invariant()
    def nobody_waits_who_could_be_led(self) -> None:
        for partition, state in self.states():
            if state.leader == NO_LEADER:
                assert not self.cluster.states.online(partition, state.isr)

    @invariant()
    def the_topic_node_says_the_same(self) -> None:
        if TOPIC not in self.cluster.states.topics:
            return
        assignment, version = self.cluster.tree.topic(TOPIC)
        assert version == self.cluster.states.topics[TOPIC].version
        for (_, index), state in self.states():
            assert assignment.partitions[index] == list(state.replicas)
            assert assignment.adding_replicas.get(index, []) == list(state.adding_replicas)
            assert assignment.removing_replicas.get(index, []) == list(state.removing_replicas)

    def teardown(self) -> None:
        """All return and catch up: everything is led, nothing is being moved, and all know what is so."""
        for broker in BROKERS:
            self.down({broker})
            self.up(broker)
        for _ in range(2):
            for partition, state in self.states():
                for broker in state.replicas:
                    if broker in self.cluster.state(partition).replicas:
                        self.join(partition, broker)
        assert self.cluster.states.reassignments() == {}
        for partition, state in self.states():
            assert self._leads(partition)
            assert set(state.isr) == set(state.replicas)
            holders = {broker for broker, told in self.cluster.told.items() if partition in told.replicas}
            assert holders == set(state.replicas)
            for told in self.cluster.told.values():
                assert told.metadata[partition] == state
                known = told.replicas.get(partition)
                assert known is None or (known.leader, known.leader_epoch) == (state.leader, state.leader_epoch)


ControllerMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=30, deadline=None)
TestController = ControllerMachine.TestCase


def test_the_check_sees_a_leader_that_was_not_in_sync() -> None:
    cluster = Cluster()
    cluster.unclean = True
    cluster.up(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.up(2)
    cluster.down(1)
    assert cluster.tree.unclean == 1  # type: ignore[attr-defined]
