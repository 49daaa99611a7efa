"""LeaveGroup: members leave a group, or an administrator removes them.

Behaviour
* Each member has an error of its own; before version 3 there is one member, whose error is the whole answer.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, context: RequestContext[HasGroups]) -> Answer[LeaveGroupResponse]:
    return context.broker.groups.classic.leave_group(request, api_version=context.api_version)
