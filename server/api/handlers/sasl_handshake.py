"""SaslHandshake: choose a mechanism. Here it comes too late, or has no place at all.

Before authentication, and to authenticate anew, it is answered by `server/network/authentication.py`. What arrives here came on a
listener without SASL, or in a session that has no end or was authenticated anew less than a second ago: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MISPLACED = "it speaks SASL, and this listener does not; the client's security.protocol does not fit"


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext[object]) -> SaslHandshakeResponse:
    if not context.security_protocol.startswith("SASL"):
        context.complain(MISPLACED)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
