"""ConsumerGroupHeartbeat: come to, stay in or leave a consumer group whose assignments the broker makes (KIP-848).

Behaviour
* The client has to have the right to read the group and to describe all topics that it names. Of topics that its pattern
  matches those are left out that it may not describe.
* Answered at once, or when what the group has written for it is safely in the log.
* What becomes of a member in which state: `ottla.groupcoord.consumer.heartbeat`.
"""

from collections.abc import Collection

from ottla.groupcoord.consumer.heartbeat import refused_heartbeat
from ottla.server.broker import Broker
from ottla.server.cluster.features import GROUP_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided, hidden_topics
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ConsumerGroupHeartbeatRequest, feature=GROUP_VERSION)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext[Broker]
) -> Answer[ConsumerGroupHeartbeatResponse]:
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
