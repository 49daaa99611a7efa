"""DescribeProducers: the producers that a partition remembers, with their sequences and open transactions (KIP-664).

Behaviour
* A name that no topic can have is INVALID_TOPIC_EXCEPTION, a topic that the client may not read TOPIC_AUTHORIZATION_FAILED,
  whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from ottla.replication.cluster.metadata_cache import topic_name_problem
from ottla.replication.log.producers import ProducerEntry
from ottla.server.broker import Broker
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ottla.wire.time_slice import TimeSlice

PARTITIONS_AT_ONCE = 10
PRODUCERS_AT_ONCE = 1000
PRODUCERS_PER_TURN = 200


@handles(DescribeProducersRequest)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext[Broker]
) -> Answer[DescribeProducersResponse]:
    """Describe producers. A partition that a long request names again is described once."""
    names = (topic.name for topic in request.topics if topic_name_problem(topic.name) is None)
    return decided(
        context,
        AclOperation.READ,
        ResourceType.TOPIC,
        names,
        lambda denied: _describe_allowed(request, context, denied),
    )


def _describe_allowed(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[DescribeProducersResponse]:
    if _partition_count(request) > PARTITIONS_AT_ONCE:
        return _describe_each_once(request, context, denied)
    if _producer_count(request, context) > PRODUCERS_AT_ONCE:
        return _describe_at_length(request, context, denied)
    answers = [
        [_describe(topic.name, index, context, denied) for index in topic.partition_indexes] for topic in request.topics
    ]
    return _respond(request, answers)


def _partition_count(request: DescribeProducersRequest) -> int:
    return sum([len(topic.partition_indexes) for topic in request.topics])


def _respond(request: DescribeProducersRequest, answers: list[list[PartitionResponse]]) -> DescribeProducersResponse:
    topics = zip(request.topics, answers, strict=True)
    return DescribeProducersResponse(topics=[TopicResponse(name=topic.name, partitions=each) for topic, each in topics])


def _producer_count(request: DescribeProducersRequest, context: RequestContext[Broker]) -> int:
    count = 0
    for topic in request.topics:
        for index in topic.partition_indexes:
            with suppress(KafkaError):
                count += len(context.broker.partition(topic.name, index).log.producers)
    return count


async def _describe_at_length(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> DescribeProducersResponse:
    """Describe many partitions or producers, and serve other requests in between."""
    time_slice = TimeSlice()
    answers: list[list[PartitionResponse]] = []
    for topic in request.topics:
        answers.append([])
        for index in topic.partition_indexes:
            answer, entries = _begin(topic.name, index, context, denied)
            answers[-1].append(answer)
            for start in range(0, len(entries), PRODUCERS_PER_TURN):
                answer.active_producers += map(_state, entries[start : start + PRODUCERS_PER_TURN])
                await time_slice.yield_if_over()
            await time_slice.yield_if_over()
    return _respond(request, answers)


async def _describe_each_once(
    request: DescribeProducersRequest, context: RequestContext[Broker], denied: Collection[str]
) -> DescribeProducersResponse:
    named: dict[str, dict[int, None]] = {}
    time_slice = TimeSlice()
    for topic in request.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        await time_slice.yield_if_over()
    request.topics = await each_in_slices(
        named.items(), lambda each: TopicRequest(name=each[0], partition_indexes=list(each[1]))
    )
    return await _describe_at_length(request, context, denied)


def _describe(topic: str, index: int, context: RequestContext[Broker], denied: Collection[str]) -> PartitionResponse:
    answer, entries = _begin(topic, index, context, denied)
    answer.active_producers += map(_state, entries)
    return answer


def _begin(
    topic: str, index: int, context: RequestContext[Broker], denied: Collection[str]
) -> tuple[PartitionResponse, list[ProducerEntry]]:
    """Begin an answer; returns it, and the producers that it still lacks."""
    answer = PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    try:
        if topic in denied:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise KafkaError(code, code.message)
        if context.broker.cluster.topic(topic) is None:
            raise _missing(topic)
        return answer, list(context.broker.partition(topic, index).log.producers.values())
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer, []


def _missing(topic: str) -> KafkaError:
    problem = topic_name_problem(topic)
    if problem is not None:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
