"""Validation of signed tokens, as by Kafka's BrokerJwtValidator (KIP-768): signature, times, issuer, audience, user.

Only signatures with a public key count (`ALGORITHMS`): none, and never one with a shared secret, for which a public
key could be taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.security.oauth.tokens import (
    ALGORITHMS,
    InvalidToken,
    TokenParts,
    ValidToken,
    expires_ms,
    seconds,
    take_apart,
    user_name,
)

if TYPE_CHECKING:
    from ottla.server.config.token_rules import SignedTokenRules
    from ottla.server.security.oauth.key_sets import KeySet


class Keys(Protocol):
    """Interface of a source of an issuer's public keys. They may change while the broker runs."""

    @property
    def current(self) -> KeySet | None:
        """Public keys in force; None if none have been read yet."""

    def miss(self, key_id: str) -> None:
        """Ask for an early read of the keys, because a token names an unknown key."""


class SignedTokens:
    """Validator of signed tokens, called as `SignedTokens(rules, keys)(token, now_ms)`.

    Raises InvalidToken; or CloseConnection if no keys have been read yet, so that the client tries again.
    """

    def __init__(self, rules: SignedTokenRules, keys: Keys) -> None:
        self._rules, self._keys = rules, keys

    def __call__(self, token: str, now_ms: int) -> ValidToken:
        parts = take_apart(token)
        self._check_signature(token, parts)
        claims = parts.claims
        expires_s = self._check_times(claims, now_ms // 1000)
        self._check_issuer(claims.get("iss"))
        self._check_audience(claims.get("aud"))
        _check_scope(claims.get(self._rules.scope_claim))
        for name in ("sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise InvalidToken(f"the token's claim {name} is no text")
        return ValidToken(user_name(claims, self._rules.subject_claim), expires_ms(expires_s))

    def _check_signature(self, token: str, parts: TokenParts) -> None:
        algorithm, key_id = parts.header.get("alg"), parts.header.get("kid")
        if algorithm == "none" or not parts.signature:
            raise InvalidToken("the token is not signed")
        if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
            raise InvalidToken("the token's header is malformed")
        # What a token calls critical changes what it means, and nothing of that is known here.
        if "crit" in parts.header:
            raise InvalidToken("the token's header asks for something that is not served")
        if algorithm not in ALGORITHMS:
            raise InvalidToken("the token is signed by an algorithm that is not taken")
        keys = self._keys.current
        if keys is None:
            raise CloseConnection("the keys that tokens are signed with could not be read yet")
        key = keys.find(key_id, algorithm)
        if key is None:
            if key_id is not None:
                self._keys.miss(key_id)
            raise InvalidToken("no key that is known fits the token")
        if not key.has_signed(token):
            raise InvalidToken("the token's signature is wrong")

    def _check_times(self, claims: Mapping[str, Any], now_s: int) -> int:
        """Check a token's times in whole seconds, like Kafka's jose4j; return the expiry in s since 1970.

        Raises InvalidToken.
        """
        expires_s, issued_s, begins_s = (_whole(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_s is None or issued_s is None:
            raise InvalidToken("the token does not say when it was issued and when it expires")
        skew_s = self._rules.clock_skew_s
        if now_s - skew_s >= expires_s:
            raise InvalidToken("the token has expired")
        if expires_s < issued_s or (begins_s is not None and expires_s < begins_s):
            raise InvalidToken("the token expires before it begins")
        if begins_s is not None and now_s + skew_s < begins_s:
            raise InvalidToken("the token is not good yet")
        if expires_s < 0 or issued_s < 0:
            raise InvalidToken("the token's times are before 1970")
        return expires_s

    def _check_issuer(self, issuer: object) -> None:
        if issuer is not None and not isinstance(issuer, str):
            raise InvalidToken("the token's claim iss is no text")
        if self._rules.issuer is not None and issuer != self._rules.issuer:
            raise InvalidToken("the token is of another issuer")

    def _check_audience(self, audience: object) -> None:
        if not self._rules.audiences:
            return
        named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if not all(isinstance(each, str) for each in named) or set(self._rules.audiences).isdisjoint(named):
            raise InvalidToken("the token is for another audience")


def _whole(claims: Mapping[str, Any], name: str) -> int | None:
    found = seconds(claims, name)
    return None if found is None else int(found)


def _check_scope(scope: object) -> None:
    """Raise InvalidToken if a scope is malformed. A missing scope is valid, as in Kafka."""
    scopes = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    texts = [each.strip() for each in scopes if isinstance(each, str)]
    if len(texts) != len(scopes) or not all(texts) or len(set(texts)) != len(texts):
        raise InvalidToken("the token's scope is malformed")
