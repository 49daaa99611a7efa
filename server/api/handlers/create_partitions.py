"""CreatePartitions: raise the number of partitions of topics, or only say whether that could be done.

Behaviour
* A topic that comes twice is refused. So is one that the client may not alter, with TOPIC_AUTHORIZATION_FAILED. Each other
  one succeeds or fails by itself.
* If the others would add more than 10,000 partitions together, all of the request is POLICY_VIOLATION.
* The count is the new total; it must be more than there are. Assignments, if given, are for the new partitions only and
  must have the replication factor of the topic.
* A request that leaves no time (a timeout of 0 or less) times out at once. In a cluster REQUEST_TIMED_OUT says that not all
  partitions have leaders yet.
* While the client exceeds its controller_mutation_rate a topic is THROTTLING_QUOTA_EXCEEDED. Below v3 it is extended, and the
  client pauses after it.
* At a broker that is not the controller, and cannot reach it in time, every topic is NOT_CONTROLLER. A topic that is being
  reassigned is REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import trio

from ottla.server.broker import Broker
from ottla.server.cluster.administration import Administration
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext, mutations_of
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

TOPICS_PER_SLICE = 100
STRICT_SINCE = 3


@handles(CreatePartitionsRequest)
async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext[Broker]
) -> CreatePartitionsResponse:
    administration = context.broker.administration
    named = Counter(topic.name for topic in request.topics)
    if not administration.is_controller:
        elsewhere = KafkaError(ErrorCode.NOT_CONTROLLER)
        return await _all_failed(named, elsewhere)
    once = [topic for topic in request.topics if named[topic.name] == 1]
    denied = await denied_of(context, AclOperation.ALTER, ResourceType.TOPIC, (topic.name for topic in once))
    asked = [topic for topic in once if topic.name not in denied]
    if request.timeout_ms <= 0 and asked:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return await _all_failed([topic.name for topic in request.topics], late)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = (await _all_failed([name for name, count in named.items() if count > 1], twice)).results
    forbidden = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    results += (await _all_failed([topic.name for topic in once if topic.name in denied], forbidden)).results
    try:
        administration.planner.check_extension_total((topic.name, topic.count) for topic in asked)
    except KafkaError as error:
        return await _all_failed([topic.name for topic in request.topics], error)
    take = mutations_of(context, strict_since=STRICT_SINCE)
    created: dict[str, CreatePartitionsTopicResult] = {}
    for start in range(0, len(asked), TOPICS_PER_SLICE):
        async with trio.open_nursery() as nursery:
            for topic in asked[start : start + TOPICS_PER_SLICE]:
                nursery.start_soon(_create, administration, topic, request, take, created)
    return CreatePartitionsResponse(results=results + [created[topic.name] for topic in asked])


async def _all_failed(names: Iterable[str], error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=await each_in_slices(names, lambda name: _result(name, error)))


async def _create(
    administration: Administration,
    topic: CreatePartitionsTopic,
    request: CreatePartitionsRequest,
    take: Callable[[int], None],
    results: dict[str, CreatePartitionsTopicResult],
) -> None:
    assignments: Sequence[Sequence[int]] | None = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    error: KafkaError | None = None
    try:
        await administration.create_partitions(
            topic.name,
            topic.count,
            assignments,
            validate_only=request.validate_only,
            timeout_s=request.timeout_ms / 1000,
            take=take,
        )
    except KafkaError as raised:
        error = bare(raised)
    results[topic.name] = _result(topic.name, error)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
