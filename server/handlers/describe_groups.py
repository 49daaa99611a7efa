"""DescribeGroups: state, protocol and members of groups.

Behaviour
* An unknown group is GROUP_ID_NOT_FOUND since version 6, and a group in state Dead without an error before.
* Without an authorizer everybody may do everything to a group.
"""

from __future__ import annotations

import trio

from ottla.server.gate.authorized_operations import GROUP_OPERATIONS
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

GROUPS_PER_TURN = 4


@handles(DescribeGroupsRequest, answers_at_length=True, few_at_once=True, reads_only=True)
def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext[HasGroups]
) -> Answer[DescribeGroupsResponse]:
    if len(request.groups) > GROUPS_PER_TURN:
        return _describe_in_turns(request, context)
    return _describe(request, context)


async def _describe_in_turns(request: DescribeGroupsRequest, context: RequestContext[HasGroups]) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse(groups=[])
    names = list(dict.fromkeys(request.groups))
    for start in range(0, len(names), GROUPS_PER_TURN):
        request.groups = names[start : start + GROUPS_PER_TURN]
        response.groups += _describe(request, context).groups
        await trio.lowlevel.checkpoint()
    return response


def _describe(request: DescribeGroupsRequest, context: RequestContext[HasGroups]) -> DescribeGroupsResponse:
    response = context.broker.groups.classic.describe_groups(request, api_version=context.api_version)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
