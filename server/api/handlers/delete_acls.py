"""DeleteAcls: remove the rules of the authorizer that filters find.

Behaviour
* Whoever may alter the cluster is answered, else every filter is CLUSTER_AUTHORIZATION_FAILED. Without an authorizer each is
  SECURITY_DISABLED.
* Each filter is answered with what it removed, and each rule has an error of its own. A rule that several filters find is
  told with each of them.
* The rules are gone when the answer goes out, and within a moment on the other brokers.
* A request that finds more than 10,000 rules, or 30,000 with repetitions, removes none: INVALID_REQUEST. So does one with more
  filters than 10,000.
* A filter with a number that Kafka has no name for is INVALID_REQUEST; one with 0 closes the connection, as in Kafka.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.acls import Acl, AclFilter
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

REMOVED_MAX = 10_000  # Kafka's QuorumController.MAX_RECORDS_PER_USER_OP


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext[Broker]) -> DeleteAclsResponse:
    for each in request.filters:
        if not (each.resource_type_filter and each.pattern_type_filter and each.operation and each.permission_type):
            raise CloseConnection("DeleteAcls with elements of type UNKNOWN")
    if not may_on_cluster(context, AclOperation.ALTER):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Request DeleteAcls needs ALTER permission.")
    acls = context.broker.member.acls
    if acls is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if len(request.filters) > REMOVED_MAX:
        return _refused(request, ErrorCode.INVALID_REQUEST, f"There are more than {REMOVED_MAX} filters")
    filters = await each_in_slices(request.filters, _filter)
    try:
        removed = iter(await acls.remove([each for each in filters if each.problem is None], REMOVED_MAX))
    except KafkaError as error:
        return _refused(request, error.code, error.message)
    return DeleteAclsResponse(
        filter_results=await each_in_slices(
            filters,
            lambda each: (
                _failed(ErrorCode.INVALID_REQUEST, each.problem)
                if each.problem
                else DeleteAclsFilterResult(
                    error_code=ErrorCode.NONE,
                    error_message=None,
                    matching_acls=[_matching(*one) for one in next(removed)],
                )
            ),
        )
    )


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    return AclFilter.of_codes(
        (asked.resource_type_filter, asked.resource_name_filter, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _matching(acl: Acl, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.entry.principal,
        host=acl.entry.host,
        operation=acl.entry.operation,
        permission_type=acl.entry.permission,
    )


def _failed(code: ErrorCode, message: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])


def _refused(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_failed(code, message)] * len(request.filters))
