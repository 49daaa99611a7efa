"""TLS and login of a command, by the names of Kafka's client settings.

    security.protocol=PLAINTEXT | SSL | SASL_PLAINTEXT | SASL_SSL
    ssl.*                       as for a broker (`server/config/security_config.py`): PEM, PKCS12 or JKS
    sasl.mechanism              PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl.jaas.config            the login module's line with username and password; tokenauth=true: of a delegation token
    sasl.oauthbearer.*          the source of tokens (`oauth.py`); https of an issuer has its ssl.* in the JAAS line, as in Kafka

`on_cluster.py` reads client.id and bootstrap.servers. Other names are settings of other clients, and are ignored as Kafka's tools
ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import UsageError

if TYPE_CHECKING:
    import ssl

    from ottla.server.cli.client.oauth import TokenLogin
    from ottla.server.config.jaas import JaasEntry
    from ottla.server.config.sasl_rules import PeerLoginConfig
    from ottla.server.config.security_config import TlsConfig

_ENCRYPTS = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}
OAUTHBEARER = "OAUTHBEARER"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


@dataclass(frozen=True, slots=True)
class Security:
    """Security of connections to brokers. `encryption` None: no TLS. `login` None: no login."""

    protocol: str = "PLAINTEXT"
    encryption: ssl.SSLContext | None = None
    login: PeerLoginConfig | TokenLogin | None = None
    is_token: bool = False
    """True if name and password of a SCRAM login are id and secret of a delegation token (`tokenauth=true`, KIP-48)."""


def read_properties(file: Path | None, given: Sequence[str]) -> dict[str, str]:
    """Return the settings in a client's properties file. `given` (NAME=VALUE) overrides them. Raises UsageError."""
    texts: dict[str, str] = {}
    if file is not None:
        from ottla.server.config.properties import MalformedProperties, parse_properties

        try:
            texts = parse_properties(file.read_text(encoding="utf-8", errors="surrogateescape"))
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from None
        except MalformedProperties as error:
            raise UsageError(f"cannot read {file}: {error}") from None
    for each in given:
        name, separator, text = each.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"-X {each}: must be NAME=VALUE")
        texts[name.strip()] = text.strip()
    return texts


def security_of(texts: Mapping[str, str]) -> Security:
    """Make the security from client settings. Raises UsageError if a setting or its file cannot be used."""
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _ENCRYPTS:
        raise UsageError(f"security.protocol={protocol}: must be one of {', '.join(_ENCRYPTS)}")
    encryption = _encryption(texts) if _ENCRYPTS[protocol] else None
    if not protocol.startswith("SASL"):
        return Security(protocol, encryption)
    return Security(protocol, encryption, _login(texts), is_token=_is_token(texts))


def _is_token(texts: Mapping[str, str]) -> bool:
    jaas = _jaas(texts)
    return jaas is not None and jaas.options.get("tokenauth", "").lower() == "true"


def _encryption(texts: Mapping[str, str]) -> ssl.SSLContext:
    from ottla.server.config.security_config import TlsConfig
    from ottla.wire.settings import InvalidSetting, read_settings

    try:
        config = read_settings(TlsConfig, texts)
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    return _context(config)


def _context(config: TlsConfig) -> ssl.SSLContext:
    from ottla.server.security.tls_contexts import Secrets, client_context
    from ottla.wire.settings import InvalidSetting

    try:
        return client_context(config, Secrets(config))
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"the key cannot be given to OpenSSL: {error.strerror or error}") from None


def _login(texts: Mapping[str, str]) -> PeerLoginConfig | TokenLogin:
    from ottla.server.config.sasl_rules import PeerLoginConfig

    mechanism = texts.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        raise UsageError(f"sasl.mechanism={mechanism}: must be one of {', '.join(_MECHANISMS)}")
    jaas = _jaas(texts)
    if mechanism == OAUTHBEARER:
        from ottla.server.cli.client.oauth import token_login

        return token_login(texts, jaas, _context)
    # kcat's and rpk's names, which are shorter than Java's line.
    name, password = texts.get("sasl.username"), texts.get("sasl.password")
    if jaas is not None:
        name, password = jaas.options.get("username"), jaas.options.get("password")
    if not name or not password:
        raise UsageError(f"{mechanism} needs a user: set sasl.jaas.config, or sasl.username and sasl.password")
    return PeerLoginConfig(mechanism=mechanism, name=name, password=password)


def _jaas(texts: Mapping[str, str]) -> JaasEntry | None:
    from ottla.server.config.jaas import MalformedJaas, parse_jaas

    if "sasl.jaas.config" not in texts:
        return None
    try:
        return parse_jaas(texts["sasl.jaas.config"])[0]
    except MalformedJaas as error:
        raise UsageError(f"sasl.jaas.config: {error}") from None
