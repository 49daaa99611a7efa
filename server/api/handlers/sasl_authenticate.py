"""SaslAuthenticate: one token of a SASL exchange. Here it comes without a handshake: ILLEGAL_SASL_STATE.

Before authentication, and behind the handshake of a new one, it is answered by `server/network/authentication.py`.
"""

from __future__ import annotations

from ottla.server.api.handlers.sasl_handshake import MISPLACED
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


@handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext[object]) -> SaslAuthenticateResponse:
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE, auth_bytes=b"")
