"""ExpireDelegationToken: let a token expire at another time, or remove it at once (KIP-48).

Behaviour
* Only for clients that are known, and by something other than a token: else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
* A token is named by its HMAC. One that this broker has not heard of is DELEGATION_TOKEN_NOT_FOUND.
* Only its owner and its renewers may do this: else DELEGATION_TOKEN_OWNER_MISMATCH.
* A negative period removes the token, also one that has expired. Otherwise it expires after that period, and at most at its
  greatest age; one that has expired already is DELEGATION_TOKEN_EXPIRED.
* Clients that are logged in by a token stay so until the time at which it was to expire when they logged in, as in Kafka.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.security.tokens.token import NO_TIME, may_ask
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext[Broker]
) -> ExpireDelegationTokenResponse:
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
