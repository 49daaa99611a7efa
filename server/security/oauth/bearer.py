"""OAUTHBEARER (RFC 7628) as Kafka's OAuthBearerSaslServer and OAuthBearerSaslClient have it. Sans-IO.

    first   the client's token -> nothing, and it is complete; or why not, as JSON: {"status":"invalid_token"}
    then    the byte 1, by which the client says that it has heard -> refused in the same words

Kafka would take another token in place of that byte; here each token that is wrong costs a connection, as a wrong password.

First message of the client (RFC 7628, section 3.1; Kafka's OAuthBearerClientInitialResponse)
    n,[a=authorization id],^A auth=Bearer <token> ^A [key=value ^A ...] ^A        ^A is the byte 1, and there are no spaces
Extensions (KIP-342) are checked for their form and then left: nothing in Ottla asks for them, and Kafka's handlers take
each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.server.security.mechanism import Login, LoginFailed, LoginRefused
from ottla.server.security.oauth.tokens import InvalidToken, ValidToken

TOKEN_CHARACTERS_MAX = 65_536
"""Length limit of a token; Kafka takes what fits into a frame. The longest in use have some 16 KiB, as much as a header of HTTP."""

MESSAGE_BYTES_MAX = 2 * TOKEN_CHARACTERS_MAX
PAIRS_MAX = 1_000

_SEPARATOR = "\x01"
_AUTH = "auth"
# =2C and =3D stay as they are, as in Kafka.
_HEADER = re.compile(r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D){1,1000}))?,\x01")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_SCHEME = re.compile(r"[A-Za-z0-9_]+")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class ClientFirst(NamedTuple):
    """Parsed first message of a client. `authorization_id`: empty if the client sent none."""

    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "ClientFirst()"  # a token opens doors


def decode_client_first(data: bytes) -> ClientFirst:
    """Parse a client's first message. Raises LoginFailed with a text that does not quote the message."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise LoginFailed(f"a token of {len(data)} bytes")
    text = data.decode("latin-1")  # what is not ASCII fits nowhere below
    header = _HEADER.match(text)
    if header is None or not text.endswith(_SEPARATOR):
        raise LoginFailed("Invalid OAUTHBEARER client first message")
    auth = _pairs(text[header.end() : -1]).get(_AUTH)
    if auth is None:
        raise LoginFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    scheme, _, rest = auth.partition(" ")
    token = rest.lstrip(" ")
    if not _SCHEME.fullmatch(scheme) or not _TOKEN.fullmatch(token):
        raise LoginFailed("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if scheme.lower() != "bearer":
        raise LoginFailed("Invalid scheme in OAUTHBEARER client first message")
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise LoginFailed(f"a token of {len(token)} characters")
    return ClientFirst(token, header[1] or "")


def _pairs(text: str) -> dict[str, str]:
    """Parse key=value pairs; if a key is repeated, its last value counts, as in Kafka."""
    if not text:
        return {}
    if not text.endswith(_SEPARATOR):
        raise LoginFailed("Invalid OAUTHBEARER client first message")
    pairs = text[:-1].split(_SEPARATOR, PAIRS_MAX)
    if len(pairs) > PAIRS_MAX:
        raise LoginFailed("Invalid OAUTHBEARER client first message: too many extensions")
    found = {}
    for pair in pairs:
        matched = _PAIR.fullmatch(pair)
        if matched is None:
            raise LoginFailed("Invalid OAUTHBEARER client first message")
        found[matched[1]] = matched[2]
    return found


# ---------------------------------------------------------------------- the server's side


Judge = Callable[[str, int], ValidToken]
"""Validator of tokens: takes a token and the time in ms since 1970. Raises InvalidToken, or CloseConnection if the token cannot
be checked now."""

_HEARD = b"\x01"


class OAuthBearerServer:
    """Server side of one OAUTHBEARER login. `judge` validates the client's token."""

    def __init__(self, judge: Judge) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._judge = judge
        self._told = ""

    def step(self, token: bytes, now_ms: int) -> bytes:
        if self.refusal is not None:
            if token != _HEARD:
                raise LoginFailed(f"{self.refusal}; and another token after it")
            raise LoginRefused(self._told, reason=self.refusal)
        first = decode_client_first(token)
        try:
            valid = self._judge(first.token, now_ms)
        except InvalidToken as invalid:
            self.refusal, self._told = str(invalid), _as_json(invalid)
            return self._told.encode()
        if first.authorization_id not in ("", valid.name):
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({first.authorization_id})"
                f" that is different from the token's principal name ({valid.name})",
                reason="the client asks for another authorization id than its token's",
            )
        self.login = Login(f"User:{valid.name}", valid.expires_ms)
        return b""


def _as_json(invalid: InvalidToken) -> str:
    """Format a refusal as JSON, in Kafka's layout. The scope needs no escapes."""
    scope = "" if invalid.scope is None else f', "scope":"{invalid.scope}"'
    return f'{{"status":"{invalid.status}"{scope}}}'


# ---------------------------------------------------------------------- the client's side


class OAuthBearerClient:
    """Client side of one OAUTHBEARER login.

    A server that rejects the token sends the reason. The client answers with the byte 1, then the login is over.
    """

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
