"""Evaluation of a client's OAUTHBEARER settings. Loaded only if logins by tokens are configured.

    sasl.login.callback.handler.class                   the token is
    OAuthBearerLoginCallbackHandler                     given out by a server for a secret, or in a file (sasl.oauthbearer.token.endpoint.url)
    OAuthBearerUnsecuredLoginCallbackHandler            signed by nobody, and made of unsecuredLogin... options of the JAAS line
    none, with such options and no token.endpoint.url   the same; Kafka takes that class whenever none is named

A setting is looked for below the mechanism first. Clients' settings are read in the same way, with an empty prefix.
InvalidSetting has one line for the operator, in which no value is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ottla.server.config.sasl_config import (
    DEFAULT_RETRIEVER,
    LOGIN_HANDLER_NAME,
    OAUTHBEARER,
    OAuthConfig,
    OAuthLoginConfig,
)
from ottla.server.config.token_rules import read_address, tls_of_options, values_of
from ottla.wire.settings import InvalidSetting, parse_integer

if TYPE_CHECKING:
    from ottla.server.config.jaas import JaasEntry
    from ottla.server.config.security_config import TlsConfig

_invalid = InvalidSetting.without_value
_KAFKAS = "org.apache.kafka.common.security.oauthbearer."
HANDLERS = (f"{_KAFKAS}OAuthBearerLoginCallbackHandler", f"{_KAFKAS}secured.OAuthBearerLoginCallbackHandler")
UNSECURED_HANDLER = f"{_KAFKAS}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_BY_SECRET, _BY_FILE = f"{_KAFKAS}ClientCredentialsJwtRetriever", f"{_KAFKAS}FileJwtRetriever"
_RETRIEVERS = (DEFAULT_RETRIEVER, _BY_SECRET, _BY_FILE)
ENDPOINT_NAME = "sasl.oauthbearer.token.endpoint.url"
# Kafka's clients declare it, and its brokers read it only with a prefix.
_URLENCODE = "sasl.oauthbearer.header.urlencode"
_ASSERTIONS = ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss")
UNSECURED_OPTION = "unsecuredLogin"
_RESERVED = ("iat", "exp")
LIFETIME_S_DEFAULT = "3600"
OPTION_CHARACTERS_MAX = 10_000
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, kw_only=True)
class ClientCredentials:
    """Source of tokens: a token endpoint that grants them for client credentials (RFC 6749, section 4.4).

    `tls`: TLS settings for an https URL. If timeouts are None, only the overall timeout applies.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None
    encodes_header: bool
    """Whether name and secret are encoded as in a URL (RFC 6749, section 2.3.1)."""

    tls: TlsConfig | None
    connect_timeout_ms: int | None
    read_timeout_ms: int | None
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """Source of tokens: a file, given by its absolute path, that another program writes."""

    path: str


@dataclass(frozen=True, kw_only=True)
class UnsecuredLogin:
    """Source of unsigned tokens, with claims from the settings; for tests."""

    claims: Mapping[str, str | float | tuple[str, ...]]
    lifetime_s: int
    subject_claim: str


@dataclass(frozen=True, kw_only=True)
class RefreshRules:
    """Rules for replacing a token before it expires (sasl.login.refresh.*)."""

    window_factor: float
    window_jitter: float
    min_period_s: int
    buffer_s: int


@dataclass(frozen=True, kw_only=True)
class OAuthLogin:
    """Login by OAuth tokens. `extensions` are sent with each token (KIP-342)."""

    source: ClientCredentials | TokenFile | UnsecuredLogin
    refresh: RefreshRules
    extensions: Mapping[str, str]
    subject_claim: str


def oauth_login(texts: Mapping[str, str], prefix: str, jaas: JaasEntry | None) -> OAuthLogin:
    """Return the OAuth login from the settings of a listener or client. Raises InvalidSetting.

    `prefix`: prefix of the settings' names in error texts.
    """
    own = f"{prefix}{OAUTHBEARER.lower()}." if prefix else ""
    config = OAuthLoginConfig(**values_of(OAuthLoginConfig, texts, own))
    options = {} if jaas is None else jaas.options
    if any(len(each) > OPTION_CHARACTERS_MAX for each in options.values()):
        raise _invalid(f"{own}sasl.jaas.config", f"an option has more than {OPTION_CHARACTERS_MAX} characters")
    is_unsecured = _is_unsecured(config, options, own)
    claims = OAuthConfig(**values_of(OAuthConfig, texts, own))
    return OAuthLogin(
        source=_unsecured(options, own) if is_unsecured else _source(config, texts, options, own),
        refresh=RefreshRules(
            window_factor=config.sasl_login_refresh_window_factor,
            window_jitter=config.sasl_login_refresh_window_jitter,
            min_period_s=config.sasl_login_refresh_min_period_seconds,
            buffer_s=config.sasl_login_refresh_buffer_seconds,
        ),
        extensions=_extensions(options, f"{UNSECURED_OPTION}Extension_" if is_unsecured else "extension_", own),
        subject_claim=(
            options.get(f"{UNSECURED_OPTION}PrincipalClaimName", "").strip() or "sub"
            if is_unsecured
            else claims.sasl_oauthbearer_sub_claim_name.strip()
        ),
    )


def _is_unsecured(config: OAuthLoginConfig, options: Mapping[str, str], own: str) -> bool:
    handler = config.sasl_login_callback_handler_class
    if handler is None:
        if config.sasl_oauthbearer_token_endpoint_url is None and any(
            each.startswith(UNSECURED_OPTION) for each in options
        ):
            return True
        raise _invalid(
            f"{own}{LOGIN_HANDLER_NAME}",
            f"a login by OAUTHBEARER needs this setting, {HANDLERS[0]};"
            f" or, for tests, {UNSECURED_OPTION}... options in the JAAS line, for tokens that nobody has signed",
        )
    if handler not in (*HANDLERS, UNSECURED_HANDLER):
        allowed = ", ".join((HANDLERS[0], UNSECURED_HANDLER))
        raise _invalid(f"{own}{LOGIN_HANDLER_NAME}={handler}", f"it is not known; allowed: {allowed}")
    return handler == UNSECURED_HANDLER


def _source(
    config: OAuthLoginConfig, texts: Mapping[str, str], options: Mapping[str, str], own: str
) -> ClientCredentials | TokenFile:
    retriever = config.sasl_oauthbearer_jwt_retriever_class
    if retriever not in _RETRIEVERS:
        allowed = ", ".join(_RETRIEVERS)
        raise _invalid(f"{own}sasl.oauthbearer.jwt.retriever.class={retriever}", f"it is not known; allowed: {allowed}")
    url = (config.sasl_oauthbearer_token_endpoint_url or "").strip()
    if not url:
        raise _invalid(own + ENDPOINT_NAME, "OAUTHBEARER needs this setting, the address that gives out tokens")
    parts = read_address(url, own + ENDPOINT_NAME)
    is_file = parts.scheme == "file"
    if (retriever == _BY_FILE and not is_file) or (retriever == _BY_SECRET and is_file):
        raise _invalid(own + ENDPOINT_NAME, f"it is no address for {retriever}")
    if is_file:
        return TokenFile(path=unquote(parts.path))
    for name in _ASSERTIONS:
        if any(texts.get(each, "").strip() for each in (f"{OAUTHBEARER.lower()}.{name}", name)):
            raise _invalid(own + name, "signed assertions are not served; a client secret is")
    name = f"{own}sasl.oauthbearer.client.credentials.client"
    client_id = config.sasl_oauthbearer_client_credentials_client_id
    client_secret = config.sasl_oauthbearer_client_credentials_client_secret
    encodes = texts.get(f"{OAUTHBEARER.lower()}.{_URLENCODE}", texts.get(_URLENCODE, ""))
    return ClientCredentials(
        url=url,
        client_id=_given(client_id, options, "clientId", f"{name}.id"),
        client_secret=_given(client_secret, options, "clientSecret", f"{name}.secret"),
        scope=(config.sasl_oauthbearer_scope or options.get("scope", "")).strip() or None,
        encodes_header=encodes.strip().lower() == "true",
        tls=tls_of_options(options, own) if parts.scheme == "https" else None,
        connect_timeout_ms=config.sasl_login_connect_timeout_ms,
        read_timeout_ms=config.sasl_login_read_timeout_ms,
        retry_backoff_ms=config.sasl_login_retry_backoff_ms,
        retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
    )


def _given(setting: str | None, options: Mapping[str, str], option: str, name: str) -> str:
    """Return the value of a required setting. Raises InvalidSetting if it is missing or too long.

    `setting` None: the JAAS `option` counts, in which older releases of Kafka have the value.
    """
    found = (options.get(option, "") if setting is None else setting).strip()
    if not found or len(found) > OPTION_CHARACTERS_MAX:
        raise _invalid(name, f"it has to be given, or the option {option} of the JAAS line")
    return found


def _extensions(options: Mapping[str, str], prefix: str, own: str) -> dict[str, str]:
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    for name, value in found.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise _invalid(
                f"{own}sasl.jaas.config", f"extension {name[:40]!r} has another name or value than RFC 7628 allows"
            )
    return found


# ---------------------------------------------------------------------- tokens that nobody signs


def _unsecured(options: Mapping[str, str], own: str) -> UnsecuredLogin:
    line = f"{own}sasl.jaas.config"
    lifetime_s = parse_integer(options.get(f"{UNSECURED_OPTION}LifetimeSeconds", LIFETIME_S_DEFAULT))
    if lifetime_s is None or lifetime_s <= 0:
        raise _invalid(line, f"{UNSECURED_OPTION}LifetimeSeconds must be a positive number of seconds")
    subject = options.get(f"{UNSECURED_OPTION}PrincipalClaimName", "").strip() or "sub"
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for option, text in options.items():
        kind, separator, name = option.removeprefix(UNSECURED_OPTION).partition("Claim_")
        if not option.startswith(UNSECURED_OPTION) or not separator or not name:
            continue
        if name in _RESERVED:
            raise _invalid(line, f"Cannot explicitly set the '{name}' claim")
        claims[name] = _claim(kind, text, option, line)
    if not isinstance(found := claims.get(subject), str) or not found.strip():
        raise _invalid(line, f"{UNSECURED_OPTION}StringClaim_{subject} has to be given, the name of the user")
    return UnsecuredLogin(claims=claims, lifetime_s=lifetime_s, subject_claim=subject)


def _claim(kind: str, text: str, option: str, line: str) -> str | float | tuple[str, ...]:
    if kind == "String":
        return text
    if kind == "Number":
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _invalid(line, f"{option} is no number")
        return number
    if kind == "List":
        # Its first character stands between the elements.
        return tuple(text[1:].split(text[0])) if len(text) > 1 else ()
    raise _invalid(line, f"{option} is no option of Kafka's")
