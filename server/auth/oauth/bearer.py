"""OAUTHBEARER (RFC 7628) as Kafka's OAuthBearerSaslServer has it. Sans-IO.

    first   the client's token -> nothing, and it is complete; or why not, as JSON: {"status":"invalid_token"}
    then    the byte 1, by which the client says that it has heard -> refused in the same words

Kafka would take another token in place of that byte; here each token that is wrong costs a connection, as a wrong password.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.server.auth.mechanism import Login
from ottla.server.auth.oauth.client_first import decode_client_first
from ottla.server.auth.oauth.tokens import InvalidToken, ValidToken
from ottla.server.auth.refusals import LoginFailed, LoginRefused

Judge = Callable[[str, int], ValidToken]
"""Takes a token and the time in ms since 1970. Raises InvalidToken, or CloseConnection if nobody can tell now."""

_HEARD = b"\x01"


class OAuthBearerServer:
    """One login."""

    def __init__(self, judge: Judge) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._judge = judge
        self._told = ""

    def step(self, token: bytes, now_ms: int) -> bytes:
        if self.refusal is not None:
            if token != _HEARD:
                raise LoginFailed(f"{self.refusal}; and another token after it")
            raise LoginRefused(self._told, reason=self.refusal)
        first = decode_client_first(token)
        try:
            valid = self._judge(first.token, now_ms)
        except InvalidToken as invalid:
            self.refusal, self._told = str(invalid), _as_json(invalid)
            return self._told.encode()
        if first.authorization_id not in ("", valid.name):
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({first.authorization_id})"
                f" that is different from the token's principal name ({valid.name})",
                reason="the client asks for another authorization id than its token's",
            )
        self.login = Login(f"User:{valid.name}", valid.expires_ms)
        return b""


def _as_json(invalid: InvalidToken) -> str:
    """Kafka's own layout. A scope is made of characters that need no escape."""
    scope = "" if invalid.scope is None else f', "scope":"{invalid.scope}"'
    return f'{{"status":"{invalid.status}"{scope}}}'
