"""Tokens of a command for OAUTHBEARER (RFC 7628): it waits for each, and asks an issuer once.

The settings are those of Kafka's clients, read as a broker reads its own (`server/config/login_rules.py`). A command takes
three things more: an address of tokens without sasl.login.callback.handler.class, librdkafka's names of a client's id and
secret, and extension_NAME beside unsecured tokens.

The answers of an issuer are bounded in time and in bytes, and redirects are not followed: they would take the secret somewhere
else. Neither secret nor token is ever printed. `server/security/oauth/token_requests.py` makes the requests to an issuer; Python's own
HTTP client sends them, because commands need no package.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.config.jaas import JaasEntry
from ottla.server.config.login_rules import (
    ENDPOINT_NAME,
    HANDLERS,
    UNSECURED_OPTION,
    TokenFile,
    UnsecuredLogin,
    oauth_login,
)
from ottla.server.config.sasl_config import LOGIN_HANDLER_NAME, OAUTHBEARER
from ottla.server.security.oauth.bearer import OAuthBearerClient
from ottla.server.security.oauth.token_requests import (
    FailedRetrieval,
    body_of,
    headers_of,
    plain_token,
    read_token_file,
    token_of_answer,
    unsecured_token,
)
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    import ssl

    from ottla.server.config.login_rules import ClientCredentials, OAuthLogin
    from ottla.server.config.security_config import TlsConfig

ANSWER_BYTES_MAX = 1024 * 1024
KEPT_S = 60.0
"""Time for which a token is used for further connections."""

_EXTENSION = "extension_"
_LIBRDKAFKAS = {
    f"sasl.oauthbearer.client.{each}": f"sasl.oauthbearer.client.credentials.client.{each}" for each in ("id", "secret")
}

Find = Callable[[float], str]
"""Find a token within so many seconds. Raises RequestFailed."""


@dataclass(slots=True)
class TokenLogin:
    """Login by OAUTHBEARER. `find` gets a new token when a connection is opened and the last token is too old."""

    find: Find = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanism: str = OAUTHBEARER
    _token: str = field(default="", repr=False)
    _until_s: float = 0.0

    def client(self, timeout_s: float) -> OAuthBearerClient:
        """Return the client side of one SASL exchange. Raises RequestFailed if no token comes within `timeout_s`."""
        if not self._token or time.monotonic() >= self._until_s:
            self._token = checked(self.find(timeout_s))
            self._until_s = time.monotonic() + KEPT_S
        return OAuthBearerClient(self._token, self.extensions)


def token_login(
    texts: Mapping[str, str], jaas: JaasEntry | None, context: Callable[[TlsConfig], ssl.SSLContext]
) -> TokenLogin:
    """Make the login from client settings and a JAAS entry. `context`: for https token endpoints. Raises UsageError."""
    options = {} if jaas is None else jaas.options
    try:
        login = oauth_login(_as_kafkas(texts, options), "", JaasEntry("", "required", _with_extensions(options)))
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    return TokenLogin(_find(login, context), login.extensions)


def _as_kafkas(texts: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's settings to Kafka's; add the callback handler of a token endpoint. Raises UsageError."""
    found = {ours: texts[each] for each, ours in _LIBRDKAFKAS.items() if each in texts}
    if ENDPOINT_NAME in texts:
        found[LOGIN_HANDLER_NAME] = HANDLERS[0]
    elif LOGIN_HANDLER_NAME not in texts and not any(each.startswith(UNSECURED_OPTION) for each in options):
        raise UsageError(
            f"{OAUTHBEARER} needs {ENDPOINT_NAME}, or {UNSECURED_OPTION}StringClaim_sub in sasl.jaas.config"
        )
    return {**found, **texts}


def _with_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Add each SASL extension under two names. Kafka reads one for tokens from an issuer, one for unsecured tokens."""
    both = {
        f"{UNSECURED_OPTION}Extension_{name.removeprefix(_EXTENSION)}": text
        for name, text in options.items()
        if name.startswith(_EXTENSION)
    }
    return {**both, **options}


def _find(login: OAuthLogin, context: Callable[[TlsConfig], ssl.SSLContext]) -> Find:
    source = login.source
    if isinstance(source, UnsecuredLogin):
        return lambda timeout_s: unsecured_token(source, time.time_ns() // 1_000_000)
    if isinstance(source, TokenFile):
        return lambda timeout_s: _of_file(Path(source.path))
    encryption = None if source.tls is None else context(source.tls)
    return lambda timeout_s: _of_issuer(source, encryption, timeout_s)


def checked(token: str) -> str:
    """Return the token if its form is valid; otherwise raise RequestFailed."""
    try:
        return plain_token(token)
    except FailedRetrieval:
        raise RequestFailed("what was found as a token for OAUTHBEARER is none") from None


def _of_file(path: Path) -> str:
    try:
        return read_token_file(path)
    except OSError as error:
        raise RequestFailed(f"cannot read the token in {path}: {error.strerror}") from None


# ---------------------------------------------------------------------- of an issuer


def _of_issuer(source: ClientCredentials, context: ssl.SSLContext | None, timeout_s: float) -> str:
    """Return a token from the issuer. Raises RequestFailed after `timeout_s` seconds.

    A daemon thread requests the token, because the response may come very slowly.
    """
    parts = urlsplit(source.url)
    issuer = f"the issuer of tokens at {parts.scheme}://{parts.hostname}"
    found: list[tuple[int, bytes] | str] = []
    thread = threading.Thread(target=lambda: found.append(_asked(source, context, timeout_s)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        raise RequestFailed(f"{issuer} does not answer within {timeout_s:.1f} s")
    answer = found[0]
    if isinstance(answer, str):
        raise RequestFailed(f"{issuer} cannot be asked: {answer}")
    try:
        return token_of_answer(*answer)
    except FailedRetrieval as failure:
        raise RequestFailed(f"{issuer} answers without an access_token: {failure}") from None


def _asked(source: ClientCredentials, context: ssl.SSLContext | None, timeout_s: float) -> tuple[int, bytes] | str:
    """Return the status and body of the issuer's response, or a text with the reason why there is none."""
    import http.client  # here, as files need no HTTP

    parts = urlsplit(source.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "User-Agent": "ottla", **dict(headers_of(source))}
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(host, parts.port or 80, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(host, parts.port or 443, timeout=timeout_s, context=context)
    try:
        connection.request("POST", target, body_of(source), headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__)
    finally:
        connection.close()
