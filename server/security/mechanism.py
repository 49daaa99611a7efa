"""Mechanisms of SASL: the two sides of one exchange, and how it fails.

A SASL exchange or a TLS handshake fails with a reason that the peer is told, or with one that is only for the log. No text ever
holds a password, a token or a key, nor a user's name, which may be a password that was typed in the wrong place.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LoginRefused(Exception):
    """Refusal whose reason the peer is told (Kafka's SaslAuthenticationException).

    `reason` is for the log if the log must not hold what the peer is told, such as a name that the peer has given.
    """

    def __init__(self, told: str, *, reason: str | None = None) -> None:
        super().__init__(told)
        self.reason = reason or told


class LoginFailed(Exception):
    """Failure of which the peer is told only that its credentials are invalid (Kafka's SaslException)."""


class NotEncrypted(Exception):
    """Failed TLS handshake with another broker; the text says what is wrong and what to do."""


class Login(NamedTuple):
    """Authenticated client. `expires_ms`: end of its credentials, in ms since 1970 (None: never).

    `by_token`: with a delegation token, which has fewer rights than its owner.
    """

    principal: str
    expires_ms: int | None = None
    by_token: bool = False


class ServerMechanism(Protocol):
    """Server's side of one exchange. Its methods raise LoginRefused or LoginFailed, after which the exchange is over."""

    login: Login | None
    """Set when the exchange is complete."""

    refusal: str | None
    """Reason of a refusal, for the log, if the client has been told already and has the last word."""

    def step(self, token: bytes, now_ms: int) -> bytes:
        """The answer to a client's token; empty if there is nothing to say."""


class ClientMechanism(Protocol):
    """Client's side of one exchange."""

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """The next token for the server, given its answer; the first answer is empty. LoginFailed: it is not who it says."""
