"""Evaluation of SASL settings: what one listener offers its clients, and how brokers log in at each other.

`sasl_of_listener` and `peer_login` raise InvalidSetting with one line that a person can act on. The JAAS line of GSSAPI is read as
Java's Krb5LoginModule and Kafka's KerberosLogin do:

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
        keyTab="/etc/security/kafka.keytab" principal="kafka/broker.example@EXAMPLE" serviceName=kafka;

Without keyTab the keys are where Kerberos' own configuration has them. A ticket cache is not looked at: a broker needs keys in any
case, and gets its own tickets by them. krb5.conf (KRB5_CONFIG in the environment) configures Kerberos itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.config.sasl_config import (
    GSSAPI,
    HANDLER_NAME,
    JAAS_NAME,
    KERBEROS_MODULE,
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    SERVED_MECHANISMS,
    SERVICE_NAME,
    KerberosConfig,
    SaslConfig,
)
from ottla.wire.settings import InvalidSetting, parse_value, read_settings, settings_of

if TYPE_CHECKING:
    from ottla.server.config.jaas import JaasEntry
    from ottla.server.config.login_rules import OAuthLogin
    from ottla.server.config.token_rules import TokenRules

_invalid = InvalidSetting.without_value
# The settings of OAUTHBEARER, and of what judges its tokens, as a listener or one of its mechanisms has them; and GSSAPI's keys.
_FIXED_PREFIXES = ("sasl.oauthbearer.", f"{OAUTHBEARER.lower()}.sasl.", f"{GSSAPI.lower()}.sasl.")
LOGIN_MODULES = {
    GSSAPI: KERBEROS_MODULE,
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
# Users of SCRAM are in the coordination tree, so a broker that is not a client itself needs no line.
_NEED_JAAS = (GSSAPI, PLAIN)


@dataclass(frozen=True, kw_only=True)
class KerberosKeys:
    """Kerberos keys named by a listener's JAAS entry. `keytab` None: the default keytab of Kerberos' configuration."""

    principal: str
    keytab: Path | None
    service_name: str
    """Service name of the other brokers, for this broker's logins to them."""
    initiates: bool
    """Whether the line lets this broker log in at others, too."""


@dataclass(frozen=True, kw_only=True)
class KerberosOfListener:
    """Kerberos keys with which a listener accepts tickets, and the rules that map principals to user names."""

    keys: KerberosKeys
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MechanismConfig:
    """Settings of one SASL mechanism of a listener. `max_reauth_ms` 0: clients need not authenticate again."""

    name: str
    jaas: JaasEntry | None
    max_reauth_ms: int
    tokens: TokenRules | None = None
    """Rules for accepted tokens, for OAUTHBEARER."""

    kerberos: KerberosOfListener | None = None
    """Keys and rules, for GSSAPI."""


@dataclass(frozen=True, kw_only=True)
class SaslListenerConfig:
    """SASL of a listener: its mechanisms, the largest frame, and the delay of the response to a failed login."""

    mechanisms: Mapping[str, MechanismConfig]
    receive_bytes_max: int
    failure_delay_ms: int


@dataclass(frozen=True, kw_only=True)
class PeerLoginConfig:
    """Credentials for this broker's logins at other brokers."""

    mechanism: str
    name: str = ""
    password: str = field(default="", repr=False)
    kerberos: KerberosKeys | None = None
    """Keys of the login, for GSSAPI."""

    tokens: OAuthLogin | None = None
    """Tokens of the login, for OAUTHBEARER."""


def sasl_of_listener(
    texts: Mapping[str, str], listener: str, started_with: Mapping[str, str] | None = None
) -> SaslListenerConfig:
    """Return the SASL settings of a listener from its settings (`texts_of_listener`). Raises InvalidSetting.

    `started_with`: the settings at the start, which alone decide which tokens are accepted; None: `texts` are those at
    the start, and the files that they name must exist.
    """
    config = read_settings(SaslConfig, texts)
    prefix = f"listener.name.{listener.lower()}."
    if not config.sasl_enabled_mechanisms:
        raise _invalid(f"{prefix}sasl.enabled.mechanisms", "no mechanism is enabled")
    mechanisms = {}
    for name in config.sasl_enabled_mechanisms:
        if name not in SERVED_MECHANISMS:
            raise _invalid(
                f"{prefix}sasl.enabled.mechanisms={','.join(config.sasl_enabled_mechanisms)}",
                f"mechanism {name} is not served; allowed: {', '.join(SERVED_MECHANISMS)}",
            )
        mechanisms[name] = found = _mechanism(
            texts, prefix, name, config, texts if started_with is None else started_with
        )
        if started_with is None:
            _check_files(found, prefix)
    return SaslListenerConfig(
        mechanisms=mechanisms,
        receive_bytes_max=config.sasl_server_max_receive_size,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
    )


def peer_login(
    static: Mapping[str, str], listener: str, texts: Mapping[str, str], served: SaslListenerConfig
) -> PeerLoginConfig:
    """Return this broker's login at other brokers' inter-broker listener. Raises InvalidSetting.

    As in Kafka, the user comes from the JAAS entry of this broker's own listener with the same name. `texts`: the
    settings that apply to that listener. `served`: its parsed SASL settings.
    """
    name = "sasl.mechanism.inter.broker.protocol"
    declared = settings_of(SaslConfig)[name]
    mechanism = parse_value(declared, static[name]) if name in static else declared.default
    if mechanism not in served.mechanisms:
        allowed = ", ".join(served.mechanisms)
        raise _invalid(
            f"{name}={mechanism}", f"must be one of the mechanisms enabled on listener {listener}: {allowed}"
        )
    line = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_NAME}"
    if (kerberos := served.mechanisms[mechanism].kerberos) is not None:
        if not kerberos.keys.initiates:
            raise _invalid(line, "brokers log in at each other, so isInitiator cannot be false here")
        return PeerLoginConfig(mechanism=mechanism, kerberos=kerberos.keys)
    jaas = served.mechanisms[mechanism].jaas
    if mechanism == OAUTHBEARER:
        from ottla.server.config.login_rules import oauth_login  # few brokers log in by tokens

        tokens = oauth_login(texts, f"listener.name.{listener.lower()}.", jaas)
        return PeerLoginConfig(mechanism=mechanism, tokens=tokens)
    options = {} if jaas is None else jaas.options
    if not options.get("username") or not options.get("password"):
        raise _invalid(line, "brokers log in at each other, so username and password have to be given here")
    return PeerLoginConfig(mechanism=mechanism, name=options["username"], password=options["password"])


def check_fixed(
    texts: Mapping[str, str], in_force: Mapping[str, str], started_with: Mapping[str, str], listener: str
) -> None:
    """Reject run-time changes of those settings of `listener` that name token issuers. Raises InvalidSetting."""
    for name in sorted(texts.keys() | in_force.keys()):
        # What is there already, because another broker has let it in, does not prevent a change of something else.
        if name.startswith(_FIXED_PREFIXES) and texts.get(name) not in (in_force.get(name), started_with.get(name)):
            raise _invalid(
                f"listener.name.{listener.lower()}.{name}", "it is settled in server.properties, when the broker starts"
            )


def _mechanism(
    texts: Mapping[str, str], prefix: str, name: str, config: SaslConfig, started_with: Mapping[str, str]
) -> MechanismConfig:
    own = f"{name.lower()}."
    of_tokens, of_kerberos = name == OAUTHBEARER, name == GSSAPI
    handler = texts.get(own + HANDLER_NAME, config.sasl_server_callback_handler_class)
    if handler and not of_tokens:
        raise _invalid(f"{prefix}{own}{HANDLER_NAME}={handler}", "callback handlers are not served; remove the setting")
    is_fixed = of_tokens or of_kerberos
    jaas = jaas_of(started_with if is_fixed else texts, prefix, name, is_needed=name in _NEED_JAAS)
    text = texts.get(own + "connections.max.reauth.ms")
    declared = settings_of(SaslConfig)["connections.max.reauth.ms"]
    return MechanismConfig(
        name=name,
        jaas=jaas,
        max_reauth_ms=config.connections_max_reauth_ms if text is None else parse_value(declared, text),
        tokens=_token_rules(started_with, prefix, jaas) if of_tokens else None,
        kerberos=_kerberos(texts, f"{prefix}{own}{JAAS_NAME}", jaas) if of_kerberos else None,
    )


def _kerberos(texts: Mapping[str, str], line: str, jaas: JaasEntry | None) -> KerberosOfListener:
    assert jaas is not None
    config = read_settings(KerberosConfig, texts)
    keys = kerberos_keys(jaas, config.sasl_kerberos_service_name, line)
    _check_gssapi(line)
    return KerberosOfListener(keys=keys, rules=config.sasl_kerberos_principal_to_local_rules)


def _token_rules(texts: Mapping[str, str], prefix: str, jaas: JaasEntry | None) -> TokenRules:
    from ottla.server.config.token_rules import token_rules  # most brokers take no tokens

    return token_rules(texts, prefix, jaas)


def _check_files(mechanism: MechanismConfig, prefix: str) -> None:
    if mechanism.kerberos is not None:
        _check_keytab(mechanism.kerberos.keys, f"{prefix}{mechanism.name.lower()}.{JAAS_NAME}")
    if mechanism.tokens is not None:
        from ottla.server.config.token_rules import check_key_file  # as above

        check_key_file(mechanism.tokens, prefix)


def jaas_of(texts: Mapping[str, str], prefix: str, mechanism: str, *, is_needed: bool) -> JaasEntry | None:
    """Return a mechanism's JAAS entry; None if it is not set.

    Raises InvalidSetting if it is invalid, or if it is not set and `is_needed`.
    """
    from ottla.server.config.jaas import MalformedJaas, parse_jaas  # most brokers have no line

    short = f"{mechanism.lower()}.{JAAS_NAME}"
    name = prefix + short
    text = texts.get(short)
    if text is None:
        if is_needed:
            raise _invalid(
                name, f"mechanism {mechanism} needs this setting, such as `{LOGIN_MODULES[mechanism]} required ...;`"
            )
        return None
    try:
        entries = parse_jaas(text)
    except MalformedJaas as error:
        raise _invalid(name, str(error)) from None
    if len(entries) != 1:
        raise _invalid(name, f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    if entries[0].module != LOGIN_MODULES[mechanism]:
        raise _invalid(name, f"the login module of {mechanism} has to be {LOGIN_MODULES[mechanism]}")
    return entries[0]


# ---------------------------------------------------------------------- GSSAPI


def kerberos_keys(jaas: JaasEntry, service_name: str | None, line: str) -> KerberosKeys:
    """Return the Kerberos keys in a listener's JAAS entry; `line`: the entry's setting. Raises InvalidSetting."""
    options = jaas.options
    found = options.get("serviceName")
    if found is not None and service_name is not None and found != service_name:
        raise _invalid(
            line,
            "Conflicting serviceName values found in JAAS and Kafka configs"
            f" value in JAAS file {found}, value in Kafka config {service_name}",
        )
    if not (service := found or service_name):
        raise _invalid(line, f"No serviceName defined in either JAAS or Kafka config ({SERVICE_NAME})")
    if not _is_true(options, "useKeyTab"):
        # With a ticket or a password alone, as Java allows, tickets cannot be accepted.
        raise _invalid(line, "useKeyTab=true is needed, so that tickets of clients can be accepted")
    if not _is_true(options, "storeKey"):
        raise _invalid(line, "storeKey=true is needed, so that tickets of clients can be accepted")
    if not (principal := options.get("principal", "").strip()) or principal == "*":
        raise _invalid(line, "principal has to be given, such as kafka/broker.example@EXAMPLE")
    return KerberosKeys(
        principal=principal,
        keytab=_path(options.get("keyTab", "").strip()),
        service_name=service,
        initiates=options.get("isInitiator", "true").lower() == "true",
    )


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _path(text: str) -> Path | None:
    """Return the path given by the option keyTab, without Java's prefix FILE:; None if it is empty."""
    for prefix in ("FILE:", "file:"):
        text = text.removeprefix(prefix)
    return Path(text) if text else None


def _check_gssapi(name: str) -> None:
    """Raise InvalidSetting if the package `gssapi` is not installed. `name`: setting to name in the error."""
    from importlib.util import find_spec

    if find_spec("gssapi") is None:
        raise _invalid(
            name, "GSSAPI needs the package gssapi: pip install 'ottla[gssapi]', or python3-gssapi of Debian"
        )


def _check_keytab(keys: KerberosKeys, line: str) -> None:
    """Raise InvalidSetting if the keytab cannot be read. `line`: setting to name in the error."""
    if keys.keytab is None:
        return
    try:
        # A pipe would block its reader.
        if not keys.keytab.is_file():
            raise OSError(None, "it is no file" if keys.keytab.exists() else "there is no such file")
        keys.keytab.open("rb").close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _invalid(line, f"keyTab {keys.keytab} cannot be read: {reason}") from None
