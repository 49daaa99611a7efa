"""JSON Web Tokens (RFC 7519) in their compact form: three parts of base64url, `header.claims.signature`. Sans-IO.

A token is read strictly: one JSON object for header and claims each, no name twice, no padding, no NaN. What it costs is
bounded by its length, which `bearer.py` bounds.

`UnsecuredTokens` accepts unsigned tokens (`alg` none), for tests: anybody can say to be anybody. Its rules are those of
Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, in force only where the operator has asked for them
(`server/config/token_rules.py`).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    from ottla.server.config.token_rules import UnsecuredTokenRules

NAME_LENGTH_MAX = 1_000
EXPIRES_S_MAX = 253_402_300_799
"""The end of the year 9999: later is as good as never."""

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
}
"""Algorithms that tokens may be signed by: those with a public key (RFC 7518, section 3.1), and no other.

Algorithm -> the kind of key that it takes, and on which curve.
"""

_PART = re.compile(r"[A-Za-z0-9_-]*")
_WITHOUT_CONTROLS = re.compile(r"[^\x00-\x1f\x7f]*")


class InvalidToken(Exception):
    """Rejection of a token. The text is for the log, and does not quote the token.

    `status` and `scope` are for the client (RFC 7628, section 3.2.2).
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status, self.scope = status, scope


class ValidToken(NamedTuple):
    """Content of a valid token: user name, and expiry in ms since 1970."""

    name: str
    expires_ms: int


class TokenParts(NamedTuple):
    """Decoded parts of a token, not verified."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signature: str


def take_apart(token: str) -> TokenParts:
    """Decode a token into its parts, without verifying it. Raises InvalidToken."""
    parts = token.split(".", 3)
    if len(parts) != 3:
        raise InvalidToken("the token has not three parts")
    return TokenParts(_object(parts[0], "header"), _object(parts[1], "claims"), parts[2])


def _object(part: str, what: str) -> Mapping[str, Any]:
    if not _PART.fullmatch(part) or len(part) % 4 == 1:
        raise InvalidToken(f"the token's {what} is not base64url")
    try:
        # urlsafe_b64decode would skip what it does not know, but nothing of that is left.
        text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
        found = parse_json(text, object_pairs_hook=_without_doubles, parse_constant=_no_constant)
    except ValueError:
        raise InvalidToken(f"the token's {what} is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidToken(f"the token's {what} is no JSON object")
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_constant(_: str) -> NoReturn:
    raise ValueError("JSON has no such number")


def seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the time in a token's claim, in seconds since 1970; None if it is missing. Raises InvalidToken."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"the token's claim {name} is no number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidToken(f"the token's claim {name} is out of range")
    return found


def user_name(claims: Mapping[str, Any], claim: str) -> str:
    """Return the user name in the claim named `claim`. Raises InvalidToken."""
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken("the token names no user in the claim that has to")
    name = value.strip()
    # Others read it in the log, and in answers of limited length. A half of a surrogate pair cannot be sent at all.
    if len(name) > NAME_LENGTH_MAX or not _WITHOUT_CONTROLS.fullmatch(name) or not _is_text(name):
        raise InvalidToken("the token names a user whose name is too long, or holds what is no text")
    return name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def expires_ms(expires_s: float) -> int:
    """Convert seconds since 1970 to ms, limited to the representable range."""
    return round(min(max(expires_s, 0), EXPIRES_S_MAX) * 1000)


# ---------------------------------------------------------------------- unsigned tokens


class UnsecuredTokens:
    """Validator of unsigned tokens, called as `UnsecuredTokens(rules)(token, now_ms)`. Raises InvalidToken."""

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
