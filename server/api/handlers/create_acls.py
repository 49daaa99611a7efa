"""CreateAcls: add rules to the authorizer.

Behaviour
* Whoever may alter the cluster is answered, else every rule is CLUSTER_AUTHORIZATION_FAILED. Without an authorizer each is
  SECURITY_DISABLED.
* Each rule is judged for itself (`server/security/acls.py` has the reasons). One that is there already is no error.
  A rule with ANY or MATCH is INVALID_REQUEST; KRaft then refuses the whole request with UNKNOWN_SERVER_ERROR.
* The rules are kept and in force here when the answer goes out, and within a moment on the other brokers.
* The names of resources are those of nodes of the coordination tree, so a name with a slash, or with what ZooKeeper does not
  take in a path, is INVALID_REQUEST, as with Kafka 3.9 over ZooKeeper. KRaft takes them.
* More than 10,000 rules in one request are POLICY_VIOLATION, and so are rules beyond 100,000 in all.
* A rule with a number 0, which stands for nothing, closes the connection, as in Kafka.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, handles
from ottla.server.security.acl_znodes import can_be_stored
from ottla.server.security.acls import Acl, Entry, Pattern, PatternType, Permission, coded, problem_with
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.wire.time_slice import TimeSlice

CHANGES_MAX = 10_000  # Kafka's QuorumController.MAX_RECORDS_PER_USER_OP


@handles(CreateAclsRequest)
async def create_acls(request: CreateAclsRequest, context: RequestContext[Broker]) -> CreateAclsResponse:
    for each in request.creations:
        if not (each.resource_type and each.resource_pattern_type and each.operation and each.permission_type):
            raise CloseConnection("CreateAcls with elements of type UNKNOWN")
    if not may_on_cluster(context, AclOperation.ALTER):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Request CreateAcls needs ALTER permission.")
    acls = context.broker.member.acls
    if acls is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if len(request.creations) > CHANGES_MAX:
        return _refused(request, ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    time_slice = TimeSlice()
    wanted: list[Acl | str] = []
    for each in request.creations:
        wanted.append(_checked(each))
        await time_slice.yield_if_over()
    outcomes = iter(await acls.add([each for each in wanted if isinstance(each, Acl)]))
    return CreateAclsResponse(
        results=[
            _result(next(outcomes) if isinstance(each, Acl) else KafkaError(ErrorCode.INVALID_REQUEST, each))
            for each in wanted
        ]
    )


def _checked(creation: AclCreation) -> Acl | str:
    """Check a rule; returns it, or the reason why it is impossible."""
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


def _refused(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(KafkaError(code, message))] * len(request.creations))


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message="")
    return AclCreationResult(error_code=error.code, error_message=error.message)
