"""DeleteTopics: delete topics by name, from v6 on also by id.

Behaviour
* With delete.topic.enable=false everything is refused: TOPIC_DELETION_DISABLED, below v3 INVALID_REQUEST.
* A name or id that comes twice, or both or neither of name and id: INVALID_REQUEST. So is a topic given by name and by
  id; then it is told once, and not deleted.
* An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID, told without a name.
* The answer goes out when the topic is gone for good and its name can be used again; its files go a little later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.replication.cluster_state import ClusterState
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID

DISABLED_CODE_SINCE = 3


class _Asked(NamedTuple):
    """A topic to delete: what was found for what the request says."""

    name: str
    topic_id: bytes


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    broker, version = context.broker, context.api_version
    named = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names] + request.topics
    if not broker.config.replication.delete_topic_enable:
        return DeleteTopicsResponse(responses=[_disabled(state, version) for state in named])
    to_delete, responses = _sorted_out(broker.cluster, named)
    errors = await broker.administration.delete_topics([each.name for each in to_delete])
    for each, error in zip(to_delete, errors, strict=True):
        responses.append(_response(each.name, each.topic_id, error))
    return DeleteTopicsResponse(responses=responses)


def _disabled(state: DeleteTopicState, version: int) -> DeletableTopicResult:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= DISABLED_CODE_SINCE else ErrorCode.INVALID_REQUEST
    return _response(state.name, state.topic_id, KafkaError(code, code.message))


def _sorted_out(
    cluster: ClusterState, named: Sequence[DeleteTopicState]
) -> tuple[list[_Asked], list[DeletableTopicResult]]:
    """Which topics can be deleted, and the answers for everything else."""
    counts = Counter((state.name, state.topic_id) for state in named)
    to_delete: dict[bytes, _Asked] = {}
    responses: list[DeletableTopicResult] = []
    for (name, topic_id), count in sorted(counts.items(), key=lambda item: item[0][0] is not None):  # ids first
        try:
            found = _found(cluster, name, topic_id, count)
        except KafkaError as error:
            responses.append(_response(name, topic_id, error))
            continue
        if to_delete.setdefault(found.topic_id, found) is not found:
            del to_delete[found.topic_id]
            message = "The provided topic name maps to an ID that was already supplied."
            responses.append(_response(found.name, found.topic_id, KafkaError(ErrorCode.INVALID_REQUEST, message)))
    return list(to_delete.values()), responses


def _found(cluster: ClusterState, name: str | None, topic_id: bytes, count: int) -> _Asked:
    if name is None:
        return _found_by_id(cluster, topic_id, count)
    if topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic = cluster.topics.get(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, code.message)
    return _Asked(name, topic.topic_id)


def _found_by_id(cluster: ClusterState, topic_id: bytes, count: int) -> _Asked:
    if topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    topic = cluster.topic_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
    return _Asked(topic.name, topic_id)


def _response(name: str | None, topic_id: bytes, error: KafkaError | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
