"""SyncGroup: hand in the assignment as the leader, receive one's part of it as a member.

Behaviour
* Members wait until their leader has handed in the assignment and it is safely in the log.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMES_SINCE = 5


@handles(SyncGroupRequest)
def sync_group(request: SyncGroupRequest, context: RequestContext[Broker]) -> Answer[SyncGroupResponse]:
    # A request that lacks these two is refused whoever sends it.
    if context.api_version < NAMES_SINCE or None not in (request.protocol_type, request.protocol_name):
        require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.sync_group(request, api_version=context.api_version)
