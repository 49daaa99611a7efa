"""ListGroups: the groups that this broker coordinates.

Behaviour
* Filters by state (version 4) and type (version 5) do not mind case; an unknown word matches nothing.
"""


from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, answers_at_length=True, few_at_once=True, reads_only=True)
def list_groups(
    request: ListGroupsRequest, context: RequestContext[HasGroups]
) -> Answer[ListGroupsResponse]:
    return context.broker.groups.administration.list_groups(request)
