"""The requests of consumer groups' members (KIP-848), and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.consumer.group import undescribed
from ottla.groupcoord.consumer.heartbeat import refused_heartbeat
from ottla.groupcoord.consumer.manager import DescribeConsumerGroup
from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.modern.describing import Descriptions
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, check_texts, invalid
from ottla.groupcoord.runtime.answers import Caller, HiddenTopics
from ottla.groupcoord.shard import GroupRuntime
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENT_MAKES_MEMBER_ID = 1
"""Since this version of the heartbeat a member comes with an id of its own."""

TOO_MANY = "The request names too many topics or partitions."
OWNED_MAX = 100_000
"""Topics and partitions that a member may say it has. A group may have read all of a large cluster."""


class ConsumerService:
    """Handler of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(self, runtime: GroupRuntime, config: GroupConfig) -> None:
        self._runtime = runtime
        self._descriptions = Descriptions(runtime, DescribeConsumerGroup, undescribed)
        self._assignors = config.group_consumer_assignors

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        hidden_topics: HiddenTopics | None = None,
    ) -> Given[ConsumerGroupHeartbeatResponse]:
        """Handle a heartbeat. `hidden_topics` finds topics that the client may not see; None: it may see all topics."""
        try:
            self._runtime.check_running()
            check_heartbeat(request, api_version, self._assignors)
        except KafkaError as error:
            return refused_heartbeat(error.code, error.message)
        caller = Caller(
            refused_heartbeat,
            api_version=api_version,
            client_id=client_id,
            client_host=client_host,
            hidden_topics=hidden_topics,
        )
        return self._runtime.submit(request.group_id, request, caller)

    def describe(
        self, request: ConsumerGroupDescribeRequest, *, operations: Callable[[str], int]
    ) -> Worked[Given[ConsumerGroupDescribeResponse]]:
        """Describe groups, each once. `operations` returns the client's authorized operations on a group, as bits."""
        return self._descriptions.of(
            list(dict.fromkeys(request.group_ids)),
            lambda groups: ConsumerGroupDescribeResponse(groups=groups),
            operations=operations if request.include_authorized_operations else None,
        )


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]) -> None:
    """Raise KafkaError if the heartbeat would be invalid in every group."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MAKES_MEMBER_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        check_texts(MemberId=request.member_id)
    check_texts(GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id)
    owned_count = sum([1 + len(topic.partitions) for topic in request.topic_partitions or ()])
    if len(request.subscribed_topic_names or ()) > NAMED_MAX or owned_count > OWNED_MAX:
        raise invalid(TOO_MANY)
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        problem = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, problem)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    # Without any topic, and with an empty pattern, it is in the group all the same.
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
