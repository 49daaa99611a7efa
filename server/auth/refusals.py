"""How a SASL exchange or a TLS handshake fails: with a reason that the peer is told, or with one that is only for the log.

No text ever holds a password, a token or a key, nor a user's name, which may be a password that was typed in the wrong
place.
"""

from __future__ import annotations


class LoginRefused(Exception):
    """The peer is told why (Kafka's SaslAuthenticationException).

    `reason` is for the log, where that is not to hear what the peer is told: a name that the peer has given.
    """

    def __init__(self, told: str, *, reason: str | None = None) -> None:
        super().__init__(told)
        self.reason = reason or told


class LoginFailed(Exception):
    """The peer is told that its credentials are invalid and nothing else (Kafka's SaslException)."""


class NotEncrypted(Exception):
    """This broker's handshake with another one came to nothing; the text says what is wrong and what to do."""
