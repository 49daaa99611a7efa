"""DeleteGroups: delete empty groups together with their offsets.

Behaviour
* Each group has an error of its own: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or why it cannot be reached here.
* Groups that the client may not delete are GROUP_AUTHORIZATION_FAILED, behind the others.
"""

from collections.abc import Collection

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import completed, decided
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, context: RequestContext[Broker]) -> Answer[DeleteGroupsResponse]:
    def delete(denied: Collection[str]) -> Answer[DeleteGroupsResponse]:
        refused = [each for each in dict.fromkeys(request.groups_names) if each in denied]
        if refused:
            request.groups_names = [each for each in request.groups_names if each not in denied]
        answer = groups_of(context.broker).administration.delete_groups(request)
        return completed(answer, lambda response: _with(response, refused)) if refused else answer

    return decided(context, AclOperation.DELETE, ResourceType.GROUP, request.groups_names, delete)


def _with(response: DeleteGroupsResponse, refused: list[str]) -> DeleteGroupsResponse:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.results += [DeletableGroupResult(group_id=each, error_code=code) for each in refused]
    return response
