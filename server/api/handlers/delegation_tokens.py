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
    * The client must be authenticated, and not by a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * The owner is the client. Since version 3 a request may name another owner; the client then needs the right to
      CreateTokens on this user.
    * Renewers must be users: else INVALID_PRINCIPAL_TYPE. The broker does not check that these users exist.
    * Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
    * A token expires after delegation.token.expiry.time.ms. It can be renewed up to the maximum lifetime, which the
      request or delegation.token.max.lifetime.ms sets. When the response is sent, the token is stored and valid at this
      broker; the other brokers follow within a moment.
    * Limits, which Kafka does not have: 20,000 tokens in total, 5,000 requested by one principal, 1,000 renewers of a
      token, 4,096 characters in a name, and 64 KiB for all names of a token. Beyond these the request gets
      POLICY_VIOLATION.
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


def _no_expiry(context: RequestContext[Broker]) -> int:
    """Return the expiry of a refused change: that of Kafka 4.4, or of 3.9 in the version that only 3.9 has."""
    return NO_TIME if context.api_version == 0 else 0


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext[Broker]
) -> RenewDelegationTokenResponse:
    """RenewDelegationToken: postpone a token's expiry (KIP-48).

    Behaviour
    * The client must be authenticated, and not by a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * A token is named by its HMAC. A token that this broker does not know gets DELEGATION_TOKEN_NOT_FOUND.
    * Only the token's owner and renewers may renew it (DELEGATION_TOKEN_OWNER_MISMATCH), and only before its expiry
      (DELEGATION_TOKEN_EXPIRED, which is checked first).
    * The new expiry is the request's period from now, but at most delegation.token.expiry.time.ms, and never beyond the
      token's maximum lifetime. A period of 0 or less stands for delegation.token.expiry.time.ms. Kafka 3.9 accepts
      longer periods, and does not treat 0 specially.
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
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_no_expiry(context))
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext[Broker]
) -> ExpireDelegationTokenResponse:
    """ExpireDelegationToken: change a token's expiry, or remove the token immediately (KIP-48).

    Behaviour
    * The client must be authenticated, and not by a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * A token is named by its HMAC. A token that this broker does not know gets DELEGATION_TOKEN_NOT_FOUND.
    * Only the token's owner and renewers may do this: else DELEGATION_TOKEN_OWNER_MISMATCH.
    * A negative period removes the token, even an expired one. Otherwise the token expires after this period, but not
      beyond its maximum lifetime; an expired token gets DELEGATION_TOKEN_EXPIRED.
    * As in Kafka, clients that are logged in by a token stay logged in until the expiry that the token had at their
      login.
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
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=_no_expiry(context))
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext[Broker]
) -> DescribeDelegationTokenResponse:
    """DescribeDelegationToken: describe existing tokens (KIP-48).

    Behaviour
    * The client must be authenticated, and not by a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    * Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
    * Null selects the tokens of all owners, an empty list selects none. A list of principals selects the tokens that
      they own, have requested or may renew.
    * A client sees the tokens that it owns, has requested or may renew. To see another token it needs the right to
      Describe this token, or to DescribeTokens of the token's owner. Other tokens are omitted.
    * Expired tokens are listed until they are removed.
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
