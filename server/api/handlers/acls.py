"""Rules of the authorizer: CreateAcls, DescribeAcls and DeleteAcls."""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.cluster.acl_store import AclStore
from ottla.server.dispatch.access import AclOperation, ResourceType, refusal_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.acl_znodes import can_be_stored
from ottla.server.security.acls import Acl, AclFilter, Entry, Pattern, PatternType, Permission, coded, problem_with
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.wire.time_slice import TimeSlice

CHANGES_MAX = REMOVED_MAX = 10_000  # Kafka's QuorumController.MAX_RECORDS_PER_USER_OP


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, context: RequestContext[Broker]) -> CreateAclsResponse:
    """CreateAcls: add ACL rules to the authorizer.

    Behaviour
    * The client needs the right to alter the cluster; otherwise each rule gets CLUSTER_AUTHORIZATION_FAILED. Without an
      authorizer each rule gets SECURITY_DISABLED.
    * Each rule is validated separately (`server/security/acls.py` has the reasons). Creating an existing rule is no
      error. A rule with ANY or MATCH gets INVALID_REQUEST; KRaft then refuses the whole request with
      UNKNOWN_SERVER_ERROR.
    * When the response is sent, the rules are stored and in force at this broker; the other brokers follow within a
      moment.
    * Resource names become names of nodes in the coordination tree. So a name with a slash, or with characters that
      ZooKeeper rejects in a path, gets INVALID_REQUEST, as in Kafka 3.9 with ZooKeeper. KRaft accepts such names.
    * More than 10,000 rules in one request get POLICY_VIOLATION, and so do rules beyond 100,000 in total.
    * A rule with an enum value of 0, which has no meaning, closes the connection, as in Kafka.
    """
    for each in request.creations:
        if not (each.resource_type and each.resource_pattern_type and each.operation and each.permission_type):
            raise CloseConnection("CreateAcls with elements of type UNKNOWN")
    try:
        acls = _changeable(context, "CreateAcls")
        if len(request.creations) > CHANGES_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    except KafkaError as error:
        return CreateAclsResponse(results=[_creation_result(error)] * len(request.creations))
    time_slice = TimeSlice()
    wanted: list[Acl | str] = []
    for each in request.creations:
        wanted.append(_checked_creation(each))
        await time_slice.yield_if_over()
    outcomes = iter(await acls.add([each for each in wanted if isinstance(each, Acl)]))
    return CreateAclsResponse(
        results=[
            _creation_result(next(outcomes) if isinstance(each, Acl) else KafkaError(ErrorCode.INVALID_REQUEST, each))
            for each in wanted
        ]
    )


def _changeable(context: RequestContext[Broker], api: str) -> AclStore:
    """Return the store of ACLs that the client may change.

    Raises KafkaError if there is no authorizer, or the client has no right to alter the cluster.
    """
    denied = refusal_on_cluster(context, AclOperation.ALTER, api)
    if denied is not None:
        raise denied
    acls = context.broker.member.acls
    if acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return acls


def _checked_creation(creation: AclCreation) -> Acl | str:
    """Return the rule to create, or a text that says why it is invalid."""
    acl = Acl(
        Pattern(
            coded(ResourceType, creation.resource_type),
            coded(PatternType, creation.resource_pattern_type),
            creation.resource_name,
        ),
        Entry(
            creation.principal,
            creation.host,
            coded(AclOperation, creation.operation),
            coded(Permission, creation.permission_type),
        ),
    )
    problem = problem_with(acl)
    if problem is None and not can_be_stored(acl.pattern.name):
        return f"ACL binding contains invalid resource name: {acl.pattern.name}"
    return acl if problem is None else problem


def _creation_result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message="")
    return AclCreationResult(error_code=error.code, error_message=error.message)


@handles(DescribeAclsRequest)
async def describe_acls(request: DescribeAclsRequest, context: RequestContext[Broker]) -> DescribeAclsResponse:
    """DescribeAcls: list the authorizer's rules that match a filter.

    Behaviour
    * The client needs the right to describe the cluster. Without an authorizer the response is SECURITY_DISABLED.
    * A filter of pattern type MATCH finds all patterns that apply to the named resource. ANY and null match everything.
    * An enum value that Kafka does not define matches nothing; 0 (UNKNOWN) closes the connection, as in Kafka.
    * Any broker answers, from its copy of the rules, which may lack the changes of the last moment.
    """
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
                principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission
            )
            for entry in entries
        ],
    )


@handles(DeleteAclsRequest)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext[Broker]) -> DeleteAclsResponse:
    """DeleteAcls: delete the authorizer's rules that match filters.

    Behaviour
    * The client needs the right to alter the cluster; otherwise each filter gets CLUSTER_AUTHORIZATION_FAILED. Without
      an authorizer each filter gets SECURITY_DISABLED.
    * The result of each filter lists the rules that it matched, each with an error code. A rule that matches several
      filters is listed for each of them.
    * When the response is sent, this broker has deleted the rules; the other brokers follow within a moment.
    * A request that matches more than 10,000 rules, or 30,000 with repetitions, deletes nothing and gets
      INVALID_REQUEST. The same holds for a request with more than 10,000 filters.
    * A filter with an enum value that Kafka does not define gets INVALID_REQUEST; one with 0 (UNKNOWN) closes the
      connection, as in Kafka.
    """
    for each in request.filters:
        if not (each.resource_type_filter and each.pattern_type_filter and each.operation and each.permission_type):
            raise CloseConnection("DeleteAcls with elements of type UNKNOWN")
    try:
        acls = _changeable(context, "DeleteAcls")
        if len(request.filters) > REMOVED_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are more than {REMOVED_MAX} filters")
        filters = await each_in_slices(request.filters, _filter)
        removed = iter(await acls.remove([each for each in filters if each.problem is None], REMOVED_MAX))
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[_failed(error.code, error.message)] * len(request.filters))
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
