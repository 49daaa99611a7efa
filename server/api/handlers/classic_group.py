"""Membership of a classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from ottla.groupcoord.classic.group import refused_join
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import AclOperation, ResourceType, hidden_topics, may, require
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


@handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, context: RequestContext[Broker]) -> Answer[JoinGroupResponse]:
    """JoinGroup: join a classic group; the response is sent when the rebalance has gathered its members.

    Behaviour
    * The response may take as long as the group's rebalance timeout. If the client disconnects meanwhile, its join is
      dropped.
    * `ottla.groupcoord.classic.rebalancing` describes how each state of the group handles a join.
    """
    if not may(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refused_join("", ErrorCode.GROUP_AUTHORIZATION_FAILED, context.api_version)
    return groups_of(context.broker).classic.join_group(
        request,
        api_version=context.api_version,
        client_id=context.client_id,
        client_host=context.client_host,
        hidden_topics=hidden_topics(context),
    )


NAMES_SINCE = 5


@handles(SyncGroupRequest)
def sync_group(request: SyncGroupRequest, context: RequestContext[Broker]) -> Answer[SyncGroupResponse]:
    """SyncGroup: give a member its assignment; the group's leader submits the assignments of all members.

    Members wait until their leader has submitted the assignments and the log has committed them.
    """
    # A request that lacks these two is refused whoever sends it.
    if context.api_version < NAMES_SINCE or None not in (request.protocol_type, request.protocol_name):
        require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.sync_group(request, api_version=context.api_version)


@handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, context: RequestContext[Broker]) -> HeartbeatResponse:
    """Heartbeat: keep a group member's session alive.

    The response is immediate and needs no write to the log. REBALANCE_IN_PROGRESS asks the member to join again.
    """
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.heartbeat(request)


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, context: RequestContext[Broker]) -> Answer[LeaveGroupResponse]:
    """LeaveGroup: remove members from a classic group, at their own request or an administrator's.

    Each member has its own error code. Before version 3 a request names one member, whose error is the response's.
    """
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    return groups_of(context.broker).classic.leave_group(request, api_version=context.api_version)
