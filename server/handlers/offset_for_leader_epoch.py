"""OffsetForLeaderEpoch: where the records of a leader epoch end, so that a reader can tell whether its log diverged.

Behaviour
* Answers the largest epoch that is not above the asked one, with its end offset; the latest epoch ends at the log end.
  An epoch older than everything known is answered with -1 and -1.
* `current_leader_epoch` fences: FENCED_LEADER_EPOCH if the asker is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
"""

from __future__ import annotations

from operator import attrgetter

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.net.turns import answer_partitions
from ottla.server.ports import HasPartitions
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest, reads_only=True)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext[HasPartitions]
) -> Answer[OffsetForLeaderEpochResponse]:
    def respond(answers: list[list[EpochEndOffset]]) -> OffsetForLeaderEpochResponse:
        topics = zip(request.topics, answers, strict=True)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=each) for topic, each in topics]
        )

    return answer_partitions(
        request.topics,
        attrgetter("partitions"),
        lambda topic, asked: _answer(topic.topic, asked, context),
        respond,
    )


def _answer(topic: str, asked: OffsetForLeaderPartition, context: RequestContext[HasPartitions]) -> EpochEndOffset:
    try:
        epoch, end_offset = context.broker.partition(topic, asked.partition).end_offset_for_epoch(
            asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
        )
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
