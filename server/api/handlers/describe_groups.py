"""DescribeGroups: state, protocol and members of groups.

Behaviour
* An unknown group is GROUP_ID_NOT_FOUND since version 6, and a group in state Dead without an error before.
* Groups that the client may not describe are GROUP_AUTHORIZATION_FAILED, in front of the others.
"""

from __future__ import annotations

from collections.abc import Collection

import trio

from ottla.groupcoord.classic.manager import undescribed
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import authorized_operations
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

GROUPS_PER_TURN = 4


@handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, context: RequestContext[Broker]) -> Answer[DescribeGroupsResponse]:
    return decided(
        context,
        AclOperation.DESCRIBE,
        ResourceType.GROUP,
        request.groups,
        lambda denied: _describe_allowed(request, context, denied),
    )


def _describe_allowed(
    request: DescribeGroupsRequest, context: RequestContext[Broker], denied: Collection[str]
) -> Worked[DescribeGroupsResponse]:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response = DescribeGroupsResponse(
        groups=[undescribed(each, code) for each in dict.fromkeys(request.groups) if each in denied]
    )
    names = [each for each in dict.fromkeys(request.groups) if each not in denied]
    if len(names) > GROUPS_PER_TURN:
        return _describe_in_slices(names, response, request, context)
    _describe(names, response, request, context)
    return response


async def _describe_in_slices(
    names: list[str],
    response: DescribeGroupsResponse,
    request: DescribeGroupsRequest,
    context: RequestContext[Broker],
) -> DescribeGroupsResponse:
    for start in range(0, len(names), GROUPS_PER_TURN):
        _describe(names[start : start + GROUPS_PER_TURN], response, request, context)
        await trio.lowlevel.checkpoint()
    return response


def _describe(
    names: list[str],
    response: DescribeGroupsResponse,
    request: DescribeGroupsRequest,
    context: RequestContext[Broker],
) -> None:
    """Add the descriptions of these groups."""
    request.groups = names
    described = groups_of(context.broker).classic.describe_groups(request, api_version=context.api_version).groups
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
    response.groups += described
