"""Requested elections: ElectLeaders (KIP-183, KIP-460), and the balance of preferred leaders.

| ElectLeaders           | preferred                           | unclean                                     |
|------------------------|-------------------------------------|---------------------------------------------|
| not needed when        | the first replica leads             | the leader lives                            |
| leader afterwards      | the first replica, if online, in sync| as when it was lost, and else anybody online|
| impossible             | PREFERRED_LEADER_NOT_AVAILABLE (80) | ELIGIBLE_LEADERS_NOT_AVAILABLE (83)         |

With a single broker no other broker could become leader, so no leadership can move: `single_broker_election` and
`check_single_broker_reassignment` answer as Apache Kafka's single node does (its class ReplicationControlManager).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum

from ottla.replication.cluster.metadata_cache import NO_LEADER, NO_PARTITION_EPOCH, MetadataCache, PartitionState
from ottla.replication.controller.decisions import Answer, Decision, StateChange, TopicPartition
from ottla.replication.controller.leader_election import offline_election, preferred_election
from ottla.replication.controller.partition_states import PartitionStates
from ottla.replication.controller.topic_planner import TopicPlanner
from ottla.wire.errors import ErrorCode, KafkaError, bare


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    states: PartitionStates, partitions: Iterable[TopicPartition], election_type: ElectionType
) -> Decision:
    """Elect a leader for each given partition; the decision's `answers` hold a new state or an error for each."""
    answers: dict[TopicPartition, Answer] = {}
    changes: dict[TopicPartition, StateChange] = {}
    for partition in partitions:
        try:
            changes[partition] = change = _elect(states, partition, election_type)
            answers[partition] = change.state
        except KafkaError as error:
            answers[partition] = bare(error)
    return Decision(changes=tuple(changes.values()), answers=answers)


def balance_leaders(states: PartitionStates, imbalance_percentage: int) -> Decision:
    """Plan preferred elections for brokers that lead too few partitions (leader.imbalance.per.broker.percentage)."""
    by_preferred: dict[int, list[tuple[TopicPartition, PartitionState]]] = {}
    for partition, state in states.partitions():
        # The first replica is the preferred leader, in Kafka as well.
        by_preferred.setdefault(state.replicas[0], []).append((partition, state))
    candidates: list[TopicPartition] = []
    for broker, own in by_preferred.items():
        elsewhere = [
            (partition, state)
            for partition, state in own
            if state.partition_epoch != NO_PARTITION_EPOCH and state.leader != broker
        ]
        if len(elsewhere) * 100 > imbalance_percentage * len(own):
            # A broker that is away or not in sync cannot take over, so an election would fail at every look.
            candidates += [partition for partition, state in elsewhere if _preferred(states, partition, state)]
    return elect_leaders(states, candidates, ElectionType.PREFERRED)


def _elect(states: PartitionStates, partition: TopicPartition, election_type: ElectionType) -> StateChange:
    state = states.partition(partition)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if partition[0] in states.deletions:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    if election_type == ElectionType.PREFERRED:
        is_needed = state.leader != state.replicas[0]
        following = _preferred(states, partition, state)
        # The error's text names Kafka's strategies, as its controller does.
        strategy, code = "PreferredReplicaPartitionLeaderElectionStrategy", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        online = states.online(partition, state.replicas)
        is_needed = state.leader not in states.brokers or state.leader in states.shutting_down
        following = offline_election(state, online, unclean=True)
        strategy, code = "OfflinePartitionLeaderElectionStrategy(true)", ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if not is_needed:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    if following is None or state.partition_epoch == NO_PARTITION_EPOCH:
        name = f"{partition[0]}-{partition[1]}"
        raise KafkaError(code, f"Failed to elect leader for partition {name} under strategy {strategy}")
    # A broker that is shutting down is notified too: it may have led until now.
    return states.change(partition, following, states.alive(partition, state.replicas))


def _preferred(states: PartitionStates, partition: TopicPartition, state: PartitionState) -> PartitionState | None:
    return preferred_election(state, states.online(partition, state.replicas[:1]))


def single_broker_election(cluster: MetadataCache, topic: str, index: int, election_type: ElectionType) -> KafkaError:
    """Return the error of an election in a cluster of one broker, where an election is unneeded or impossible."""
    known = cluster.topics.get(topic)
    if known is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not 0 <= index < len(known.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if known.partitions[index].leader != NO_LEADER:
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif election_type is ElectionType.PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return KafkaError(code, code.message)


def check_single_broker_reassignment(
    planner: TopicPlanner, topic: str, index: int, replicas: Sequence[int] | None
) -> None:
    """Check a reassignment in a cluster of one broker; `replicas` None cancels a reassignment. Raises KafkaError."""
    known = planner.cluster.topics.get(topic)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not 0 <= index < len(known.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    planner.check_assignment(replicas)
