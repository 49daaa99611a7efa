"""CreatePartitions: raise the number of partitions of topics, or only say whether that could be done.

Behaviour
* A topic that comes twice is refused. Each other one succeeds or fails by itself.
* The count is the new total; it must be more than there are. Assignments, if given, are for the new partitions only and
  must have the replication factor of the topic.
* A request that leaves no time (a timeout of 0 or less) times out at once; beyond that the timeout is not needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ottla.server.administration import TopicAdministration
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@handles(CreatePartitionsRequest)
async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    administration = context.broker.administration
    named = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0 and 1 in named.values():
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return CreatePartitionsResponse(results=[_result(topic.name, late) for topic in request.topics])
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_result(name, twice) for name, count in named.items() if count > 1]
    for topic in request.topics:
        if named[topic.name] == 1:
            results.append(await _created(administration, topic, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=results)


async def _created(
    administration: TopicAdministration, topic: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments: Sequence[Sequence[int]] | None = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    try:
        await administration.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)
    except KafkaError as error:
        return _result(topic.name, error)
    return _result(topic.name, None)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
