"""DescribeGroups: state, protocol and members of groups.

Behaviour
* An unknown group is GROUP_ID_NOT_FOUND since version 6, and a group in state Dead without an error before.
* Without an authorizer everybody may do everything to a group.
"""

from ottla.server.authorized_operations import AclOperation
from ottla.server.context import RequestContext
from ottla.server.dispatch import handles
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

GROUP_OPERATIONS = sum(
    1 << operation
    for operation in (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
"""The operations that exist for groups."""


@handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    response = context.broker.groups.describe_groups(request, api_version=context.api_version)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
