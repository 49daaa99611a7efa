"""Consumer groups whose assignments the broker makes (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Collection, Iterator

from ottla.groupcoord.consumer.group import undescribed
from ottla.groupcoord.consumer.heartbeat import refused_heartbeat
from ottla.server.api.visible_groups import Kind, describe_groups, describe_turned_off
from ottla.server.broker import Broker
from ottla.server.cluster.features import GROUP_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, hidden_topics, require
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)


@handles(ConsumerGroupHeartbeatRequest, feature=GROUP_VERSION)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext[Broker]
) -> Answer[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat: join, stay in or leave a consumer group whose assignments the broker computes (KIP-848).

    Behaviour
    * The client needs the rights to read the group and to describe all topics that the request names. Topics that match
      its pattern but that it may not describe are ignored.
    * The response is immediate, or sent when the log has committed the group's records for this heartbeat.
    * `ottla.groupcoord.consumer.heartbeat` describes how the group handles a heartbeat.
    """
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    names = request.subscribed_topic_names or ()

    def go_on(denied: Collection[str]) -> Answer[ConsumerGroupHeartbeatResponse]:
        if denied:
            return refused_heartbeat(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return groups_of(context.broker).consumer.heartbeat(
            request,
            api_version=context.api_version,
            client_id=context.client_id,
            client_host=context.client_host,
            hidden_topics=hidden_topics(context),
        )

    return decided(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, go_on)


@handles(
    ConsumerGroupDescribeRequest,
    feature=GROUP_VERSION,
    turned_off=describe_turned_off(undescribed, ConsumerGroupDescribeResponse),
)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[ConsumerGroupDescribeResponse]:
    """ConsumerGroupDescribe: describe members of consumer groups with current and target assignments (KIP-848).

    Behaviour
    * Each group has an error code of its own, for example if it does not exist or has another type.
    * `server/api/visible_groups.py` describes the errors for groups and topics that the client may not describe.
    * While the feature for such groups is at level 0, each group gets UNSUPPORTED_VERSION.
    """
    return describe_groups(Kind(groups_of(context.broker).consumer.describe, undescribed, _topics_of), request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for each in assignment.topic_partitions:
                yield each.topic_name
