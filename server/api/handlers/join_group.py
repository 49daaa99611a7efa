"""JoinGroup: become a member of a group; answered when the rebalance has gathered its members.

Behaviour
* The answer may take as long as the group's rebalance timeout. A peer that leaves meanwhile is forgotten.
* What each state of the group does with a join: `ottla.groupcoord.classic.rebalancing`.
"""

from ottla.groupcoord.classic.group import refused_join
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import hidden_topics
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


@handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, context: RequestContext[Broker]) -> Answer[JoinGroupResponse]:
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refused_join("", ErrorCode.GROUP_AUTHORIZATION_FAILED, context.api_version)
    return groups_of(context.broker).classic.join_group(
        request,
        api_version=context.api_version,
        client_id=context.client_id,
        client_host=context.client_host,
        hidden_topics=hidden_topics(context),
    )
