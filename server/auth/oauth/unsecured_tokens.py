"""Tokens that nobody has signed (`alg` none), for tests: anybody can say to be anybody.

Rules as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler has them. They are in force only where the operator has asked
for them (`server/settings/token_rules.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.server.auth.oauth.tokens import InvalidToken, ValidToken, expires_ms, seconds, take_apart, user_name

if TYPE_CHECKING:
    from ottla.server.settings.token_rules import UnsecuredTokenRules


class UnsecuredTokens:
    """Judges them: `UnsecuredTokens(rules)(token, now_ms)`. Raises InvalidToken."""

    def __init__(self, rules: UnsecuredTokenRules) -> None:
        self._rules = rules

    def __call__(self, token: str, now_ms: int) -> ValidToken:
        parts = take_apart(token)
        if parts.header.get("alg") != "none" or parts.signature:
            raise InvalidToken("the token is signed, and this listener takes unsigned ones only")
        name = user_name(parts.claims, self._rules.principal_claim)
        expires_s = self._check_times(parts.claims, now_ms)
        self._check_scope(parts.claims)
        return ValidToken(name, expires_ms(expires_s))

    def _check_times(self, claims: Mapping[str, Any], now_ms: int) -> float:
        skew_ms = self._rules.clock_skew_ms
        issued_s, expires_s = seconds(claims, "iat"), seconds(claims, "exp")
        if expires_s is None:
            raise InvalidToken("the token does not say when it expires")
        if issued_s is not None and 1000 * issued_s > now_ms + skew_ms:
            raise InvalidToken("the token is of the future")
        if now_ms - skew_ms >= 1000 * expires_s:
            raise InvalidToken("the token has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise InvalidToken("the token expires before it is issued")
        return expires_s

    def _check_scope(self, claims: Mapping[str, Any]) -> None:
        required = self._rules.required_scope
        found = claims.get(self._rules.scope_claim)
        # A text is one scope, also with spaces in it, as in Kafka.
        given = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        if not set(required) <= {each.strip() for each in given if isinstance(each, str)}:
            scope = f"[{', '.join(required)}]"
            raise InvalidToken("the token lacks a scope that is required", "insufficient_scope", scope)
