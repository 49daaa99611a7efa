"""ListPartitionReassignments: which partitions are being moved, and to where (KIP-455).

Behaviour
* Only for those who may describe the cluster. To others everything that they ask for is named without replicas, as Kafka does.
* Null topics ask for all that are being reassigned. Of those that are asked for, what is not being reassigned, or does not
  exist, is left out.
* At a broker that is not the controller, and cannot reach it in time: NOT_CONTROLLER. A broker that is alone moves nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import refusal_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.replication.cluster.metadata_cache import PartitionState
    from ottla.replication.controller.decisions import TopicPartition


@handles(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext[Broker]
) -> ListPartitionReassignmentsResponse:
    denied = refusal_on_cluster(context, AclOperation.DESCRIBE, "ListPartitionReassignments")
    if denied is not None:
        refusal = _denied(request, denied)
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


def _denied(
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
    """Filter the ongoing reassignments, which are few, by the request, which may name very many partitions."""
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
