"""Groups of all types, as administrators see them: DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import trio

from ottla.groupcoord.classic.manager import undescribed
from ottla.groupcoord.runtime.answers import finished
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import (
    AclOperation,
    ResourceType,
    authorized_operations,
    completed,
    decided,
    denied_of,
    may_on_cluster,
)
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUPS_PER_TURN = 4


@handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, context: RequestContext[Broker]) -> Answer[DescribeGroupsResponse]:
    """DescribeGroups: describe state, protocol and members of groups.

    Behaviour
    * An unknown group gets GROUP_ID_NOT_FOUND since version 6; before, it is in state Dead, without an error.
    * Groups that the client may not describe get GROUP_AUTHORIZATION_FAILED; they come first.
    """
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
    names: list[str], response: DescribeGroupsResponse, request: DescribeGroupsRequest, context: RequestContext[Broker]
) -> DescribeGroupsResponse:
    for start in range(0, len(names), GROUPS_PER_TURN):
        _describe(names[start : start + GROUPS_PER_TURN], response, request, context)
        await trio.lowlevel.checkpoint()
    return response


def _describe(
    names: list[str], response: DescribeGroupsResponse, request: DescribeGroupsRequest, context: RequestContext[Broker]
) -> None:
    request.groups = names
    described = groups_of(context.broker).classic.describe_groups(request, api_version=context.api_version).groups
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
    response.groups += described


@handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, context: RequestContext[Broker]) -> Answer[ListGroupsResponse]:
    """ListGroups: list the groups that this broker coordinates.

    Behaviour
    * Filters by state (since version 4) and type (since version 5) ignore case; an unknown word matches nothing.
    * A client that may describe the cluster sees all groups; other clients see the groups that they may describe.
    """
    answer = groups_of(context.broker).list_groups(request)
    if may_on_cluster(context, AclOperation.DESCRIBE, quietly=True):
        return answer
    return _allowed(answer, context)


async def _allowed(answer: Any, context: RequestContext[Broker]) -> ListGroupsResponse:
    response: ListGroupsResponse = await finished(answer)
    names = (group.group_id for group in response.groups)
    denied = await denied_of(context, AclOperation.DESCRIBE, ResourceType.GROUP, names, quietly=True)
    response.groups = [group for group in response.groups if group.group_id not in denied]
    return response


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, context: RequestContext[Broker]) -> Answer[DeleteGroupsResponse]:
    """DeleteGroups: delete empty groups together with their offsets.

    Behaviour
    * Each group has an error code of its own: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or a coordinator's error.
    * Groups that the client may not delete get GROUP_AUTHORIZATION_FAILED; they come last.
    """

    def delete(denied: Collection[str]) -> Answer[DeleteGroupsResponse]:
        refused = [each for each in dict.fromkeys(request.groups_names) if each in denied]
        if refused:
            request.groups_names = [each for each in request.groups_names if each not in denied]
        answer = groups_of(context.broker).delete_groups(request)
        return completed(answer, lambda response: _with(response, refused)) if refused else answer

    return decided(context, AclOperation.DELETE, ResourceType.GROUP, request.groups_names, delete)


def _with(response: DeleteGroupsResponse, refused: list[str]) -> DeleteGroupsResponse:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.results += [DeletableGroupResult(group_id=each, error_code=code) for each in refused]
    return response
