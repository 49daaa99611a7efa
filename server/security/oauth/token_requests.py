"""Requests to a server that gives out tokens, and its answers (RFC 6749, section 4.4); token files; unsigned tokens. Sans-IO but for files.

For a broker (`login_tokens.py`), or a command (`server/cli/client/oauth.py`). Neither secret nor token is ever in an error.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from ottla.server.security.oauth.bearer import TOKEN_CHARACTERS_MAX
from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    from ottla.server.config.login_rules import ClientCredentials, UnsecuredLogin

ROOM = 100  # for white space around it; what is longer is no token


def read_token_file(path: Path) -> str:
    """Read a token from a file that another program writes. Blocks. Raises OSError, whose strerror is set."""
    # A pipe or a device would block its reader for ever.
    if not path.is_file():
        raise OSError(None, "it is no file" if path.exists() else "there is no such file")
    with path.open("rb") as file:
        return file.read(TOKEN_CHARACTERS_MAX + ROOM).decode("latin-1")


# Statuses by which a server says that another attempt would end in the same way (Kafka's UNRETRYABLE_HTTP_CODES).
_LASTING = frozenset((*range(400, 408), 409, 410, 411, 413, 414, 415, 501, 505))
_ERROR = re.compile(r"[a-zA-Z_]{1,40}")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class FailedRetrieval(Exception):
    """Failure to retrieve a token; the text is for the log. `is_lasting`: another attempt would fail, too."""

    def __init__(self, text: str, *, is_lasting: bool = True) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


def plain_token(text: str) -> str:
    """Strip spaces around a token. Raises FailedRetrieval if it is too long or has invalid characters."""
    text = text.strip()
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise FailedRetrieval(f"what came for a token has more than {TOKEN_CHARACTERS_MAX} characters")
    if not _TOKEN.fullmatch(text):
        raise FailedRetrieval("what came for a token is none")
    return text


def headers_of(source: ClientCredentials) -> list[tuple[str, str]]:
    """Return the headers of a token request, besides those of every request."""
    pair = (source.client_id, source.client_secret)
    identity, secret = map(quote_plus, pair) if source.encodes_header else pair
    credentials = base64.b64encode(f"{identity}:{secret}".encode()).decode()
    return [
        ("Authorization", f"Basic {credentials}"),
        ("Cache-Control", "no-cache"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]


def body_of(source: ClientCredentials) -> bytes:
    """Return the body of the token request."""
    # Kafka sends a scope as it is, so that two words need a + that somebody has put there.
    scope = "" if source.scope is None else f"&scope={quote_plus(source.scope, safe='+%')}"
    return f"grant_type=client_credentials{scope}".encode()


def token_of_answer(status: int, body: bytes) -> str:
    """Return the token in a response of the token endpoint. Raises FailedRetrieval."""
    if status in (200, 201):
        return token_of(body)
    raise FailedRetrieval(f"the server answers with status {status}{_error(body)}", is_lasting=status in _LASTING)


def token_of(body: bytes) -> str:
    """Return the token in the body of a response. Raises FailedRetrieval."""
    found = _object(body)
    for name in ("access_token", "id_token"):
        value = found.get(name)
        if isinstance(value, str) and value.strip():
            return value
    raise FailedRetrieval("the server's answer holds no token")


def _error(body: bytes) -> str:
    """Return the reason in an error response, in brackets; empty if it has none (RFC 6749, section 5.2)."""
    try:
        said = _object(body).get("error")
    except FailedRetrieval:
        return ""
    return f" ({said})" if isinstance(said, str) and _ERROR.fullmatch(said) else ""


def _object(body: bytes) -> dict[str, object]:
    try:
        found = parse_json(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FailedRetrieval("the server's answer is no JSON object")
    return found


# ---------------------------------------------------------------------- tokens that nobody signs


def unsecured_token(source: UnsecuredLogin, now_ms: int) -> str:
    """Make an unsigned token as Kafka's OAuthBearerUnsecuredLoginCallbackHandler does."""
    times = {"exp": now_ms / 1000 + source.lifetime_s, "iat": now_ms / 1000}
    return f"{_part({'alg': 'none'})}.{_part({**times, **source.claims})}."


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
