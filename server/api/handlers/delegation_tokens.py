"""Delegation tokens (KIP-48): CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, ResourceType, may
from ottla.server.dispatch.context import ANONYMOUS, RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.security.tokens import NO_TIME, USER, Principal, may_ask
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.server.security.tokens import DelegationToken

RENEWERS_MAX = 1_000


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext[Broker]
) -> CreateDelegationTokenResponse:
    """CreateDelegationToken: create a token for logins on behalf of its owner (KIP-48).

    Behaviour
    * Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * The owner is who asks. For another one (version 3) the right to CreateTokens on that user is needed.
    * Renewers have to be users: else INVALID_PRINCIPAL_TYPE. The broker does not check that these users exist.
    * Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
    * A token is good for delegation.token.expiry.time.ms, and can be renewed up to the age that the request or
      delegation.token.max.lifetime.ms says. It is kept and good here when the answer goes out, and within a moment on
      the others.
    * What Kafka does not bound: there may be 20,000 tokens, 5,000 that the same principal has asked for, 1,000 renewers
      of one, names of 4,096 characters, and 64 KiB for all names of one. Beyond that it is POLICY_VIOLATION.
    """
    requester = Principal.of(context.principal)
    owner = requester
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            nobody = Principal.of(ANONYMOUS)  # as Kafka's exception
            return _refused_creation(ErrorCode.UNKNOWN_SERVER_ERROR, nobody, nobody)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    if not may_ask(context):
        return _refused_creation(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not may(context, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return _refused_creation(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    if len(request.renewers) > RENEWERS_MAX:
        return _refused_creation(ErrorCode.POLICY_VIOLATION, owner, requester)
    if any(each.principal_type != USER for each in request.renewers):
        return _refused_creation(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    tokens = context.broker.member.tokens
    if tokens is None:
        # Kafka's controller says this, which knows another number for no time.
        return _refused_creation(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, owner, requester, no_time=0)
    renewers = tuple([f"{USER}:{each.principal_name}" for each in request.renewers])
    try:
        token, hmac = await tokens.create(str(requester), str(owner), renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return _refused_creation(error.code, owner, requester, no_time=0)
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


def _refused_creation(
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


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext[Broker]
) -> RenewDelegationTokenResponse:
    """RenewDelegationToken: postpone a token's expiry (KIP-48).

    Behaviour
    * Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * A token is named by its HMAC. One that this broker has not heard of is DELEGATION_TOKEN_NOT_FOUND.
    * Only its owner and its renewers may renew a token (DELEGATION_TOKEN_OWNER_MISMATCH), and not after it has expired
      (DELEGATION_TOKEN_EXPIRED, which is checked first).
    * It expires after the period that the request names, at most delegation.token.expiry.time.ms, which a period of 0
      or less means, too; and never after its greatest age. Kafka 3.9 takes longer periods, and 0 as they are.
    """
    if not may_ask(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    tokens = context.broker.member.tokens
    try:
        if tokens is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        expires_ms = await tokens.renew(bytes(request.hmac), context.principal, request.renew_period_ms)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=0)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext[Broker]
) -> ExpireDelegationTokenResponse:
    """ExpireDelegationToken: change a token's expiry, or remove it at once (KIP-48).

    Behaviour
    * Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * A token is named by its HMAC. One that this broker has not heard of is DELEGATION_TOKEN_NOT_FOUND.
    * Only its owner and its renewers may do this: else DELEGATION_TOKEN_OWNER_MISMATCH.
    * A negative period removes the token, also one that has expired. Otherwise it expires after that period, and at
      most at its greatest age; one that has expired already is DELEGATION_TOKEN_EXPIRED.
    * Clients that are logged in by a token stay so until the time at which it was to expire when they logged in, as in
      Kafka.
    """
    if not may_ask(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    tokens = context.broker.member.tokens
    try:
        if tokens is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        expires_ms = await tokens.expire(bytes(request.hmac), context.principal, request.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=0)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext[Broker]
) -> DescribeDelegationTokenResponse:
    """DescribeDelegationToken: describe existing tokens (KIP-48).

    Behaviour
    * Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
    * Null selects the tokens of all owners, an empty list selects none. Others are those that the named principals own,
      have asked for or may renew.
    * Of these a client is told its own in the same sense. For others it needs the right to Describe that token, or to
      DescribeTokens of the user who owns it. The rest is left out.
    * Tokens that have expired are listed until they are removed.
    * Any broker answers from its own copy of the stored values, which may lag behind by a moment.
    """
    if not may_ask(context):
        return _refused_description(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    tokens = context.broker.member.tokens
    if tokens is None:
        return _refused_description(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    time_slice = TimeSlice()
    if request.owners is not None:
        owners = set()
        for each in request.owners:
            owners.add(f"{each.principal_type}:{each.principal_name}")
            await time_slice.yield_if_over()
    told = []
    table = tokens.table
    # As they are now: others may come and go in between.
    for token in list(table) if owners is None or owners else ():
        if _is_told(context, token, owners) and table.get(token.token_id) is not None:
            told.append(_described(token, table.hmac(token.token_id)))
        await time_slice.yield_if_over()
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=told)


def _is_told(context: RequestContext[Broker], token: DelegationToken, owners: Collection[str] | None) -> bool:
    if owners is not None and not token.concerns(owners):
        return False
    if token.concerns((context.principal,)):
        return True
    ask = partial(may, context)
    return ask(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or ask(
        AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    owner, requester = Principal.of(token.owner), Principal.of(token.requester)
    renewers = [Principal.of(each) for each in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name) for each in renewers
        ],
    )


def _refused_description(code: ErrorCode) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])
