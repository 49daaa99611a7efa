"""Gets a token: from a server for a secret (RFC 6749, section 4.4), from a file, or made here and signed by nobody.

As Kafka's HttpJwtRetriever: a server that cannot be reached, or says that it is its own fault, is asked again for
sasl.login.retry.backoff.max.ms, with pauses that double. Neither secret nor token is ever in an error.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.server.auth.oauth.client_first import TOKEN_CHARACTERS_MAX
from ottla.server.settings.oauth_login_config import ClientCredentials, TokenFile

if TYPE_CHECKING:
    import ssl

    from ottla.server.settings.oauth_login_config import UnsecuredLogin

    Source = ClientCredentials | TokenFile | UnsecuredLogin

FOREVER_MS_MAX = 300_000
_PAUSE_S_MIN = 0.01
# Statuses by which a server says that another attempt would end in the same way (Kafka's UNRETRYABLE_HTTP_CODES).
_LASTING = frozenset((*range(400, 408), 409, 410, 411, 413, 414, 415, 501, 505)) - {408}
_ERROR = re.compile(r"[a-zA-Z_]{1,40}")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_reads = trio.CapacityLimiter(1)  # of its own: a disk that hangs holds nobody else


class FailedRetrieval(Exception):
    """There is no token; the text is for the log. `is_lasting`: nor will there be one if it is tried again."""

    def __init__(self, text: str, *, is_lasting: bool = True) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


async def retrieve(source: Source, context: ssl.SSLContext | None, now_ms: int) -> str:
    """A token, of which no more is known than that its characters are those of tokens. FailedRetrieval."""
    if isinstance(source, ClientCredentials):
        text = await _of_server(source, context)
    elif isinstance(source, TokenFile):
        text = await trio.to_thread.run_sync(_of_file, source.path, limiter=_reads, abandon_on_cancel=True)
    else:
        text = unsecured_token(source, now_ms)
    text = text.strip()
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise FailedRetrieval(f"what came for a token has more than {TOKEN_CHARACTERS_MAX} characters")
    if not _TOKEN.fullmatch(text):
        raise FailedRetrieval("what came for a token is none")
    return text


def _of_file(address: str) -> str:
    path = Path(address)
    try:
        # A pipe or a device would hold whoever reads it for ever.
        if not path.is_file():
            raise OSError(None, "there is no such file" if not path.exists() else "it is no file")
        with path.open("rb") as file:
            return file.read(TOKEN_CHARACTERS_MAX + 100).decode("latin-1")
    except (OSError, ValueError) as error:
        raise FailedRetrieval(f"{address} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def unsecured_token(source: UnsecuredLogin, now_ms: int) -> str:
    """As Kafka's OAuthBearerUnsecuredLoginCallbackHandler makes them."""
    times = {"exp": now_ms / 1000 + source.lifetime_s, "iat": now_ms / 1000}
    return f"{_part({'alg': 'none'})}.{_part({**times, **source.claims})}."


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


# ---------------------------------------------------------------------- of a server


async def _of_server(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    deadline = trio.current_time() + min(source.retry_backoff_max_ms, FOREVER_MS_MAX) / 1000
    attempts = 0
    while True:
        try:
            return await _asked(source, context)
        except FailedRetrieval as failure:
            attempts += 1
            doubled_ms = max(source.retry_backoff_ms, 0) << min(attempts - 1, 30)
            pause_s = max(_PAUSE_S_MIN, min(doubled_ms, FOREVER_MS_MAX) / 1000)
            if failure.is_lasting or trio.current_time() + pause_s > deadline:
                raise
        await trio.sleep(pause_s)


async def _asked(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    from ottla.server.auth.oauth.fetching import TIME_S, FailedRead, Limits, post  # here, as files need no HTTP

    secret = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    headers = [
        ("Authorization", f"Basic {secret}"),
        ("Cache-Control", "no-cache"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    limits = Limits(
        connect_s=TIME_S if source.connect_timeout_ms is None else max(source.connect_timeout_ms, 1) / 1000,
        read_s=TIME_S if source.read_timeout_ms is None else max(source.read_timeout_ms, 1) / 1000,
    )
    try:
        answer = await post(source.url, context, headers, _body(source), limits)
    except FailedRead as failure:
        raise FailedRetrieval(str(failure), is_lasting=False) from None
    except ImportError as error:  # as long as too many files are open
        raise FailedRetrieval(str(error), is_lasting=False) from None
    if answer.status not in (200, 201):
        reason = f"the server answers with status {answer.status}{_error(answer.body)}"
        raise FailedRetrieval(reason, is_lasting=answer.status in _LASTING)
    return token_of(answer.body)


def _body(source: ClientCredentials) -> bytes:
    from urllib.parse import quote_plus

    # Kafka sends a scope as it is, so that two words need a + that somebody has put there.
    scope = "" if source.scope is None else f"&scope={quote_plus(source.scope, safe='+%')}"
    return f"grant_type=client_credentials{scope}".encode()


def token_of(body: bytes) -> str:
    """The token in a server's answer. FailedRetrieval."""
    found = _object(body)
    for name in ("access_token", "id_token"):
        value = found.get(name)
        if isinstance(value, str) and value.strip():
            return value
    raise FailedRetrieval("the server's answer holds no token")


def _error(body: bytes) -> str:
    """What RFC 6749, section 5.2, has for a reason, if the answer has it."""
    try:
        said = _object(body).get("error")
    except FailedRetrieval:
        return ""
    return f" ({said})" if isinstance(said, str) and _ERROR.fullmatch(said) else ""


def _object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FailedRetrieval("the server's answer is no JSON object")
    return found
