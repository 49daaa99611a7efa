"""SaslHandshake: choose a mechanism. Here it comes too late, or has no place at all.

Before authentication, and to authenticate anew, it is answered by `server/net/authentication.py`. What arrives here came on a
listener without SASL, or in a session that has no end or was authenticated anew less than a second ago: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext[object]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
