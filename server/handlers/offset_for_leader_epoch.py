"""OffsetForLeaderEpoch: where the records of a leader epoch end, so that a reader can tell whether its log diverged.

Behaviour
* Answers the largest epoch that is not above the asked one, with its end offset; the latest epoch ends at the log end.
  An epoch older than everything known is answered with -1 and -1.
* `current_leader_epoch` fences: FENCED_LEADER_EPOCH if the asker is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
"""

from __future__ import annotations

from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(topic.topic, asked, context) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    try:
        epoch, end_offset = context.broker.partition(topic, asked.partition).end_offset_for_epoch(
            asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
        )
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
