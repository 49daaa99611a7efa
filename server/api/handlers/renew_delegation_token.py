"""RenewDelegationToken: let a token expire later (KIP-48).

Behaviour
* Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
* A token is named by its HMAC. One that this broker has not heard of is DELEGATION_TOKEN_NOT_FOUND.
* Only its owner and its renewers may renew a token (DELEGATION_TOKEN_OWNER_MISMATCH), and not after it has expired
  (DELEGATION_TOKEN_EXPIRED, which is told first).
* It expires after the period that the request names, at most delegation.token.expiry.time.ms, which a period of 0 or less
  means, too; and never after its greatest age. Kafka 3.9 takes longer periods, and 0 as they are.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.security.tokens.token import NO_TIME, may_ask
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext[Broker]
) -> RenewDelegationTokenResponse:
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
