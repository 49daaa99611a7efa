"""How a SASL exchange fails: with a reason that the peer is told, or with one that is only for the log.

Neither text ever holds a password, a token or a key, nor a user's name, which may be a password that was typed in the wrong
place.
"""

from __future__ import annotations


class LoginRefused(Exception):
    """The peer is told why (Kafka's SaslAuthenticationException)."""


class LoginFailed(Exception):
    """The peer is told that its credentials are invalid and nothing else (Kafka's SaslException)."""
