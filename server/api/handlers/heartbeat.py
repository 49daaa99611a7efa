"""Heartbeat: keep a group member's session alive.

Behaviour
* Always answered at once, without touching the log. REBALANCE_IN_PROGRESS asks the member to join again.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, context: RequestContext[Broker]) -> HeartbeatResponse:
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.heartbeat(request)
