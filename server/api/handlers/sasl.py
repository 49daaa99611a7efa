"""Authentication by SASL: SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MISPLACED = "it speaks SASL, and this listener does not; the client's security.protocol does not fit"


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext[object]) -> SaslHandshakeResponse:
    """SaslHandshake: refused with ILLEGAL_SASL_STATE.

    `server/network/authentication.py` answers handshakes of authentications and reauthentications. This handler gets
    the others: on listeners without SASL, and in sessions that never expire or were reauthenticated less than a second
    ago.
    """
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


TOO_LATE = "SaslAuthenticate request received after successful authentication"


@handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext[object]) -> SaslAuthenticateResponse:
    """SaslAuthenticate: refused with ILLEGAL_SASL_STATE, because no handshake preceded it.

    `server/network/authentication.py` answers the requests that follow a handshake.
    """
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE, auth_bytes=b"")
