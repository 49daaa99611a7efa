"""JSON Web Tokens (RFC 7519) in their compact form: three parts of base64url, `header.claims.signature`. Sans-IO.

A token is read strictly: one JSON object for header and claims each, no name twice, no padding, no NaN. What it costs is
bounded by its length, which `client_first.py` bounds.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ottla.wire.foreign_json import parse_json

NAME_LENGTH_MAX = 1_000
EXPIRES_S_MAX = 253_402_300_799
"""The end of the year 9999: later is as good as never."""

_PART = re.compile(r"[A-Za-z0-9_-]*")
_WITHOUT_CONTROLS = re.compile(r"[^\x00-\x1f\x7f]*")


class InvalidToken(Exception):
    """A token that is not taken. The text is for the log, and holds nothing of the token.

    `status` and `scope` are what the client is told (RFC 7628, section 3.2.2).
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class ValidToken(NamedTuple):
    """Whom a token names, and until when it is good, in ms since 1970."""

    name: str
    expires_ms: int


class TokenParts(NamedTuple):
    """A token taken apart, of which nothing is known to be true."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signature: str


def take_apart(token: str) -> TokenParts:
    """Raises InvalidToken."""
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
    """A claim that is a time, in seconds since 1970; None if the token has none. Raises InvalidToken."""
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
    """The claim that names the user. Raises InvalidToken."""
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
    """Seconds since 1970 as ms, within what can be counted with."""
    return round(min(max(expires_s, 0), EXPIRES_S_MAX) * 1000)
