"""ListGroups: the groups that this broker coordinates.

Behaviour
* Filters by state (version 4) and type (version 5) do not mind case; an unknown word matches nothing.
* Whoever may describe the cluster sees all groups, others those that they may describe.
"""

from typing import Any

from ottla.groupcoord.runtime.answers import finished
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import denied_of
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, context: RequestContext[Broker]) -> Answer[ListGroupsResponse]:
    answer = groups_of(context.broker).administration.list_groups(request)
    if may_on_cluster(context, AclOperation.DESCRIBE, quietly=True):
        return answer
    return _allowed(answer, context)


async def _allowed(answer: Any, context: RequestContext[Broker]) -> ListGroupsResponse:
    response: ListGroupsResponse = await finished(answer)
    names = (group.group_id for group in response.groups)
    denied = await denied_of(context, AclOperation.DESCRIBE, ResourceType.GROUP, names, quietly=True)
    response.groups = [group for group in response.groups if group.group_id not in denied]
    return response
