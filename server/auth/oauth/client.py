"""OAUTHBEARER (RFC 7628): the client's side of one login, as Kafka's OAuthBearerSaslClient has it. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.auth.refusals import LoginFailed

_SEPARATOR = "\x01"
_HEARD = b"\x01"


class OAuthBearerClient:
    """Shows a token. If it is refused, the server says why, and wants to be told that this was heard before it ends the login."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self.is_complete = False
        pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
        self._message = f"n,,{_SEPARATOR}{_SEPARATOR.join(pairs)}{_SEPARATOR}{_SEPARATOR}".encode()
        self._has_begun = self._is_refused = False

    def step(self, token: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return self._message
        if not token and not self._is_refused:
            self.is_complete = True
            return b""
        if self._is_refused:
            raise LoginFailed("the broker refuses the token, and goes on all the same")
        self._is_refused = True
        return _HEARD
