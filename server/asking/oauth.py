"""How a command logs in by OAUTHBEARER (RFC 7628): where its token comes from, and what it says to a broker.

    sasl.oauthbearer.token.endpoint.url   file:// with the token in it, or http(s):// of an issuer, who is asked by a POST
    sasl.jaas.config                      clientId, clientSecret and scope for that; extension_NAME for the broker; or for brokers
                                          that take tokens without signature unsecuredLoginStringClaim_sub

The names are those of Kafka's OAuthBearerLoginModule. The answers of an issuer are bounded in time and in bytes, and redirects are
not followed: they would take the secret somewhere else. Neither secret nor token is ever printed.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from ottla.server.asking.failures import AskingFailed, WrongUse
from ottla.server.auth.refusals import LoginFailed

MECHANISM = "OAUTHBEARER"
ENDPOINT, URLENCODE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.header.urlencode"
UNSECURED_SUBJECT, EXTENSION = "unsecuredLoginStringClaim_sub", "extension_"
ANSWER_BYTES_MAX, TOKEN_BYTES_MAX = 1024 * 1024, 64 * 1024
KEPT_S, UNSECURED_S = 60.0, 3600
"""How long a token is used for further connections, and how long one without signature is good, as Kafka's."""
SEPARATOR = "\x01"
OK = 200
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME, _EXTENSION_TEXT = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")

Find = Callable[[float], str]
"""Finds a token within so many seconds. AskingFailed, WrongUse."""


@dataclass(slots=True)
class TokenLogin:
    """A login by tokens. `find` is asked for one when a connection is made and the last is too old."""

    find: Find = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanism: str = MECHANISM
    _token: str = field(default="", repr=False)
    _until_s: float = 0.0

    def client(self, timeout_s: float) -> TokenClient:
        """What a connection says. AskingFailed if there is no token within so many seconds."""
        if not self._token or time.monotonic() >= self._until_s:
            self._token = checked(self.find(timeout_s))
            self._until_s = time.monotonic() + KEPT_S
        return TokenClient(self._token, self.extensions)


class TokenClient:
    """One login."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self.is_complete = False
        pairs = [f"{name}={text}" for name, text in extensions.items()]
        self._first = SEPARATOR.join(["n,,", f"auth=Bearer {token}", *pairs, "", ""]).encode()
        self._has_begun = self._has_failed = False

    def step(self, challenge: bytes) -> bytes:
        """What to answer. A broker that refuses says why in JSON, and with an error when it has the answer to that."""
        if not self._has_begun:
            self._has_begun = True
            return self._first
        if not challenge:
            self.is_complete = True
            return b""
        if self._has_failed:
            raise LoginFailed("the broker neither takes nor refuses the token")
        self._has_failed = True
        return SEPARATOR.encode()


def token_login(texts: Mapping[str, str], options: Mapping[str, str], context: Callable[[], ssl.SSLContext]) -> TokenLogin:
    """As the settings and the options of the JAAS line want it. `context`: encrypts the way to an issuer. WrongUse."""
    extensions = {
        name.removeprefix(EXTENSION): text for name, text in options.items() if name.startswith(EXTENSION)
    }
    for name, text in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_TEXT.fullmatch(text):
            raise WrongUse(f"sasl.jaas.config: {EXTENSION}{name} must be letters, and its value printable ASCII")
    return TokenLogin(_find(texts, options, context), extensions)


def _find(texts: Mapping[str, str], options: Mapping[str, str], context: Callable[[], ssl.SSLContext]) -> Find:
    url = texts.get(ENDPOINT)
    if url is None:
        subject = options.get(UNSECURED_SUBJECT)
        if not subject:
            raise WrongUse(f"{MECHANISM} needs {ENDPOINT}, or {UNSECURED_SUBJECT} in sasl.jaas.config")
        return lambda timeout_s: unsecured(subject)
    try:
        parts = urlsplit(url)
        is_known = parts.scheme == "file" or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        is_known = False
    if not is_known:
        raise WrongUse(f"{ENDPOINT} must be a URL that begins with file://, http:// or https://")
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return lambda timeout_s: _of_file(path)
    names = ("clientId", "client.id"), ("clientSecret", "client.secret")
    identity, secret = (_option(texts, options, *each) for each in names)
    if not identity or not secret:
        raise WrongUse(f"{MECHANISM} needs clientId and clientSecret in sasl.jaas.config")
    if texts.get(URLENCODE, "false").lower() == "true":
        identity, secret = quote_plus(identity), quote_plus(secret)
    scope = _option(texts, options, "scope", "scope")
    form = "grant_type=client_credentials" + (f"&scope={quote(scope, safe='')}" if scope else "")
    authorization = "Basic " + base64.b64encode(f"{identity}:{secret}".encode()).decode()
    ask = _Issuer(url, form, authorization, context)
    return ask.token


def _option(texts: Mapping[str, str], options: Mapping[str, str], name: str, short: str) -> str | None:
    """Of the JAAS line, of Kafka's own setting for it (KIP-1139), or of librdkafka's."""
    known = (f"sasl.oauthbearer.client.credentials.{short}", f"sasl.oauthbearer.{short}")
    return options.get(name) or next((texts[each] for each in known if each in texts), None)


def checked(token: str) -> str:
    """A token as it was found. AskingFailed if it is none."""
    token = token.strip()
    if len(token) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(token):
        raise AskingFailed("what was found as a token for OAUTHBEARER is none")
    return token


def unsecured(subject: str) -> str:
    """A token without signature (RFC 7515, appendix A.5), for brokers that are tried out."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now_s, "exp": now_s + UNSECURED_S})
    return ".".join([base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts] + [""])


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(TOKEN_BYTES_MAX + 2).decode("ascii", "replace")
    except OSError as error:
        raise AskingFailed(f"cannot read the token in {path}: {error.strerror}") from None


class _Issuer:
    """Somebody who gives tokens for credentials (RFC 6749, section 4.4)."""

    def __init__(self, url: str, form: str, authorization: str, context: Callable[[], ssl.SSLContext]) -> None:
        self._parts, self._form, self._authorization, self._context = urlsplit(url), form, authorization, context
        self._name = f"{self._parts.scheme}://{self._parts.hostname}"

    def token(self, timeout_s: float) -> str:
        """An answer may come byte by byte, so a thread waits for it, which a process need not wait for."""
        found: list[bytes | AskingFailed | WrongUse] = []

        def ask() -> None:
            try:
                found.append(self._answer(timeout_s))
            except (AskingFailed, WrongUse) as failure:
                found.append(failure)
            except (OSError, http.client.HTTPException, UnicodeError) as error:
                said = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__
                found.append(AskingFailed(f"the issuer of tokens at {self._name} cannot be asked: {said}"))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(timeout_s)
        if not found:
            raise AskingFailed(f"the issuer of tokens at {self._name} does not answer within {timeout_s:.1f} s")
        if isinstance(found[0], Exception):
            raise found[0]
        return self._token_in(found[0])

    def _answer(self, timeout_s: float) -> bytes:
        parts = self._parts
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout_s, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
        headers = {
            "Authorization": self._authorization,
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "ottla",
        }
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, self._form, headers)
            with connection.getresponse() as answer:
                if answer.status != OK:
                    raise AskingFailed(f"the issuer of tokens at {self._name} answers with status {answer.status}")
                return answer.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()

    def _token_in(self, body: bytes) -> str:
        try:
            told: Any = json.loads(body)
        except (ValueError, RecursionError):
            told = None
        token = told.get("access_token") if isinstance(told, dict) else None
        if not isinstance(token, str):
            raise AskingFailed(f"the issuer of tokens at {self._name} answers without an access_token")
        return token
