"""ListPartitionReassignments: which partitions are being moved, and to where (KIP-455).

Behaviour
* Null topics ask for all that are being reassigned. Of those that are asked for, what is not being reassigned, or does not
  exist, is left out.
* At a broker that is not the controller: NOT_CONTROLLER. A broker that is alone moves nothing.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasMember
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

    from ottla.replication.cluster.state import PartitionState
    from ottla.replication.control.control_batch import TopicPartition


@handles(ListPartitionReassignmentsRequest, answers_at_length=True, reads_only=True)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext[HasMember]
) -> ListPartitionReassignmentsResponse:
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


def _asked_for(
    topics: Iterable[ListPartitionReassignmentsTopics], ongoing: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, PartitionState]:
    """Goes through what is being reassigned, which is little, and not through all that a request may name."""
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
