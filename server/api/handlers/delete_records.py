"""DeleteRecords: raise the log start offset of partitions.

Behaviour
* Offset -1 stands for the high watermark. Above it, or below -1, is OFFSET_OUT_OF_RANGE; below the log start nothing
  changes. A topic that is only compacted may not lose records this way: POLICY_VIOLATION.
* Topics that the client may not delete from are TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
* Internal topics are refused with INVALID_TOPIC_EXCEPTION.
* Of a partition that is asked for twice the last offset counts, and it is answered once.
* The answer carries the new low watermark, the lowest start among the live replicas. It waits until the followers have
  come that far, up to the request's timeout: then it is REQUEST_TIMED_OUT (Kafka's DelayedDeleteRecords).
* The files go later, with the next retention check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from ottla.replication.cluster.metadata_cache import is_internal_topic
from ottla.server.broker import Broker
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE, answer_partitions, each_in_slices
from ottla.wire.answers import Answer, Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.network.deadlines import Deadline

UNKNOWN_LOW_WATERMARK = -1
Answered: TypeAlias = Given[DeleteRecordsResponse]


@handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, context: RequestContext[Broker]) -> Answer[DeleteRecordsResponse]:
    names = (topic.name for topic in request.topics)
    return decided(
        context,
        AclOperation.DELETE,
        ResourceType.TOPIC,
        names,
        lambda denied: _delete_allowed(request, context, denied),
    )


def _delete_allowed(
    request: DeleteRecordsRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[Answered]:
    different = _Different()
    if len(request.topics) > PARTITIONS_PER_SLICE:
        return _delete_in_slices(request, different, context, denied)
    for topic in request.topics:
        different.add(topic)
    return _delete(different.topics(), request.timeout_ms, context, denied)


async def _delete_in_slices(
    request: DeleteRecordsRequest, different: _Different, context: RequestContext[Broker], denied: Collection[str]
) -> Answered:
    await each_in_slices(request.topics, different.add)
    topics = await each_in_slices(different.asked.items(), different.topic)
    answer = _delete(topics, request.timeout_ms, context, denied)
    return await answer if isinstance(answer, Coroutine) else answer


def _delete(
    topics: list[DeleteRecordsTopic], timeout_ms: int, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[Answered]:
    deletion = Deletion(context.broker, denied)

    def respond(answers: list[list[DeleteRecordsPartitionResult]]) -> Answered:
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(name=topic.name, partitions=each)
                for topic, each in zip(topics, answers, strict=True)
            ]
        )
        return deletion.answer(response, timeout_ms)

    return answer_partitions(
        topics, attrgetter("partitions"), lambda topic, asked: deletion.delete(topic.name, asked), respond
    )


class Deletion(PendingAnswer[DeleteRecordsResponse]):
    """Deletion of one request, which waits for the followers."""

    def __init__(self, broker: Broker, denied: Collection[str]) -> None:
        """`denied`: topics from which nothing may be deleted."""
        super().__init__()
        self._broker = broker
        self._denied = denied
        self._response = DeleteRecordsResponse(topics=[])
        self._awaited: dict[Partition, tuple[int, DeleteRecordsPartitionResult]] = {}
        self._watchers: list[tuple[Partition, Callable[[], None]]] = []
        self._deadline: Deadline | None = None

    def delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        """Move the start of one partition; note it if followers have to come after."""
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=ErrorCode.NONE
        )
        index = asked.partition_index
        try:
            if topic in self._denied:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if is_internal_topic(topic) and self._broker.cluster.partition(topic, index) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
            partition = self._broker.partition(topic, index)
            offset = partition.delete_records(asked.offset)
            result.low_watermark = partition.low_watermark(self._is_alive)
        except KafkaError as error:
            result.error_code = error.code
            return result
        if result.low_watermark < offset:
            self._awaited[partition] = (offset, result)
        return result

    def _is_alive(self, broker: int) -> bool:
        return broker in self._broker.cluster.brokers

    def answer(self, response: DeleteRecordsResponse, timeout_ms: int) -> Answered:
        """Return the response, or this object, which becomes ready when the followers have followed."""
        if not self._awaited:
            return response
        self._response = response
        for partition, (_, result) in self._awaited.items():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT  # until it is known better
            self._watchers.append((partition, partial(self._look, partition)))
        for partition, watcher in self._watchers:
            partition.watchers.add(watcher)
        self._deadline = self._broker.deadlines.add(max(timeout_ms, 0) / 1000, self.become_ready)
        return self

    def _look(self, partition: Partition) -> None:
        awaited = self._awaited.get(partition)
        if awaited is None:
            return
        offset, result = awaited
        try:
            low_watermark = partition.low_watermark(self._is_alive)
            if low_watermark < offset:
                return
            result.low_watermark, result.error_code = low_watermark, ErrorCode.NONE
        except KafkaError as error:
            result.low_watermark, result.error_code = UNKNOWN_LOW_WATERMARK, error.code
        del self._awaited[partition]
        if not self._awaited:
            self.become_ready()

    def response(self) -> DeleteRecordsResponse:
        self.abandon()
        return self._response

    def abandon(self) -> None:
        for partition, watcher in self._watchers:
            partition.watchers.discard(watcher)
        self._watchers.clear()
        if self._deadline is not None:
            self._broker.deadlines.cancel(self._deadline)


class _Different:
    """Partitions of a request, each once."""

    def __init__(self) -> None:
        self.asked: dict[str, dict[int, DeleteRecordsPartition]] = {}

    def add(self, topic: DeleteRecordsTopic) -> None:
        for partition in topic.partitions:
            self.asked.setdefault(topic.name, {})[partition.partition_index] = partition

    def topics(self) -> list[DeleteRecordsTopic]:
        return [self.topic(each) for each in self.asked.items()]

    @staticmethod
    def topic(asked: tuple[str, dict[int, DeleteRecordsPartition]]) -> DeleteRecordsTopic:
        name, partitions = asked
        return DeleteRecordsTopic(name=name, partitions=list(partitions.values()))
