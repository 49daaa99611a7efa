"""Reassignment of partitions to other replicas: AlterPartitionReassignments and ListPartitionReassignments (KIP-455).

Theory, with the replicas 1, 2, 3 to be replaced by 4, 5, 6 (Kafka's KafkaController.onPartitionReassignment)

| step               | replicas    | adding | removing | leader | ISR         | written, and told                         |
|--------------------|-------------|--------|----------|--------|-------------|-------------------------------------------|
| before             | 1 2 3       |        |          | 1      | 1 2 3       |                                           |
| start              | 4 5 6 1 2 3 | 4 5 6  | 1 2 3    | 1      | 1 2 3       | topic and state; LeaderAndIsr to all six  |
| AlterPartition     | 4 5 6 1 2 3 | 4 5 6  | 1 2 3    | 1      | 1 2 3 4 5 6 | state, as the new ones catch up           |
| complete (pending) | 4 5 6       |        |          | 4      | 4 5 6       | state; LeaderAndIsr, StopReplica to 1 2 3 |
| settled (pending)  | 4 5 6       |        |          | 4      | 4 5 6       | topic                                     |

    The topic's node comes last. It alone names the brokers that have a replica to delete. If a controller fails in
    between, the next one completes once more. A reassignment is complete when all new replicas are in sync and one of
    them is online.

    A reassignment replaces the one that is going on; to cancel is to reassign to the replicas there were before (their
    order is lost if the two overlap). Replicas that were being added and are not wanted any more leave at once. That would lose
    committed records if no other replica is in sync, so it is refused then, as Kafka 4 does, unless the topic allows
    unclean elections.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.replication.cluster.metadata_cache import NO_LEADER, NO_PARTITION_EPOCH, PartitionState
from ottla.replication.controller.decisions import Answer, Change, Decision, StateChange, TopicPartition
from ottla.replication.controller.leader_election import offline_election, succeed
from ottla.replication.controller.partition_states import PartitionStates
from ottla.wire.errors import ErrorCode, KafkaError, bare

Targets = Mapping[TopicPartition, Sequence[int] | None]

REPLICAS_MAX = 1000


def plan_reassignments(
    states: PartitionStates, targets: Targets, *, allow_replication_factor_change: bool = True
) -> Decision:
    """Start, replace or (target None) cancel reassignments; the decision's `answers` hold new states or errors."""
    answers: dict[TopicPartition, Answer] = {}
    planned: dict[str, list[StateChange]] = {}
    assigned: dict[str, dict[int, PartitionState]] = {}
    for partition, target in targets.items():
        try:
            state = _state(states, partition, target, allow_replication_factor_change)
            assignment = reassigned(state, state.origin_replicas if target is None else target)
            change = _begun(states, partition, state, assignment)
        except KafkaError as error:
            # The answers are kept until all are written; the frames of an error would keep the request alive with
            # them.
            answers[partition] = bare(error)
            continue
        answers[partition] = assignment if change is None else change.state
        # The topic's node changes the replicas only. The leader and the epochs change with the state that is written
        # next.
        assigned.setdefault(partition[0], {})[partition[1]] = replace(
            state,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding_replicas,
            removing_replicas=assignment.removing_replicas,
        )
        planned.setdefault(partition[0], []).extend([] if change is None else [change])
    changes: list[Change] = []
    for topic, replicas in assigned.items():
        # The topic's node goes first, once for all its partitions. A controller that takes over in between finds there
        # what was begun, and goes on (`PartitionStates.start`).
        changes += [states.topic_change(topic, replicas), *planned[topic]]
    return Decision(changes=tuple(changes), answers=answers)


def reassigned(state: PartitionState, target: Iterable[int]) -> PartitionState:
    """Return the state during a reassignment to `target`: the target replicas in order, then the other replicas."""
    # What a reassignment that is going on was adding does not count as held before: this one replaces it.
    wanted, origin = tuple(target), state.origin_replicas
    replicas = tuple(dict.fromkeys((*wanted, *origin)))
    adding = tuple(broker for broker in replicas if broker not in origin)
    removing = tuple(broker for broker in replicas if broker not in wanted)
    return replace(state, replicas=replicas, adding_replicas=adding, removing_replicas=removing)


def _state(
    states: PartitionStates, partition: TopicPartition, target: Sequence[int] | None, allow_change: bool
) -> PartitionState:
    state = states.partition(partition)
    if target is not None:
        _check_target(states, state, target)
    if target is None and (state is None or not state.is_being_reassigned):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if state is None or partition[0] in states.deletions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    size = len(state.target_replicas)
    if target is not None and not allow_change and len(target) != size:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {size} to {len(target)}"
        )
    return state


def _check_target(states: PartitionStates, state: PartitionState | None, target: Sequence[int]) -> None:
    """Check a reassignment's target replicas as Kafka 3.9 does; also refuse lists too long to check and quote."""
    if len(target) > REPLICAS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"A replica list of {len(target)} brokers is longer than {REPLICAS_MAX}.",
        )
    # Replicas that hold the partition may be down. Only those that are to join have to live.
    origin = () if state is None else state.origin_replicas
    live = sorted(states.brokers.keys() - states.shutting_down)
    adding = [broker for broker in target if broker not in origin]
    if not target:
        problem = "Empty replica list specified in partition reassignment."
    elif len(set(target)) < len(target):
        problem = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    elif min(target) < 0:
        problem = f"Invalid broker id in replica list: {list(target)}"
    elif not set(adding) <= set(live):
        problem = f"Replica assignment has brokers that are not alive. Replica list: {adding}, live broker list: {live}"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _begun(
    states: PartitionStates, partition: TopicPartition, before: PartitionState, assignment: PartitionState
) -> StateChange | None:
    """Return the change that begins a reassignment by telling the leader the new replicas.

    Returns None if the partition never had a leader.
    """
    if before.partition_epoch == NO_PARTITION_EPOCH:
        return None
    # Added by the reassignment that is replaced, and not wanted any more.
    unneeded = tuple(broker for broker in before.replicas if broker not in assignment.replicas)
    state = _without(states, partition, assignment, unneeded)
    return states.change(partition, state, state.replicas, deleted=unneeded)


def _without(
    states: PartitionStates, partition: TopicPartition, state: PartitionState, unneeded: tuple[int, ...]
) -> PartitionState:
    in_sync = tuple(broker for broker in state.isr if broker not in unneeded)
    # The leader stays.
    if state.leader not in unneeded and in_sync:
        return succeed(state, state.leader, in_sync)
    # The leader has to go, or no remaining replica is in sync. An unclean election only where the topic allows it.
    online = states.online(partition, state.replicas)
    unclean = not in_sync and states.is_unclean(partition[0])
    elected = offline_election(replace(state, isr=in_sync), online, unclean=unclean)
    if elected is not None:
        return elected
    if not in_sync:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {partition[0]}:{partition[1]} because it would require an "
            "unclean leader election.",
        )
    # Those who are in sync are down: the partition waits for them.
    return succeed(state, NO_LEADER, in_sync)
