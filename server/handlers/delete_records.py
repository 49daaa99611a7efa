"""DeleteRecords: raise the log start offset of partitions.

Behaviour
* Offset -1 stands for the high watermark. Above it, or below -1, is OFFSET_OUT_OF_RANGE; below the log start nothing
  changes. A topic that is only compacted may not lose records this way: POLICY_VIOLATION.
* Internal topics are refused with INVALID_TOPIC_EXCEPTION.
* Of a partition that is asked for twice the last offset counts, and it is answered once.
* The answer carries the new low watermark. The files go later, with the next retention check.
"""

from __future__ import annotations

from collections.abc import Coroutine
from operator import attrgetter
from typing import Any

from ottla.replication.cluster_state import is_internal_topic
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.server.turns import answer_partitions
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

UNKNOWN_LOW_WATERMARK = -1


@handles(DeleteRecordsRequest)
def delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    def respond(answers: list[list[DeleteRecordsPartitionResult]]) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(name=topic.name, partitions=each)
                for topic, each in zip(topics, answers, strict=True)
            ]
        )

    topics = _without_repetitions(request.topics)
    return answer_partitions(
        topics, attrgetter("partitions"), lambda topic, asked: _delete(topic.name, asked, context), respond
    )


def _without_repetitions(topics: list[DeleteRecordsTopic]) -> list[DeleteRecordsTopic]:
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in topics:
        for partition in topic.partitions:
            asked.setdefault(topic.name, {})[partition.partition_index] = partition
    return [DeleteRecordsTopic(name=name, partitions=list(partitions.values())) for name, partitions in asked.items()]


def _delete(topic: str, asked: DeleteRecordsPartition, context: RequestContext) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _low_watermark(topic, asked, context)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=ErrorCode.NONE
    )


def _low_watermark(topic: str, asked: DeleteRecordsPartition, context: RequestContext) -> int:
    if is_internal_topic(topic) and context.broker.cluster.partition(topic, asked.partition_index) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    return context.broker.partition(topic, asked.partition_index).delete_records(asked.offset)
