"""ConsumerGroupHeartbeat: come to, stay in or leave a consumer group whose assignments the broker makes (KIP-848).

Behaviour
* Answered at once, or when what the group has written for it is safely in the log.
* What becomes of a member in which state: `ottla.groupcoord.groups.consumer.heartbeat`.
"""

from ottla.groupcoord.groups.kinds import CONSUMER
from ottla.server.cluster.features import GROUP_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ConsumerGroupHeartbeatRequest, feature=GROUP_VERSION, prepare=CONSUMER.load)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext[HasGroups]
) -> Answer[ConsumerGroupHeartbeatResponse]:
    return context.broker.groups.consumer.heartbeat(
        request,
        api_version=context.api_version,
        client_id=context.client_id,
        client_host=context.client_host,
    )
