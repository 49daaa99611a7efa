"""Reassignments of partitions (KIP-455): AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.replication.controller.elect_leaders import check_single_broker_reassignment
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, refusal_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.limits import PARTITIONS_TO_CHANGE_MAX
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.replication.cluster.metadata_cache import PartitionState
    from ottla.replication.controller.decisions import TopicPartition
    from ottla.replication.controller.topic_planner import TopicPlanner
    from ottla.wire.messages.partition_reassignments import ReassignablePartition


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext[Broker]
) -> AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments: begin, or cancel, reassignments of partitions to other replicas (KIP-455).

    Behaviour
    * The client needs the right to alter the cluster; otherwise the request and every partition get
      CLUSTER_AUTHORIZATION_FAILED.
    * If the request names no replicas for a partition, its reassignment is cancelled.
    * Each partition has one result; `replication/controller/reassignment.py` describes theory and errors. If a
      partition comes twice, its last entry counts.
    * The response is sent when the reassignment has begun. The data move afterwards; ListPartitionReassignments shows
      the reassignment until it is complete.
    * A request for more than 10,000 partitions gets POLICY_VIOLATION as a whole.
    * If this broker is not the controller, and cannot reach it in time, the whole request gets NOT_CONTROLLER.
    * A broker without a cluster answers like a single node of Apache Kafka: the only possible replica is this broker.
    """
    denied = refusal_on_cluster(context, AclOperation.ALTER, "AlterPartitionReassignments")
    if denied is not None:
        refusal = _denied_changes(request, denied)
        return await refusal if isinstance(refusal, Coroutine) else refusal
    if not context.broker.is_in_cluster:
        return await _reassign_alone(request, context.broker.planner)
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_TO_CHANGE_MAX:
        problem = f"A request reassigns at most {PARTITIONS_TO_CHANGE_MAX} partitions."
        return _refused(request, KafkaError(ErrorCode.POLICY_VIOLATION, problem))
    controller = context.broker.member.controller
    if controller is None:
        return _refused(request, KafkaError(ErrorCode.NOT_CONTROLLER))
    targets = {
        (topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        results = await controller.reassign(
            targets, allow_replication_factor_change=request.allow_replication_factor_change
        )
    except KafkaError as error:
        return _refused(request, error)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message="",
        responses=_by_topic(results),
    )


async def _reassign_alone(
    request: AlterPartitionReassignmentsRequest, planner: TopicPlanner
) -> AlterPartitionReassignmentsResponse:
    """Return the response of a broker without a cluster; it repeats topics that the request repeats."""
    is_late = request.timeout_ms <= 0 and bool(request.topics)

    def reassigned(topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
        code, message = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NONE, None
        try:
            if not is_late:
                check_single_broker_reassignment(planner, topic, asked.partition_index, asked.replicas)
        except KafkaError as error:
            code, message = error.code, error.message
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=code, error_message=message
        )

    responses = []
    time_slice = TimeSlice()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            partitions.append(reassigned(topic.name, asked))
            await time_slice.yield_if_over()
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        # Kafka repeats what was asked for only in an answer that its controller has made.
        allow_replication_factor_change=request.allow_replication_factor_change or is_late or not responses,
        error_code=ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NONE,
        error_message=None if responses else "",
        responses=responses,
    )


def _by_topic(results: Mapping[TopicPartition, KafkaError | None]) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(name=topic, partitions=[_result(index, results[topic, index]) for _, index in group])
        for topic, group in groupby(sorted(results), key=lambda partition: partition[0])
    ]


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
    message = error.message or error.code.message
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=message)


def _denied_changes(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Worked[AlterPartitionReassignmentsResponse]:
    def respond(partitions: list[list[ReassignablePartitionResponse]]) -> AlterPartitionReassignmentsResponse:
        named = zip(request.topics, partitions, strict=True)
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=error.message,
            responses=[ReassignableTopicResponse(name=topic.name, partitions=each) for topic, each in named],
        )

    return answer_partitions(
        request.topics, attrgetter("partitions"), lambda _, asked: _result(asked.partition_index, error), respond
    )


def _refused(request: AlterPartitionReassignmentsRequest, error: KafkaError) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message or error.code.message,
        responses=[],
    )


@handles(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext[Broker]
) -> ListPartitionReassignmentsResponse:
    """ListPartitionReassignments: list ongoing reassignments (KIP-455).

    Behaviour
    * The client needs the right to describe the cluster; otherwise the response lists the requested partitions without
      replicas, as in Kafka.
    * Null topics mean all ongoing reassignments. Requested partitions that are not being reassigned, or do not exist,
      are omitted.
    * If this broker is not the controller, and cannot reach it in time: NOT_CONTROLLER. A broker without a cluster has
      no reassignments.
    """
    denied = refusal_on_cluster(context, AclOperation.DESCRIBE, "ListPartitionReassignments")
    if denied is not None:
        refusal = _denied_list(request, denied)
        return await refusal if isinstance(refusal, Coroutine) else refusal
    if not context.broker.is_in_cluster:
        # Nothing can move where there is one broker.
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=[]
        )
    controller = context.broker.member.controller
    if controller is None:
        return _response(KafkaError(ErrorCode.NOT_CONTROLLER), [])
    try:
        ongoing = await controller.reassignments()
    except KafkaError as error:
        return _response(error, [])
    if request.topics is not None:
        ongoing = _asked_for(request.topics, ongoing)
    topics = [
        OngoingTopicReassignment(name=name, partitions=[_ongoing(index, ongoing[name, index]) for _, index in group])
        for name, group in groupby(sorted(ongoing), key=lambda partition: partition[0])
    ]
    return _response(None, topics)


def _denied_list(
    request: ListPartitionReassignmentsRequest, error: KafkaError
) -> Worked[ListPartitionReassignmentsResponse]:
    asked = request.topics or []

    def respond(partitions: list[list[OngoingPartitionReassignment]]) -> ListPartitionReassignmentsResponse:
        named = zip(asked, partitions, strict=True)
        return _response(error, [OngoingTopicReassignment(name=topic.name, partitions=each) for topic, each in named])

    return answer_partitions(asked, attrgetter("partition_indexes"), lambda _, index: _nothing_of(index), respond)


def _nothing_of(index: int) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[])


def _asked_for(
    topics: Iterable[ListPartitionReassignmentsTopics], ongoing: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, PartitionState]:
    """Return the ongoing reassignments that the request names, quickly even if it names very many partitions."""
    asked: dict[str, set[int]] = {name: set() for name, _ in ongoing}
    for topic in topics:
        if topic.name in asked:
            asked[topic.name].update(topic.partition_indexes)
    return {(name, index): state for (name, index), state in ongoing.items() if index in asked[name]}


def _ongoing(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )


def _response(error: KafkaError | None, topics: list[OngoingTopicReassignment]) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message="" if error is None else error.message or error.code.message,
        topics=topics,
    )
