"""Evaluation of the settings of OAUTHBEARER for a listener. Loaded only where a listener takes tokens.

InvalidSetting has one line for the operator, in which no value is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from ottla.server.config.sasl_config import DEFAULT_VALIDATOR, HANDLER_NAME, OAUTHBEARER, OAuthConfig
from ottla.server.config.security_config import TlsConfig
from ottla.wire.settings import InvalidSetting, field_name, parse_integer, parse_value, settings_of

if TYPE_CHECKING:
    from ottla.server.config.jaas import JaasEntry

_invalid = InvalidSetting.without_value
KEY_SET_BYTES_MAX = 1 << 20
_KAFKAS = "org.apache.kafka.common.security.oauthbearer."
SIGNED_HANDLERS = (
    f"{_KAFKAS}OAuthBearerValidatorCallbackHandler",
    f"{_KAFKAS}secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_HANDLER = f"{_KAFKAS}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS = (DEFAULT_VALIDATOR, f"{_KAFKAS}BrokerJwtValidator")
_OPTION = "unsecuredValidator"
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class KeyEndpoint:
    """Source of an issuer's public keys. `address`: a URL, or a path if `is_file`. `tls`: TLS settings for https."""

    address: str
    is_file: bool
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    tls: TlsConfig | None = None


@dataclass(frozen=True, kw_only=True)
class SignedTokenRules:
    """Requirements on a signed token. Its audience and issuer are checked only if the rules name any."""

    endpoint: KeyEndpoint
    audiences: tuple[str, ...]
    issuer: str | None
    clock_skew_s: int
    scope_claim: str
    subject_claim: str


@dataclass(frozen=True, kw_only=True)
class UnsecuredTokenRules:
    """Requirements on an unsigned token; for tests."""

    principal_claim: str
    scope_claim: str
    required_scope: tuple[str, ...]
    clock_skew_ms: int


TokenRules = SignedTokenRules | UnsecuredTokenRules


def token_rules(texts: Mapping[str, str], prefix: str, jaas: JaasEntry | None) -> TokenRules:
    """Return a listener's rules for tokens; `prefix` begins its settings' names. Raises InvalidSetting."""
    own = f"{prefix}{OAUTHBEARER.lower()}."
    config = OAuthConfig(**values_of(OAuthConfig, texts, own))
    handler = texts.get(f"{OAUTHBEARER.lower()}.{HANDLER_NAME}", texts.get(HANDLER_NAME))
    options = {} if jaas is None else jaas.options
    if handler == UNSECURED_HANDLER:
        return _unsecured(options, own)
    if handler in SIGNED_HANDLERS:
        return _signed(config, options, own)
    if handler is not None:
        allowed = ", ".join((SIGNED_HANDLERS[0], UNSECURED_HANDLER))
        raise _invalid(f"{own}{HANDLER_NAME}={handler}", f"it is not known; allowed: {allowed}")
    # Kafka accepts unsigned tokens then. Here a setting has to allow that.
    if config.sasl_oauthbearer_jwks_endpoint_url is None and any(each.startswith(_OPTION) for each in options):
        return _unsecured(options, own)
    raise _invalid(
        f"{own}{HANDLER_NAME}",
        f"OAUTHBEARER needs this setting, {SIGNED_HANDLERS[0]} for signed tokens;"
        f" or, for tests, {_OPTION}... options in the JAAS line, for tokens that nobody has signed",
    )


def values_of(config_class: type, texts: Mapping[str, str], own: str) -> dict[str, Any]:
    """Parse those settings of `config_class` that are given; return the values by field. Raises InvalidSetting.

    `own`: prefix of the settings' names in error texts.
    """
    known = settings_of(config_class)
    values = {}
    for name, declared in known.items():
        text = texts.get(f"{OAUTHBEARER.lower()}.{name}", texts.get(name))
        if text is None:
            continue
        try:
            values[field_name(name)] = parse_value(declared, text)
        except InvalidSetting as error:
            raise _invalid(f"{own}{name}", error.reason) from None
    return values


def _unsecured(options: Mapping[str, str], own: str) -> UnsecuredTokenRules:
    def option(name: str, default: str = "") -> str:
        return options.get(_OPTION + name, "").strip() or default

    line = f"{own}sasl.jaas.config"
    skew_ms = parse_integer(option("AllowableClockSkewMs", "0"))
    if skew_ms is None or skew_ms < 0:
        raise _invalid(line, f"{_OPTION}AllowableClockSkewMs must be a number of milliseconds that is not negative")
    scope = tuple(filter(None, option("RequiredScope").split(" ")))
    if not all(map(_SCOPE.fullmatch, scope)):
        raise _invalid(line, f"{_OPTION}RequiredScope must be made of words of ASCII without quotes and backslashes")
    return UnsecuredTokenRules(
        principal_claim=option("PrincipalClaimName", "sub"),
        scope_claim=option("ScopeClaimName", "scope"),
        required_scope=scope,
        clock_skew_ms=skew_ms,
    )


def _signed(config: OAuthConfig, options: Mapping[str, str], own: str) -> SignedTokenRules:
    _check_joserfc(f"{own}{HANDLER_NAME}")
    if config.sasl_oauthbearer_jwt_validator_class not in _VALIDATORS:
        raise _invalid(
            f"{own}sasl.oauthbearer.jwt.validator.class={config.sasl_oauthbearer_jwt_validator_class}",
            f"it is not known; allowed: {', '.join(_VALIDATORS)}",
        )
    audiences = config.sasl_oauthbearer_expected_audience
    issuer = (config.sasl_oauthbearer_expected_issuer or "").strip() or None
    if not audiences and not config.sasl_oauthbearer_allow_unverified_audience:
        raise _unverified(own, "audience")
    if issuer is None and not config.sasl_oauthbearer_allow_unverified_issuer:
        raise _unverified(own, "issuer")
    claims = {"scope": config.sasl_oauthbearer_scope_claim_name, "sub": config.sasl_oauthbearer_sub_claim_name}
    for kind, name in claims.items():
        if not name.strip():
            raise _invalid(f"{own}sasl.oauthbearer.{kind}.claim.name", "it has to be a name")
    return SignedTokenRules(
        endpoint=_endpoint(config, options, own),
        audiences=audiences,
        issuer=issuer,
        clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
        scope_claim=claims["scope"].strip(),
        subject_claim=claims["sub"].strip(),
    )


def _unverified(own: str, kind: str) -> InvalidSetting:
    return _invalid(
        f"{own}sasl.oauthbearer.expected.{kind}",
        f"OAUTHBEARER needs this setting, or tokens of any {kind} are taken;"
        f" sasl.oauthbearer.allow.unverified.{kind}=true says that this is meant",
    )


def _check_joserfc(name: str) -> None:
    """Raise InvalidSetting if the package joserfc is not installed. `name`: setting to name in the error."""
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise _invalid(name, "it needs the package joserfc: pip install 'ottla[oauth]'")


def _endpoint(config: OAuthConfig, options: Mapping[str, str], own: str) -> KeyEndpoint:
    url = (config.sasl_oauthbearer_jwks_endpoint_url or "").strip()
    if not url:
        raise _invalid(
            own + _URL, "OAUTHBEARER needs this setting, the address of the keys that tokens are signed with"
        )
    if config.sasl_oauthbearer_jwks_endpoint_refresh_ms <= 0:
        raise _invalid(f"{own}sasl.oauthbearer.jwks.endpoint.refresh.ms", "it must be positive")
    parts = read_address(url, own + _URL)
    return KeyEndpoint(
        address=unquote(parts.path) if parts.scheme == "file" else url,
        is_file=parts.scheme == "file",
        refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        retry_backoff_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        retry_backoff_max_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        tls=tls_of_options(options, own) if parts.scheme == "https" else None,
    )


def read_address(url: str, name: str) -> SplitResult:
    """Split an https, http or file URL into its parts. `name`: its setting. Raises InvalidSetting."""
    try:
        parts = urlsplit(url)
        has_address = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise _invalid(name, "it is no address") from None
    if parts.scheme not in ("https", "http", "file") or not url.isascii() or not url.isprintable() or " " in url:
        raise _invalid(name, "it must be an address that begins with https://, http:// or file:///")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or "\0" in unquote(parts.path):
            raise _invalid(name, "a file is named by its whole path, such as file:///etc/kafka/file")
    elif not has_address:
        raise _invalid(name, "it names no host")
    elif parts.username is not None or parts.password is not None:
        raise _invalid(name, "an address is no place for a password")
    return parts


def tls_of_options(options: Mapping[str, str], own: str) -> TlsConfig:
    """Return the TLS settings for https from a JAAS entry's ssl.* options, as in Kafka. Raises InvalidSetting."""
    known = settings_of(TlsConfig)
    values = {}
    for name in known.keys() & options.keys():
        try:
            values[field_name(name)] = parse_value(known[name], options[name])
        except InvalidSetting as error:
            raise _invalid(f"{own}sasl.jaas.config", f"option {name}: {error.reason}") from None
    return TlsConfig(**values)


def check_key_file(rules: TokenRules, prefix: str) -> None:
    """Raise InvalidSetting if the key file in `rules` is unreadable or invalid.

    Later the file is read again after each of its changes.
    """
    if not isinstance(rules, SignedTokenRules) or not rules.endpoint.is_file:
        return
    from ottla.wire.foreign_json import parse_json  # as the file is read later, with the same limits

    name = f"{prefix}{OAUTHBEARER.lower()}.{_URL}"
    try:
        found = parse_json(read_key_file(rules.endpoint.address))
    except OSError as error:
        raise _invalid(name, f"{rules.endpoint.address} cannot be read: {error.strerror or error}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise _invalid(name, f"{rules.endpoint.address} holds no set of keys (JWKS)")


def read_key_file(address: str) -> bytes:
    """Read a key file. Raises OSError if it is unreadable, not a regular file, or too long."""
    path = Path(address)
    # A pipe or a device would block its reader for ever.
    if not path.is_file():
        raise OSError(None, "there is no such file" if not path.exists() else "it is no file")
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > KEY_SET_BYTES_MAX:
            raise OSError(None, f"it has more than {KEY_SET_BYTES_MAX} bytes")
        return file.read(KEY_SET_BYTES_MAX)
