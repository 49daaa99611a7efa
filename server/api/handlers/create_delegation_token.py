"""CreateDelegationToken: make a token by which its owner logs in, for a time (KIP-48).

Behaviour
* Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
* The owner is who asks. For another one (version 3) the right to CreateTokens on that user is needed.
* Renewers have to be users: else INVALID_PRINCIPAL_TYPE. Whether there are such users nobody asks.
* Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
* A token is good for delegation.token.expiry.time.ms, and can be renewed up to the age that the request or
  delegation.token.max.lifetime.ms says. It is kept and good here when the answer goes out, and within a moment on the others.
* What Kafka does not bound: there may be 20,000 tokens, 5,000 that the same principal has asked for, 1,000 renewers of one, names
  of 4,096 characters, and 64 KiB for all names of one. Beyond that it is POLICY_VIOLATION.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import ANONYMOUS, RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.security.tokens.token import NO_TIME, USER, Principal, may_ask
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

RENEWERS_MAX = 1_000


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext[Broker]
) -> CreateDelegationTokenResponse:
    requester = Principal.of(context.principal)
    owner = requester
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            nobody = Principal.of(ANONYMOUS)  # as Kafka's exception
            return _refused(ErrorCode.UNKNOWN_SERVER_ERROR, nobody, nobody)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    if not may_ask(context):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not may(context, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return _refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    if len(request.renewers) > RENEWERS_MAX:
        return _refused(ErrorCode.POLICY_VIOLATION, owner, requester)
    if any(each.principal_type != USER for each in request.renewers):
        return _refused(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    tokens = context.broker.member.tokens
    if tokens is None:
        # Kafka's controller says this, which knows another number for no time.
        return _refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, owner, requester, no_time=0)
    renewers = tuple([f"{USER}:{each.principal_name}" for each in request.renewers])
    try:
        token, hmac = await tokens.create(str(requester), str(owner), renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return _refused(error.code, owner, requester, no_time=0)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
    )


def _refused(
    code: ErrorCode, owner: Principal, requester: Principal, *, no_time: int = NO_TIME
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=no_time,
        expiry_timestamp_ms=no_time,
        max_timestamp_ms=no_time,
        token_id="",
        hmac=b"",
    )
