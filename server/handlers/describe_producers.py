"""DescribeProducers: the producers that a partition remembers, with their sequences and open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Coroutine
from operator import attrgetter
from typing import Any

from ottla.replication.cluster_state import topic_name_problem
from ottla.replication.log.producers import ProducerEntry
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.server.turns import answer_partitions
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

PARTITIONS_AT_ONCE = 10  # each may remember very many producers


@handles(DescribeProducersRequest, answers_at_length=True)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    """A partition that a long request names again is described once."""
    if sum([len(topic.partition_indexes) for topic in request.topics]) > PARTITIONS_AT_ONCE:
        request.topics = _each_once(request.topics)

    def respond(answers: list[list[PartitionResponse]]) -> DescribeProducersResponse:
        topics = zip(request.topics, answers, strict=True)
        return DescribeProducersResponse(
            topics=[TopicResponse(name=topic.name, partitions=each) for topic, each in topics]
        )

    return answer_partitions(
        request.topics,
        attrgetter("partition_indexes"),
        lambda topic, index: _describe(topic.name, index, context),
        respond,
        at_once=PARTITIONS_AT_ONCE,
    )


def _each_once(topics: list[TopicRequest]) -> list[TopicRequest]:
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [TopicRequest(name=name, partition_indexes=list(indexes)) for name, indexes in named.items()]


def _describe(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    try:
        if context.broker.cluster.topic(topic) is None:
            raise _missing(topic)
        partition = context.broker.partition(topic, index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
        )
    producers = [_state(entry) for entry in partition.log.producers.values()]
    return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=producers)


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
