"""OffsetForLeaderEpoch: where the records of a leader epoch end, so that a reader can tell whether its log diverged.

Behaviour
* Answers the largest epoch that is not above the asked one, with its end offset; the latest epoch ends at the log end.
  An epoch older than everything known is answered with -1 and -1.
* `current_leader_epoch` fences: FENCED_LEADER_EPOCH if the asker is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
* Brokers, which may do a ClusterAction, may ask about every topic. To others topics that they may not describe are
  TOPIC_AUTHORIZATION_FAILED, behind the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, may_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext[Broker]
) -> Answer[OffsetForLeaderEpochResponse]:
    # Brokers ask, too. What they may follow they may ask about.
    if may_on_cluster(context, AclOperation.CLUSTER_ACTION, quietly=True):
        return _answer_all(request, context, ())
    names = (topic.topic for topic in request.topics)
    return decided(
        context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, lambda denied: _answer_all(request, context, denied)
    )


def _answer_all(
    request: OffsetForLeaderEpochRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[OffsetForLeaderEpochResponse]:
    asked = request.topics
    if denied:
        asked = sorted(asked, key=lambda topic: topic.topic in denied)

    def answer(topic: OffsetForLeaderTopic, each: OffsetForLeaderPartition) -> EpochEndOffset:
        if topic.topic in denied:
            return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=each.partition)
        return _answer(topic.topic, each, context)

    def respond(answers: list[list[EpochEndOffset]]) -> OffsetForLeaderEpochResponse:
        topics = zip(asked, answers, strict=True)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=each) for topic, each in topics]
        )

    return answer_partitions(asked, attrgetter("partitions"), answer, respond)


def _answer(topic: str, asked: OffsetForLeaderPartition, context: RequestContext[Broker]) -> EpochEndOffset:
    try:
        epoch, end_offset = context.broker.partition(topic, asked.partition).end_offset_for_epoch(
            asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
        )
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
