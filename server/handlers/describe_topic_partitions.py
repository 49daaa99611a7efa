"""DescribeTopicPartitions: partitions of topics in pages.

Behaviour
* Topics are told in the order of their names; no names mean all topics. A page holds at most as many partitions as the
  request and max.request.partition.size.limit allow, at least one; a longer answer ends with the cursor of the first
  partition that was left out, and going on with it leaves out everything before it.
* A missing topic is told with its error, unless all topics are asked for; it takes no room in the page.
* A cursor that names a topic outside the list, or a negative partition, is INVALID_REQUEST in every topic asked for;
  an empty name is UNKNOWN_SERVER_ERROR in all of them, as Kafka fails over it.
* A member of a cluster does not serve it, as brokers that coordinate through ZooKeeper do not: all brokers of a cluster are
  to describe topics alike, and clients then ask for Metadata.
* Partitions carry no errors of their own: one without a reachable leader has leader -1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster_state import (
    NO_LEADER,
    ClusterState,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.server.authorized_operations import TOPIC_OPERATIONS
from ottla.server.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.server.context import RequestContext


@handles(DescribeTopicPartitionsRequest, alone_only=True)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    broker = context.broker
    names = _names_from_cursor(request, broker.cluster)
    if names is None:
        refused = [_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    if "" in names:
        failed = [_failed(topic.name, ErrorCode.UNKNOWN_SERVER_ERROR) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=failed)
    limit = min(broker.config.replication.max_request_partition_size_limit, request.response_partition_limit)
    page = _Page(broker.cluster, context.listener_name, max(limit, 1))
    page.fill(names, request.cursor, tell_missing=bool(request.topics))
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


def _names_from_cursor(request: DescribeTopicPartitionsRequest, cluster: ClusterState) -> Sequence[str] | None:
    """The topics to tell, in order and from the cursor on; None if the request contradicts itself."""
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics}) if request.topics else cluster.topic_names()
    if cursor is None:
        return names
    if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
        return None
    return names[bisect_left(names, cursor.topic_name) :]


class _Page:
    """One answer, filled up to a number of partitions."""

    def __init__(self, cluster: ClusterState, listener: str, room: int) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None
        self._cluster = cluster
        self._room = room
        self._reachable = {endpoint.node_id for endpoint in cluster.endpoints(listener)}

    def fill(self, names: Sequence[str], cursor: Cursor | None, *, tell_missing: bool) -> None:
        for name in names:
            topic = self._cluster.topics.get(name)
            if topic is None and not tell_missing:
                continue
            if self._room == 0:
                self.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            if topic is None:
                self.topics.append(_missing(name))
                continue
            self._add(topic, cursor.partition_index if cursor is not None and cursor.topic_name == name else 0)
            if self.next_cursor is not None:
                return

    def _add(self, topic: TopicState, start: int) -> None:
        end = min(len(topic.partitions), start + self._room)
        partitions = [self._partition(index, topic.partitions[index]) for index in range(start, end)]
        self._room -= len(partitions)
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.NONE,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        if end < len(topic.partitions):
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=end)

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


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_possible = topic_name_problem(name) is None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_possible else ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = _failed(name, code)
    topic.is_internal = is_internal_topic(name)
    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[])
