"""ListOffsets: the offset that belongs to a timestamp.

Behaviour
* -1 answers the end that a plain reader sees: the high watermark, or the last stable offset with READ_COMMITTED, or the
  log end for other replica ids than a consumer's. -2 and -4 answer the log start; without tiered storage they are equal.
  -3 answers the first record with the largest timestamp, -5 and -6 nothing, as there is no tier.
* Only the leader answers, but for replica id -2, which Kafka keeps for looking into replicas.
* A timestamp >= 0 answers the first record that is not older, with that record's own timestamp; none at or beyond the
  end a reader sees is offset -1 without an error.
* A special timestamp that the version does not know is UNSUPPORTED_VERSION; a partition named twice is INVALID_REQUEST,
  told once; a topic of which no partition is asked for is left out. An isolation level that does not exist is
  UNKNOWN_SERVER_ERROR everywhere, as Kafka fails over it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from operator import attrgetter
from typing import Any, NamedTuple

from ottla.replication.log.segment import TimestampedOffset
from ottla.replication.timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.server.turns import answer_partitions
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
OFFSET_NOT_AVAILABLE_SINCE = 5
NEVER = 1 << 15
_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class PartitionAsked(NamedTuple):
    """What is asked of a partition, and whether it is asked more than once."""

    wish: ListOffsetsPartition
    is_repeated: bool


class TopicAsked(NamedTuple):
    """A topic with all partitions that the request names anywhere."""

    name: str
    partitions: list[PartitionAsked]


@handles(ListOffsetsRequest)
def list_offsets(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _not_understood(request)
    topics = _once_each(request.topics)

    def answer(topic: TopicAsked, asked: PartitionAsked) -> ListOffsetsPartitionResponse:
        try:
            if asked.is_repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            found = _look_up(request, topic.name, asked.wish, context)
        except KafkaError as error:
            return _refused(asked.wish, error.code, context.api_version)
        return _answer(asked.wish, found)

    def respond(answers: list[list[ListOffsetsPartitionResponse]]) -> ListOffsetsResponse:
        answered = zip(topics, answers, strict=True)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=each) for topic, each in answered]
        )

    return answer_partitions(topics, attrgetter("partitions"), answer, respond)


def _once_each(topics: list[ListOffsetsTopic]) -> list[TopicAsked]:
    """Every topic and partition once, in the order of their first mention."""
    wishes: dict[str, dict[int, PartitionAsked]] = {}
    for topic in topics:
        for each in topic.partitions:
            of_topic = wishes.setdefault(topic.name, {})
            is_repeated = each.partition_index in of_topic
            of_topic[each.partition_index] = PartitionAsked(each, is_repeated)
    return [TopicAsked(name, list(partitions.values())) for name, partitions in wishes.items()]


def _not_understood(request: ListOffsetsRequest) -> ListOffsetsResponse:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _look_up(
    request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, context: RequestContext
) -> TimestampedOffset:
    if asked.timestamp < 0 and context.api_version < _SINCE.get(asked.timestamp, NEVER):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return context.broker.partition(topic, asked.partition_index).list_offset(
        asked.timestamp,
        read_committed=request.isolation_level == READ_COMMITTED,
        current_leader_epoch=asked.current_leader_epoch,
        for_replica=request.replica_id != CONSUMER_REPLICA_ID,
        only_from_leader=request.replica_id != DEBUGGING_REPLICA_ID,
    )


def _answer(asked: ListOffsetsPartition, found: TimestampedOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _refused(asked: ListOffsetsPartition, code: ErrorCode, api_version: int) -> ListOffsetsPartitionResponse:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and api_version < OFFSET_NOT_AVAILABLE_SINCE:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
