"""PLAIN (RFC 4616) as Kafka's PlainSaslServer has it: one message, `[authorization id] NUL name NUL password`. Sans-IO.

Passwords are kept and compared as digests under a key of this process, so a comparison takes as long whatever the password
is, and as long for a name that nobody has.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from ottla.server.security.mechanism import Login, LoginFailed, LoginRefused
from ottla.wire.text import JAVA_REPLACE

USER_PREFIX = "user_"
TOKEN_BYTES_MAX = 16_384  # the RFC has 255 for each of the three texts


class PlainUsers:
    """Users in the options of a JAAS line (`user_alice="her password"`), with digests of their passwords."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {
            name.removeprefix(USER_PREFIX): self._digest(password)
            for name, password in options.items()
            if name.startswith(USER_PREFIX)
        }
        self._nobodys = secrets.token_bytes(32)

    def is_known(self, name: str, password: str) -> bool:
        return hmac.compare_digest(self._digests.get(name, self._nobodys), self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


class PlainServer:
    """One login."""

    def __init__(self, users: PlainUsers) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._users = users

    def step(self, token: bytes, now_ms: int) -> bytes:
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginFailed(f"a token of {len(token)} bytes")
        # Kafka reads three texts, lets the third end at another NUL, and takes what is missing for empty.
        texts = [*token.decode("utf-8", JAVA_REPLACE).split("\0", 3), "", ""]
        authorization_id, name, password = texts[:3]
        if not name:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        if not self._users.is_known(name, password):
            raise LoginRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.login = Login(f"User:{name}")
        return b""


class PlainClient:
    """Client's side of one login."""

    def __init__(self, name: str, password: str) -> None:
        self.is_complete = False
        self._message = f"\0{name}\0{password}".encode("utf-8", "surrogatepass")
        self._has_begun = False

    def step(self, token: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return self._message
        self.is_complete = True
        return b""
