"""Mechanisms of SASL: the two sides of one exchange, and how it fails.

A SASL exchange or a TLS handshake fails with a reason that is sent to the peer, or with one that is only for the log. No text
ever holds a password, a token or a key, nor a user's name, which may be a password that was typed in the wrong place.

PLAIN (RFC 4616) is here as Kafka's PlainSaslServer has it: one message, `[authorization id] NUL name NUL password`. Sans-IO.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.wire.text import JAVA_REPLACE


class LoginRefused(Exception):
    """Refusal of a login, with a reason for the peer (Kafka's SaslAuthenticationException).

    `reason`: another text for the log, if the peer's contains, for instance, a name that the peer sent.
    """

    def __init__(self, told: str, *, reason: str | None = None) -> None:
        super().__init__(told)
        self.reason = reason or told


class LoginFailed(Exception):
    """Failure of a login. The peer is told only that its credentials are invalid (Kafka's SaslException)."""


class NotEncrypted(Exception):
    """Failure of the TLS handshake with another broker. The text names the reason and the remedy."""


class Login(NamedTuple):
    """Result of a client's login. `expires_ms`: end of its credentials in ms since 1970; None: they never expire.

    `by_token`: the client used a delegation token, which grants fewer rights than its owner has.
    """

    principal: str
    expires_ms: int | None = None
    by_token: bool = False


class ServerMechanism(Protocol):
    """Server side of one SASL exchange. If a method raises LoginRefused or LoginFailed, the exchange is over."""

    login: Login | None
    """Set when the exchange is complete."""

    refusal: str | None
    """Reason of a refusal, for the log, if the client has it already and sends the last message."""

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Process a token of the client; return the answer, perhaps empty. Raises LoginRefused or LoginFailed."""


class ClientMechanism(Protocol):
    """Client side of one SASL exchange."""

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Process a token of the server, at first empty; return the next token.

        Raises LoginFailed, for instance if the server has not proven its identity.
        """


USER_PREFIX = "user_"
TOKEN_BYTES_MAX = 16_384  # the RFC has 255 for each of the three texts


class PlainUsers:
    """Users and passwords in a JAAS entry (`user_alice="her password"`). Passwords are kept as keyed digests.

    The key belongs to this process. Comparing digests takes the same time for any password and for unknown names.
    """

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
    """Server side of one PLAIN login."""

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
    """Client side of one PLAIN login."""

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
