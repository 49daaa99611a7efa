"""DescribeDelegationToken: which tokens there are, with what logs in by them (KIP-48).

Behaviour
* Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
* Without delegation.token.secret.key there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED.
* Null means the tokens of everybody, an empty list those of nobody. Others are those that the named principals own, have asked
  for or may renew.
* Of these a client is told its own in the same sense. For others it needs the right to Describe that token, or to
  DescribeTokens of the user who owns it. The rest is left out.
* Tokens that have expired are told until they are removed.
* Any broker answers from what it has heard of, which is all but the changes of the last moment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.security.tokens.token import Principal, may_ask
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.server.security.tokens.token import DelegationToken


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext[Broker]
) -> DescribeDelegationTokenResponse:
    if not may_ask(context):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    tokens = context.broker.member.tokens
    if tokens is None:
        return _refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
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


def _refused(code: ErrorCode) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])
