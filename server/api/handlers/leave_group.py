"""LeaveGroup: members leave a group, or an administrator removes them.

Behaviour
* Each member has an error of its own; before version 3 there is one member, whose error is the whole answer.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, context: RequestContext[Broker]) -> Answer[LeaveGroupResponse]:
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.leave_group(request, api_version=context.api_version)
