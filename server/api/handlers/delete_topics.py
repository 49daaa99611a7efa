"""Deletion of topics and of records: DeleteTopics and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.replication.cluster.metadata_cache import MetadataCache, is_internal_topic
from ottla.replication.log.removal import look_at_times
from ottla.replication.log.storage import NotCached, only_cached
from ottla.replication.partition.removals import LINES_PER_RUN
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, denied_of, may_on_cluster
from ottla.server.dispatch.context import RequestContext, mutations_of
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE, answer_partitions, each_in_slices
from ottla.wire.answers import Answer, Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.network.deadlines import Deadline

DISABLED_CODE_SINCE = 3
STRICT_SINCE = 5


class _Asked(NamedTuple):
    """Name and id of an existing topic to delete."""

    name: str
    topic_id: bytes


class _Denied(NamedTuple):
    """Names of topics that the client may not describe, and of topics that it may not delete."""

    to_describe: Collection[str]
    to_delete: Collection[str]


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext[Broker]) -> DeleteTopicsResponse:
    """DeleteTopics: delete topics by name, since v6 also by id.

    Behaviour
    * With delete.topic.enable=false everything is refused: TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.
    * An entry with both name and id, or with neither, gets INVALID_REQUEST. A name or id that comes twice gets a single
      INVALID_REQUEST. So does a topic that is named by name and by id; it is not deleted.
    * An unknown name gets UNKNOWN_TOPIC_OR_PARTITION. An unknown id gets UNKNOWN_TOPIC_ID, without a name.
    * Topics that the client may not delete get TOPIC_AUTHORIZATION_FAILED. Only clients that may describe a topic learn
      that it exists, or which name belongs to its id. As in Kafka, a client that may delete the cluster may delete all
      topics; only the right to all operations includes this right.
    * The response is sent when the topic is deleted and its name can be used again; its files are deleted a little
      later. A timeout of 0 or less expires immediately.
    * While the client exceeds its controller_mutation_rate, topics get THROTTLING_QUOTA_EXCEEDED. Before v5 topics are
      deleted, and the client is throttled afterwards.
    * If this broker is not the controller, and cannot reach it in time, every topic gets NOT_CONTROLLER. In a cluster
      the response is sent when the controller has removed the topic from the metadata; the name can be used again when
      all brokers with replicas of the topic have confirmed their deletion.
    """
    broker, version = context.broker, context.api_version
    named = await each_in_slices(request.topic_names, lambda name: DeleteTopicState(name=name, topic_id=ZERO_UUID))
    named += request.topics
    if not broker.administration.is_controller:
        return await _all_refused(named, ErrorCode.NOT_CONTROLLER)
    if not broker.config.replication.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= DISABLED_CODE_SINCE else ErrorCode.INVALID_REQUEST
        return await _all_refused(named, code)
    asked, responses = await _sorted_out(named)
    if asked and request.timeout_ms <= 0:
        return await _all_refused(named, ErrorCode.REQUEST_TIMED_OUT)
    given_ids = {state.topic_id for state in named if state.name is None}
    to_delete, failures = await _found(context, asked, given_ids)
    to_delete, refused = _within_quota(broker.cluster, to_delete, context)
    failures += refused
    names = [each.name for each in to_delete]
    by_id = {each.name: each.topic_id for each in to_delete if each.topic_id in given_ids}
    errors = await broker.administration.delete_topics(names, wanted_ids=by_id, timeout_s=request.timeout_ms / 1000)
    for each, error in zip(to_delete, errors, strict=True):
        is_unknown = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_ID
        responses.append(_response(None if is_unknown else each.name, each.topic_id, error))
    return DeleteTopicsResponse(responses=responses + failures)


async def _all_refused(named: Sequence[DeleteTopicState], code: ErrorCode) -> DeleteTopicsResponse:
    error = KafkaError(code)
    responses = await each_in_slices(named, lambda state: _response(state.name, state.topic_id, error))
    return DeleteTopicsResponse(responses=responses)


async def _sorted_out(named: Sequence[DeleteTopicState]) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """Return the valid entries, and error results for entries that are invalid or named twice."""
    counts: Counter[tuple[str | None, bytes]] = Counter()
    responses: list[DeletableTopicResult] = []
    time_slice = TimeSlice()
    for state in named:
        await time_slice.yield_if_over()
        if (state.name is None) != (state.topic_id == ZERO_UUID):
            counts[state.name, state.topic_id] += 1
            continue
        neither, both = "Neither topic name nor id were specified.", "You may not specify both topic name and topic id."
        error = KafkaError(ErrorCode.INVALID_REQUEST, neither if state.name is None else both)
        responses.append(_response(state.name, state.topic_id, error))
    once = []
    for (name, topic_id), count in counts.items():
        await time_slice.yield_if_over()
        if count == 1:
            once.append(DeleteTopicState(name=name, topic_id=topic_id))
        else:
            error = KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
            responses.append(_response(name, topic_id, error))
    return once, responses


async def _denied(context: RequestContext[Broker], names: Sequence[str]) -> _Denied:
    if may_on_cluster(context, AclOperation.DELETE, quietly=True):
        return _Denied((), ())
    return _Denied(
        await denied_of(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names),
        await denied_of(context, AclOperation.DELETE, ResourceType.TOPIC, names),
    )


async def _found(
    context: RequestContext[Broker], asked: Sequence[DeleteTopicState], given_ids: Collection[bytes]
) -> tuple[list[_Asked], list[DeletableTopicResult]]:
    """Return the topics to delete, and errors for topics that are denied, missing, or named by both name and id."""
    cluster = context.broker.cluster
    # Ids are looked up once: the client was not asked for rights to a topic that comes meanwhile.
    names = await each_in_slices(asked, lambda state: _name(cluster, state))
    denied = await _denied(context, [name for name in names if name is not None])
    found: dict[bytes, _Asked] = {}
    responses: list[DeletableTopicResult] = []
    time_slice = TimeSlice()
    for state, name in sorted(zip(asked, names, strict=True), key=lambda each: each[0].name is not None):  # ids first
        await time_slice.yield_if_over()
        topic = None if name is None else cluster.topics.get(name)
        if name is not None and _is_denied(state, name, denied, is_there=topic is not None):
            told = None if state.name is None and name in denied.to_describe else name
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            responses.append(_response(told, state.topic_id, KafkaError(code, code.message)))
        elif topic is None or (state.name is None and topic.topic_id != state.topic_id):
            code = ErrorCode.UNKNOWN_TOPIC_ID if state.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.append(_response(state.name, state.topic_id, KafkaError(code, code.message)))
        elif state.name is not None and topic.topic_id in given_ids:
            found.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            responses.append(_response(topic.name, topic.topic_id, KafkaError(ErrorCode.INVALID_REQUEST, message)))
        else:
            found[topic.topic_id] = _Asked(topic.name, topic.topic_id)
    return list(found.values()), responses


def _name(cluster: MetadataCache, state: DeleteTopicState) -> str | None:
    if state.name is not None:
        return state.name
    topic = cluster.topic_by_id.get(state.topic_id)
    return None if topic is None else topic.name


def _is_denied(state: DeleteTopicState, name: str, denied: _Denied, *, is_there: bool) -> bool:
    if state.name is not None and (name in denied.to_describe or not is_there):
        return name in denied.to_describe  # to others it may be told that there is no such topic
    return name in denied.to_delete


def _within_quota(
    cluster: MetadataCache, to_delete: Sequence[_Asked], context: RequestContext[Broker]
) -> tuple[list[_Asked], list[DeletableTopicResult]]:
    take = mutations_of(context, strict_since=STRICT_SINCE)
    allowed, refused = [], []
    for each in to_delete:
        topic = cluster.topics.get(each.name)
        try:
            take(0 if topic is None else len(topic.partitions))
            allowed.append(each)
        except KafkaError as error:
            refused.append(_response(each.name, each.topic_id, error))
    return allowed, refused


def _response(name: str | None, topic_id: bytes, error: KafkaError | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


UNKNOWN_LOW_WATERMARK = -1
Answered: TypeAlias = Given[DeleteRecordsResponse]


@handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, context: RequestContext[Broker]) -> Answer[DeleteRecordsResponse]:
    """DeleteRecords: raise the log start offset of partitions.

    Behaviour
    * Offset -1 stands for the high watermark. Offsets above it, or below -1, get OFFSET_OUT_OF_RANGE; an offset below
      the log start changes nothing. Records of a topic that is only compacted cannot be deleted: POLICY_VIOLATION.
    * Topics from which the client may not delete get TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
    * Internal topics get INVALID_TOPIC_EXCEPTION.
    * If a partition is named twice, its last offset counts, and the response has the partition once.
    * The response has the new low watermark, the lowest log start offset among the live replicas. The response is sent
      when the followers have raised their start offsets, too. After the request's timeout the error is
      REQUEST_TIMED_OUT (Kafka's DelayedDeleteRecords).
    * The next retention check deletes the files.
    """
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
    client = str(context.principal), context.client_host.removeprefix("/")
    deletion = Deletion(context.broker, denied, client)

    def respond(answers: list[list[DeleteRecordsPartitionResult]]) -> Answered:
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(name=topic.name, partitions=each)
                for topic, each in zip(topics, answers, strict=True)
            ]
        )
        return deletion.answer(response, timeout_ms)

    def delete() -> Worked[Answered]:
        return answer_partitions(
            topics, attrgetter("partitions"), lambda topic, asked: deletion.delete(topic.name, asked), respond
        )

    # Old records are seldom in memory, and to find one on a slow disk takes many reads.
    described = list(islice(((topic.name, each) for topic in topics for each in topic.partitions), LINES_PER_RUN))
    try:
        with only_cached:
            for each in described:
                deletion.look(*each)
    except NotCached:
        return _delete_warmed(deletion, described, delete)
    return delete()


async def _delete_warmed(
    deletion: Deletion, described: Sequence[tuple[str, DeleteRecordsPartition]], delete: Callable[[], Worked[Answered]]
) -> Answered:
    """Call `delete` after threads have read into memory what the log lines of the `described` partitions need."""
    from ottla.server.api.fetch.reading import each_warmed  # here, because few deletions need it

    await each_warmed(described, lambda each: deletion.look(*each))
    answer = delete()
    return await answer if isinstance(answer, Coroutine) else answer


class Deletion(PendingAnswer[DeleteRecordsResponse]):
    """Pending response to one DeleteRecords request, which waits for the followers."""

    def __init__(self, broker: Broker, denied: Collection[str], client: tuple[str, str]) -> None:
        """Begin without pending partitions. `denied`: topics from which the client may not delete.

        `client`: principal and address of the client, for the log.
        """
        super().__init__()
        self._client = client
        self._removals = broker.replicas.removals.begin(broker.now_ms(), is_frequent=True)
        self._broker, self._denied = broker, denied
        self._response = DeleteRecordsResponse(topics=[])
        self._awaited: dict[Partition, tuple[int, DeleteRecordsPartitionResult]] = {}
        self._watchers: list[tuple[Partition, Callable[[], None]]] = []
        self._deadline: Deadline | None = None

    def delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        """Raise one partition's log start offset and return the result.

        If followers lag behind, the partition is recorded as pending, and the result completed later.
        """
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=ErrorCode.NONE
        )
        try:
            partition = self._partition(topic, asked.partition_index)
            removal = self._removals.removal()
            offset = partition.delete_records(asked.offset, removal)
            self._removals.note_log(topic, asked.partition_index, removal, *self._client)
            result.low_watermark = partition.low_watermark(self._is_alive)
        except KafkaError as error:
            result.error_code = error.code
            return result
        if result.low_watermark < offset:
            self._awaited[partition] = (offset, result)
        return result

    def look(self, topic: str, asked: DeleteRecordsPartition) -> None:
        """Read the times of records that `delete` will log, and delete nothing. Raises NotCached."""
        with suppress(KafkaError):  # `delete` will answer it
            partition = self._partition(topic, asked.partition_index)
            start = partition.start_after_deletion(asked.offset)
            look_at_times(partition.log, partition.log.log_start_offset, start)

    def _partition(self, topic: str, index: int) -> Partition:
        if topic in self._denied:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if is_internal_topic(topic) and self._broker.cluster.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        return self._broker.partition(topic, index)

    def _is_alive(self, broker: int) -> bool:
        return broker in self._broker.cluster.brokers

    def answer(self, response: DeleteRecordsResponse, timeout_ms: int) -> Answered:
        """Return the response if all followers have raised their start offsets; else return this pending answer."""
        self._removals.end()
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
    """Requested partitions by topic, each once."""

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
