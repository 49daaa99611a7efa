"""DeleteTopics: delete topics by name, from v6 on also by id.

Behaviour
* With delete.topic.enable=false everything is refused: TOPIC_DELETION_DISABLED, below v3 INVALID_REQUEST.
* Both or neither of name and id: INVALID_REQUEST, each time. A name or id that comes twice: INVALID_REQUEST, once. So is
  a topic given by name and by id; it is not deleted.
* An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID, told without a name.
* Topics that the client may not delete are TOPIC_AUTHORIZATION_FAILED. Whether there is a topic of a name is told only to
  those who may describe it, and so is the name that belongs to an id. Who may delete the cluster, which only the right to
  all operations includes, may delete all topics, as in Kafka.
* The answer goes out when the topic is gone for good and its name can be used again; its files go a little later. A
  request that leaves no time for it (a timeout of 0 or less) times out at once.
* While the client exceeds its controller_mutation_rate a topic is THROTTLING_QUOTA_EXCEEDED. Below v5 it is deleted, and the
  client pauses after it.
* At a broker that is not the controller, and cannot reach it in time, everything is NOT_CONTROLLER. In a cluster the answer goes
  out when the controller shows the topic no more; its name can be used again when all brokers that held it have said that they deleted it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.replication.cluster.metadata_cache import MetadataCache
from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext, mutations_of
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.time_slice import TimeSlice

DISABLED_CODE_SINCE = 3
STRICT_SINCE = 5


class _Asked(NamedTuple):
    """A topic to delete, as the request names it, and the topic that was found."""

    name: str
    topic_id: bytes


class _Denied(NamedTuple):
    """Names of topics that the client may not describe, and of those that it may not delete."""

    to_describe: Collection[str]
    to_delete: Collection[str]


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext[Broker]) -> DeleteTopicsResponse:
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


async def _sorted_out(
    named: Sequence[DeleteTopicState],
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """Separate topics that are named rightly and only once from the answers for everything else."""
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
    """Topics to delete, and answers for those that are denied, missing or named in both ways."""
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
