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
    """SaslHandshake: refused after authentication, or on listeners without SASL.

    Before authentication, and for reauthentication, it is answered by `server/network/authentication.py`. What arrives
    here came on a listener without SASL, or in a session that has no end or was reauthenticated less than a second ago:
    ILLEGAL_SASL_STATE.
    """
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


TOO_LATE = "SaslAuthenticate request received after successful authentication"


@handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext[object]) -> SaslAuthenticateResponse:
    """SaslAuthenticate: refused with ILLEGAL_SASL_STATE, as no handshake preceded it.

    Before authentication, and behind the handshake of a new one, it is answered by `server/network/authentication.py`.
    """
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE, auth_bytes=b"")
