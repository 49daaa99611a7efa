"""DeleteGroups: delete empty groups together with their offsets.

Behaviour
* Each group has an error of its own: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or why it cannot be reached here.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, context: RequestContext[HasGroups]) -> Answer[DeleteGroupsResponse]:
    return context.broker.groups.administration.delete_groups(request)
