"""DescribeTopicPartitions: partitions of topics in pages.

Behaviour
* Topics come in the order of their names; no names mean all topics. A page holds at most as many partitions as the
  request and max.request.partition.size.limit allow, at least one; a longer answer ends with the cursor of the first
  partition that was left out, and going on with it leaves out everything before it.
* Topics that the client may not describe are TOPIC_AUTHORIZATION_FAILED, whether they exist or not, behind the others and
  beside the page. If all topics are asked for they are left out.
* A missing topic comes with its error, unless all topics are asked for; it takes no room in the page.
* A cursor that names a topic outside the list, or a negative partition, is INVALID_REQUEST in every topic asked for;
  an empty name is UNKNOWN_SERVER_ERROR in all of them, as Kafka fails over it, unless the client may not describe it.
* A member of a cluster does not serve it, as brokers that coordinate through ZooKeeper do not: all brokers of a cluster are
  to describe topics alike, and clients then ask for Metadata.
* Partitions carry no errors of their own: one without a reachable leader has leader -1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster.metadata_cache import (
    NO_LEADER,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, ResourceType, authorized_operations, denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices, sorted_in_slices
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext

NAMES_AT_ONCE = 1_000


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext[Broker]
) -> Answer[DescribeTopicPartitionsResponse]:
    # Each topic of a page is asked about several times, if there is somebody to ask.
    if len(request.topics) > NAMES_AT_ONCE or context.broker.authorizer is not None:
        return _describe_in_slices(request, context)
    names = sorted({topic.name for topic in request.topics}) if request.topics else context.broker.cluster.topic_names()
    found = _names_to_tell(request, names)
    if isinstance(found, ErrorCode):
        return DescribeTopicPartitionsResponse(topics=[_failed(topic.name, found) for topic in request.topics])
    page = _Page(request, context)
    for name in found:
        if not page.add(name):
            break
    return page.response()


async def _describe_in_slices(
    request: DescribeTopicPartitionsRequest, context: RequestContext[Broker]
) -> DescribeTopicPartitionsResponse:
    names: Sequence[str] = context.broker.cluster.topic_names()
    if request.topics:
        names = await sorted_in_slices(topic.name for topic in request.topics)
    possible = _names_from_cursor(request, names) or ()
    denied = await denied_of(context, AclOperation.DESCRIBE, ResourceType.TOPIC, possible)
    found = _names_to_tell(request, names, denied)
    if isinstance(found, ErrorCode):
        code = found
        refused = await each_in_slices(request.topics, lambda topic: _failed(topic.name, code))
        return DescribeTopicPartitionsResponse(topics=refused)
    page = _Page(request, context)
    time_slice = TimeSlice()
    for name in found:
        if name not in denied and not page.add(name):
            break
        await time_slice.yield_if_over()
    response = page.response()
    if request.topics:
        forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        hidden = (name for name in found if name in denied)
        response.topics += await each_in_slices(hidden, lambda name: _failed(name, forbidden))
    return response


def _names_to_tell(
    request: DescribeTopicPartitionsRequest, names: Sequence[str], denied: Collection[str] = ()
) -> Sequence[str] | ErrorCode:
    """Return the topic names to describe, in order from the cursor on, or the error for the whole request."""
    found = _names_from_cursor(request, names)
    if found is None:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNKNOWN_SERVER_ERROR if "" in found and "" not in denied else found


def _names_from_cursor(request: DescribeTopicPartitionsRequest, names: Sequence[str]) -> Sequence[str] | None:
    """Return the topic names from the cursor on; None if the cursor is invalid. `names` must be sorted."""
    cursor = request.cursor
    if cursor is None:
        return names
    if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
        return None
    return names[bisect_left(names, cursor.topic_name) :]


class _Page:
    """One page of the response, with a limited number of partitions."""

    def __init__(self, request: DescribeTopicPartitionsRequest, context: RequestContext[Broker]) -> None:
        self._request, self._context = request, context
        self._cluster = context.broker.cluster
        limit = context.broker.config.replication.max_request_partition_size_limit
        self._room = max(min(limit, request.response_partition_limit), 1)
        self._reachable = {endpoint.node_id for endpoint in self._cluster.endpoints(context.listener_name)}
        self._topics: list[DescribeTopicPartitionsResponseTopic] = []
        self._next_cursor: Cursor | None = None

    def response(self) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(topics=self._topics, next_cursor=self._next_cursor)

    def add(self, name: str) -> bool:
        """Add one topic; False if the page has no room for all of its partitions."""
        cursor = self._request.cursor
        topic = self._cluster.topics.get(name)
        if topic is None and not self._request.topics:
            return True
        if self._room == 0:
            self._next_cursor = Cursor(topic_name=name, partition_index=0)
        elif topic is None:
            self._topics.append(_missing(name, self._operations(name)))
        else:
            self._add(topic, cursor.partition_index if cursor is not None and cursor.topic_name == name else 0)
        return self._next_cursor is None

    def _operations(self, name: str) -> int:
        return authorized_operations(self._context, ResourceType.TOPIC, name)

    def _add(self, topic: TopicState, start: int) -> None:
        end = min(len(topic.partitions), start + self._room)
        partitions = [self._partition(index, topic.partitions[index]) for index in range(start, end)]
        self._room -= len(partitions)
        self._topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.NONE,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=partitions,
                topic_authorized_operations=self._operations(topic.name),
            )
        )
        if end < len(topic.partitions):
            self._next_cursor = Cursor(topic_name=topic.name, partition_index=end)

    def _partition(self, index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=state.leader if state.leader in self._reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[
                each for each in state.replicas if each not in self._reachable or each in state.offline_replicas
            ],
        )


def _missing(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    is_possible = topic_name_problem(name) is None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_possible else ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = _failed(name, code)
    topic.is_internal = is_internal_topic(name)
    topic.topic_authorized_operations = operations
    return topic


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])
