"""AlterPartition: a leader proposes other in-sync replicas, and the controller decides (KIP-497, KIP-841, KIP-903).

In this order, for the whole request and then for each partition:

| the request                                             | answer                                                    |
|---------------------------------------------------------|-----------------------------------------------------------|
| is not for the active controller                        | NOT_CONTROLLER (41), by the shell                         |
| comes from a broker that is not live, or was before     | STALE_BROKER_EPOCH (77)                                   |
| unknown topic id / unknown partition, or being deleted  | UNKNOWN_TOPIC_ID (100) / UNKNOWN_TOPIC_OR_PARTITION (3)   |
| knows a newer leader or partition epoch than we         | NOT_CONTROLLER (41): there must be another controller     |
| knows an older leader epoch                             | FENCED_LEADER_EPOCH (74)                                  |
| proposes what is already so                             | the present state, also for an older partition epoch      |
| knows an older partition epoch                          | INVALID_UPDATE_VERSION (95)                               |
| is recovering with others in sync, or recovering again  | INVALID_REQUEST (42)                                      |
| is not of the leader, leaves it out, or names others    | INVALID_REQUEST (42), as Kafka 4 does                     |
| names somebody not live, shutting down, or as it was    | INELIGIBLE_REPLICA (107)                                  |
| otherwise                                               | the new state, once it is written; else INVALID_UPDATE_VERSION |

The leader epoch stays. The controller sends the new state to all brokers by UpdateMetadata. It may complete a reassignment
(`pending`).
"""

from collections.abc import Container
from dataclasses import replace

from ottla.replication.cluster.metadata_cache import (
    NO_BROKER_EPOCH,
    NO_PARTITION_EPOCH,
    RECOVERED,
    RECOVERING,
    PartitionState,
)
from ottla.replication.controller.decisions import Answer, Decision, StateChange, TopicPartition
from ottla.replication.controller.partition_states import PartitionStates
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.controller_requests import AlterPartitionRequest, AlterPartitionResponse

PartitionRequest = AlterPartitionRequest.TopicData.PartitionData
TopicResponse = AlterPartitionResponse.TopicData
PartitionResponse = AlterPartitionResponse.TopicData.PartitionData


def judge(states: PartitionStates, request: AlterPartitionRequest, version: int) -> Decision:
    """Decide on the ISR changes of an AlterPartition request. Raises KafkaError if the whole request is invalid."""
    sender = states.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    answers: dict[TopicPartition, Answer] = {}
    changes: dict[TopicPartition, StateChange] = {}
    for topic in request.topics:
        name = states.topic_names.get(topic.topic_id)
        if name is None:  # answered by `respond`
            continue
        for requested in topic.partitions:
            partition = (name, requested.partition_index)
            # If a request names a partition twice, the last word counts.
            changes.pop(partition, None)
            try:
                state = _known(states, partition)
                following = _judge(states, state, request.broker_id, requested, version)
            except KafkaError as error:
                # The answers are kept until all are written; the frames of an error would keep the request alive with
                # them.
                answers[partition] = bare(error)
                continue
            answers[partition] = state if following is None else following
            if following is not None:
                changes[partition] = states.change(partition, following)
    return Decision(changes=tuple(changes.values()), answers=answers)


def respond(
    states: PartitionStates,
    request: AlterPartitionRequest,
    decision: Decision,
    failed: Container[TopicPartition] = (),
) -> AlterPartitionResponse:
    """Build the response after the decision was written; `failed` are the partitions whose change was not written."""
    response = AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[])
    for topic in request.topics:
        if not topic.partitions:
            continue
        name = states.topic_names.get(topic.topic_id)
        answered = []
        for requested in topic.partitions:
            if name is None:
                answered.append(_refused(requested.partition_index, ErrorCode.UNKNOWN_TOPIC_ID))
            elif (name, requested.partition_index) in failed:
                answered.append(_refused(requested.partition_index, ErrorCode.INVALID_UPDATE_VERSION))
            else:
                answered.append(_answered(requested.partition_index, decision.answers[name, requested.partition_index]))
        response.topics.append(TopicResponse(topic_id=topic.topic_id, partitions=answered))
    return response


def _known(states: PartitionStates, partition: TopicPartition) -> PartitionState:
    state = states.partition(partition)
    if state is None or state.partition_epoch == NO_PARTITION_EPOCH or partition[0] in states.deletions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return state


def _judge(
    states: PartitionStates, state: PartitionState, sender: int, requested: PartitionRequest, version: int
) -> PartitionState | None:
    """Return the next state of a partition; None if the request changes nothing. Raises KafkaError if it is refused."""
    proposed = requested.new_isr if version < 3 else [each.broker_id for each in requested.new_isr_with_epochs]
    isr, recovery = tuple(proposed), requested.leader_recovery_state
    # Who decides here? A leader that knows more has heard of it from another controller.
    if requested.partition_epoch > state.partition_epoch or requested.leader_epoch > state.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if requested.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    # Before the partition epochs are compared: a leader that missed the answer asks again with its old epoch. It has
    # to hear that its proposal was carried out.
    if (sender, isr, recovery) == (state.leader, state.isr, state.leader_recovery_state):
        return None
    if requested.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    # May the sender propose that?
    if recovery == RECOVERING and (len(isr) > 1 or state.leader_recovery_state == RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if sender != state.leader or sender not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(state.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    # May the named replicas be in sync?
    if not all(_is_eligible(states, broker) for broker in isr) or not _are_current(states, requested):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
    return replace(state, isr=isr, leader_recovery_state=recovery, partition_epoch=state.partition_epoch + 1)


def _is_eligible(states: PartitionStates, broker: int) -> bool:
    # A broker that is shutting down would have to leave the ISR again a moment later.
    return broker in states.brokers and broker not in states.shutting_down


def _are_current(states: PartitionStates, requested: PartitionRequest) -> bool:
    """Tell whether the request's broker epochs are current or absent (-1, as from Kafka 3.9's ZooKeeper leaders)."""
    return all(
        each.broker_epoch in (NO_BROKER_EPOCH, states.brokers[each.broker_id].epoch)
        for each in requested.new_isr_with_epochs
    )


def _answered(index: int, answer: Answer) -> PartitionResponse:
    if isinstance(answer, KafkaError):
        return _refused(index, answer.code)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=answer.leader,
        leader_epoch=answer.leader_epoch,
        isr=list(answer.isr),
        leader_recovery_state=answer.leader_recovery_state,
        partition_epoch=answer.partition_epoch,
    )


def _refused(index: int, code: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )
