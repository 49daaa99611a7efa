"""DescribeUserScramCredentials: which mechanisms users have SCRAM credentials for, and with how many iterations (KIP-554).

Behaviour
* Only for those who may describe the cluster.
* Null and an empty list mean all users that have any.
* A user that is named twice is DUPLICATE_RESOURCE, one without credentials RESOURCE_NOT_FOUND; each is told once.
* Any broker answers from what it has heard of, which is all but the changes of the last moment.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.scram_credentials import TYPES
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from ottla.server.security.scram_users import ScramUsers

TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
UNKNOWN = "Attempt to describe a user credential that does not exist: "


@handles(DescribeUserScramCredentialsRequest)
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext[Broker]
) -> DescribeUserScramCredentialsResponse:
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # Kafka answers once for each user that is asked for, without the name.
        nameless = DescribeUserScramCredentialsResult(user="", error_code=code, error_message=None, credential_infos=[])
        return DescribeUserScramCredentialsResponse(
            error_code=code, error_message=None, results=[nameless] * len(request.users or ())
        )
    users = context.broker.scram_users
    named = Counter(each.name for each in request.users or ()) or Counter(list(users))
    results = await each_in_slices(list(named), lambda name: _result(users, name, is_twice=named[name] > 1))
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message="", results=results)


def _result(users: ScramUsers, name: str, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    known = users.of(name)
    if is_twice:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, TWICE)
    if not known:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN)
    infos = [
        CredentialInfo(mechanism=number, iterations=known[mechanism].iterations)
        for number, mechanism in TYPES.items()
        if mechanism in known
    ]
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message="", credential_infos=infos
    )


def _refused(name: str, error: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    told = KafkaError(error, message + name).message  # which cuts a long name
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=told, credential_infos=[])
