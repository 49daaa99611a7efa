"""DescribeAcls: the rules of the authorizer that a filter finds.

Behaviour
* Whoever may describe the cluster is answered. Without an authorizer the answer is SECURITY_DISABLED.
* A filter of the type MATCH finds the patterns that the resource of its name falls under. ANY and null find whatever there is.
* A number that Kafka has no name for finds nothing; 0, its own number for that, closes the connection, as in Kafka.
* Any broker answers, from what it has heard of. That is all but the changes of the last moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import refusal_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, handles
from ottla.server.security.acls import AclFilter
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.security.acls import Entry, Pattern


@handles(DescribeAclsRequest)
async def describe_acls(request: DescribeAclsRequest, context: RequestContext[Broker]) -> DescribeAclsResponse:
    if not (
        request.pattern_type_filter and request.resource_type_filter and request.permission_type and request.operation
    ):
        raise CloseConnection("DescribeAcls with elements of type UNKNOWN")
    denied = refusal_on_cluster(context, AclOperation.DESCRIBE, "DescribeAcls")
    if denied is not None:
        return DescribeAclsResponse(error_code=denied.code, error_message=denied.message, resources=[])
    acls = context.broker.member.acls
    if acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
            resources=[],
        )
    found = await acls.matching(
        AclFilter.of_codes(
            (request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter),
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )
    )
    time_slice = TimeSlice()
    resources = []
    for pattern, entries in found.items():
        resources.append(_resource(pattern, entries))
        await time_slice.yield_if_over()
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message="", resources=resources)


def _resource(pattern: Pattern, entries: list[Entry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ],
    )
