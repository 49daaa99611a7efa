from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.replication.cluster.metadata_cache import NO_LEADER, PartitionState
from ottla.replication.controller.decisions import Decision
from ottla.replication.controller.leader_election import succeed
from ottla.replication.controller.reassignment import plan_reassignments, reassigned
from ottla.replication.tests.controlled import FIRST, TOPIC, Controlled
from ottla.wire.errors import ErrorCode, KafkaError

UNKNOWN = (TOPIC, 9)


def reassign(cluster: Controlled, target: Sequence[int] | None) -> Decision:
    return cluster.do(plan_reassignments(cluster.states, {FIRST: target}))


def join(cluster: Controlled, *brokers: int) -> None:
    """Others catch up, and the leader's proposal is accepted."""
    state = cluster.state()
    cluster.do(Decision(changes=(cluster.states.change(FIRST, joined(state, *brokers)),)))


def joined(state: PartitionState, *brokers: int) -> PartitionState:
    """By AlterPartition, which leaves the leader epoch."""
    return replace(state, isr=(*state.isr, *brokers), partition_epoch=state.partition_epoch + 1)


def replicas(cluster: Controlled) -> tuple[list[int], list[int], list[int]]:
    """Replicas, adding and removing, of the topic's node; the same is in memory."""
    assignment, version = cluster.tree.topic(TOPIC)
    node = (
        assignment.partitions[0],
        assignment.adding_replicas.get(0, []),
        assignment.removing_replicas.get(0, []),
    )
    state = cluster.state()
    assert node == (list(state.replicas), list(state.adding_replicas), list(state.removing_replicas))
    assert version == cluster.states.topics[TOPIC].version
    return node


def refusal(cluster: Controlled, target: Sequence[int] | None, partition: tuple[str, int] = FIRST, **more: bool) -> int:
    decision = plan_reassignments(cluster.states, {partition: target}, **more)
    assert decision.changes == ()
    answer = decision.answers[partition]
    assert isinstance(answer, KafkaError)
    return answer.code


def holders(cluster: Controlled) -> set[int]:
    return {broker for broker, told in cluster.told.items() if FIRST in told.replicas}


def test_all_replicas_are_replaced_step_by_step() -> None:
    cluster = Controlled(1, 2, 3, 4, 5, 6)
    cluster.create((1, 2, 3))
    reassign(cluster, (4, 5, 6))
    assert replicas(cluster) == ([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])
    assert cluster.leadership() == (1, 1, (1, 2, 3), 1)
    told = {broker: states[FIRST][1] for broker, states in cluster.last.leader_and_isr.items()}
    assert told == {1: False, 2: False, 3: False, 4: True, 5: True, 6: True}
    assert cluster.states.reassignments() == {FIRST: cluster.state()}
    join(cluster, 4)
    join(cluster, 5)
    assert cluster.leadership() == (1, 1, (1, 2, 3, 4, 5), 3)
    cluster.batches.clear()
    join(cluster, 6)
    assert cluster.leadership() == (4, 2, (4, 5, 6), 5)
    assert replicas(cluster) == ([4, 5, 6], [], [])
    assert holders(cluster) == {4, 5, 6}
    assert cluster.states.reassignments() == {}
    completion = cluster.batches[1]
    assert completion.leader_and_isr.keys() == {4, 5, 6}
    assert completion.stop_replica == {broker: {FIRST: (2, True)} for broker in (1, 2, 3)}


def test_a_smaller_set_is_there_at_once_and_the_leader_stays() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2, 3))
    reassign(cluster, (3, 1))
    assert cluster.leadership() == (1, 2, (1, 3), 2)
    assert replicas(cluster) == ([3, 1], [], [])
    assert holders(cluster) == {1, 3}


def test_only_the_order_changes() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    reassign(cluster, (2, 1))
    assert cluster.leadership() == (1, 1, (1, 2), 1)
    assert replicas(cluster) == ([2, 1], [], [])


def test_cancelling_restores_the_replicas() -> None:
    cluster = Controlled(1, 2, 3, 4)
    cluster.create((1, 2))
    reassign(cluster, (3, 4))
    join(cluster, 3)
    reassign(cluster, None)
    assert cluster.leadership() == (1, 2, (1, 2), 3)
    assert replicas(cluster) == ([1, 2], [], [])
    assert holders(cluster) == {1, 2}
    assert cluster.last.stop_replica == {broker: {FIRST: (2, True)} for broker in (3, 4)}
    too_long = plan_reassignments(cluster.states, {FIRST: range(100_000)}).answers[FIRST]
    assert isinstance(too_long, KafkaError)
    assert too_long.message == "A replica list of 100000 brokers is longer than 1000."
    assert refusal(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancelling_takes_leadership_from_who_has_to_leave() -> None:
    cluster = Controlled(1, 2, 3, 4)
    cluster.create((1, 2))
    reassign(cluster, (3, 4))
    join(cluster, 3)
    cluster.down(1)
    assert cluster.leadership()[0] == 3
    reassign(cluster, None)
    assert cluster.leadership()[::2] == (2, (2,))
    assert replicas(cluster) == ([1, 2], [], [])


def test_cancelling_is_refused_where_only_who_leaves_is_in_sync() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,))
    reassign(cluster, (2,))
    cluster.down(1)
    cluster.up(1)
    assert cluster.leadership() == (1, 3, (1,), 3)
    cluster = Controlled(1, 2, 3)
    cluster.create((1,))
    reassign(cluster, (2, 3))
    join(cluster, 2)
    cluster.down(1)
    assert cluster.leadership()[::2] == (2, (2,))
    assert refusal(cluster, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.up(1)
    cluster.unclean = True
    reassign(cluster, None)
    assert cluster.leadership()[::2] == (1, (1,))
    assert cluster.state().leader_recovery_state == 1


def test_cancelling_while_those_who_stay_are_down_waits_for_them() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1,))
    reassign(cluster, (2, 3))
    join(cluster, 2)
    state = cluster.state()
    moved = cluster.states.change(FIRST, succeed(state, 2, (2, 1)))
    cluster.do(Decision(changes=(moved,)))
    del cluster.states.brokers[1]
    reassign(cluster, None)
    assert cluster.leadership()[::2] == (NO_LEADER, (1,))
    cluster.up(1)
    assert cluster.leadership()[::2] == (1, (1,))


def test_a_reassignment_replaces_another() -> None:
    cluster = Controlled(1, 2, 3, 4)
    cluster.create((1, 2))
    reassign(cluster, (1, 3))
    assert replicas(cluster) == ([1, 3, 2], [3], [2])
    reassign(cluster, (4, 2))
    assert replicas(cluster) == ([4, 2, 1], [4], [1])
    assert holders(cluster) == {1, 2, 4}
    join(cluster, 4)
    assert cluster.leadership()[::2] == (4, (2, 4))
    assert replicas(cluster) == ([4, 2], [], [])


def test_it_waits_until_a_new_replica_is_online() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,))
    reassign(cluster, (2,))
    cluster.states.shutting_down.add(2)
    join(cluster, 2)
    assert cluster.leadership()[::2] == (1, (1, 2))
    cluster.down(2)
    cluster.up(2)
    assert replicas(cluster) == ([2, 1], [2], [1])
    assert cluster.last.leader_and_isr[2][FIRST][1] is True
    join(cluster, 2)
    assert cluster.leadership()[::2] == (2, (2,))


@pytest.mark.parametrize("writes", [1, 2])
def test_a_new_controller_goes_on_with_it(writes: int) -> None:
    """The old one fails after its first or second write, before it tells anybody."""
    cluster = Controlled(1, 2)
    cluster.create((1,))
    reassign(cluster, (2,))
    cluster.do(cluster.fail_over())
    assert cluster.leadership() == (1, 2, (1,), 2)  # the leader is told again, in case it was not
    assert cluster.last.leader_and_isr[2][FIRST][1] is True
    steps = cluster.steps(Decision(changes=(cluster.states.change(FIRST, joined(cluster.state(), 2)),)))
    for _ in range(writes):
        next(steps)
    cluster.do(cluster.fail_over())
    assert cluster.leadership()[::2] == (2, (2,))
    assert replicas(cluster) == ([2], [], [])
    assert holders(cluster) == {2}


def test_a_partition_that_never_had_a_leader_is_only_assigned() -> None:
    cluster = Controlled(1)
    cluster.create((2,))
    reassign(cluster, (1,))
    assert replicas(cluster) == ([1, 2], [1], [2])
    cluster.do(cluster.states.elect_offline())
    assert cluster.leadership() == (1, 1, (1,), 1)
    assert replicas(cluster) == ([1], [], [])


def test_partitions_of_one_topic_are_written_with_one_node() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,), (1,), (1,))
    decision = plan_reassignments(cluster.states, {(TOPIC, 0): (2,), (TOPIC, 2): (2,), UNKNOWN: (2,)})
    assert len(decision.changes) == 3
    assert len(decision.answers) == 3
    cluster.do(decision, limit=1)
    assignment, version = cluster.tree.topic(TOPIC)
    assert (assignment.partitions, version) == ({0: [2, 1], 1: [1], 2: [2, 1]}, 1)
    assert cluster.states.reassignments().keys() == {(TOPIC, 0), (TOPIC, 2)}


def test_deletion_ends_a_reassignment() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,))
    reassign(cluster, (2,))
    cluster.delete()
    assert cluster.tree.topic_names() == []
    assert holders(cluster) == set()


def test_what_is_refused() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,))
    for target in ((), (1, 1), (1, -2), (3,)):
        assert refusal(cluster, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refusal(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert refusal(cluster, None, UNKNOWN) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert refusal(cluster, (1,), UNKNOWN) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    changed = refusal(cluster, (1, 2), allow_replication_factor_change=False)
    assert changed == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.states.shutting_down.add(2)
    assert refusal(cluster, (2,)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.states.delete_topics([TOPIC])
    assert refusal(cluster, (1,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_targets_come_first_and_in_their_order() -> None:
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    moving = reassigned(state, (3, 4, 2))
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 4, 2, 1), (4,), (1,))
    back = reassigned(moving, moving.origin_replicas)
    assert (back.replicas, back.adding_replicas, back.removing_replicas) == ((3, 2, 1), (), ())
