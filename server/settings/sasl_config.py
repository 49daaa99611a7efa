"""Settings of SASL (server and between brokers), and what they come to for one listener.

A listener has settings of its own below `listener.name.<listener>.`, and each mechanism below
`listener.name.<listener>.<mechanism>.`, as Kafka reads them. `sasl_of_listener` raises InvalidSetting with one line that a
person can act on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.server.settings.kerberos_config import GSSAPI, KERBEROS_MODULE, KerberosConfig
from ottla.server.settings.oauth_config import HANDLER_NAME, OAUTHBEARER, OAuthConfig, TokenRules
from ottla.wire.settings import (
    CLASS,
    LONG,
    PASSWORD,
    InvalidSetting,
    field_name,
    parse_value,
    setting,
    settings_of,
)

if TYPE_CHECKING:
    from ottla.server.settings.jaas import JaasEntry
    from ottla.server.settings.kerberos_rules import KerberosKeys, KerberosOfListener
    from ottla.server.settings.oauth_logins import OAuthLogin

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
SERVED_MECHANISMS = (GSSAPI, PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)
# The settings of OAUTHBEARER, and of what judges its tokens, as a listener or one of its mechanisms has them; and GSSAPI's keys.
_FIXED_PREFIXES = ("sasl.oauthbearer.", f"{OAUTHBEARER.lower()}.sasl.", f"{GSSAPI.lower()}.sasl.")
JAAS_NAME = "sasl.jaas.config"
_MODULES = {
    GSSAPI: KERBEROS_MODULE,
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
# Users of SCRAM are in the coordination tree, so a broker that is not a client itself needs no line.
_NEED_JAAS = (GSSAPI, PLAIN)


@dataclass(frozen=True, kw_only=True)
class SaslConfig(OAuthConfig):
    """How clients authenticate by SASL."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("GSSAPI",),
        dynamic="per-broker",
        doc="Mechanisms that clients may choose from.",
        on_change="Holds for the next login, also of who is connected and has to log in again.",
    )
    sasl_jaas_config: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Login module with its options, given as listener.name.<listener>.<mechanism>.sasl.jaas.config.",
        on_change="Holds for the next login; the lines of OAUTHBEARER and GSSAPI are settled at the start.",
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "GSSAPI",
        dynamic="per-broker",
        doc="Mechanism by which brokers authenticate at each other.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        None, kind=CLASS, doc="Verifies credentials; only OAUTHBEARER accepts a value, one of Kafka's own two classes."
    )
    sasl_server_max_receive_size: int = setting(
        524_288, doc="Largest frame in bytes that is accepted before authentication."
    )
    connections_max_reauth_ms: int = setting(
        0, kind=LONG, doc="Time after which a client has to authenticate again; 0: never."
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, minimum=0, doc="How long the answer to a failed authentication is kept back."
    )


@dataclass(frozen=True, kw_only=True)
class MechanismConfig:
    """One mechanism of one listener. `max_reauth_ms` 0: nobody has to authenticate again."""

    name: str
    jaas: JaasEntry | None
    max_reauth_ms: int
    tokens: TokenRules | None = None
    """Which tokens are taken, for OAUTHBEARER."""

    kerberos: KerberosOfListener | None = None
    """Keys and rules, for GSSAPI."""


@dataclass(frozen=True, kw_only=True)
class SaslListenerConfig:
    """What a listener needs to authenticate its clients."""

    mechanisms: Mapping[str, MechanismConfig]
    receive_bytes_max: int
    failure_delay_ms: int


@dataclass(frozen=True, kw_only=True)
class PeerLoginConfig:
    """How this broker logs in at the listener of the others."""

    mechanism: str
    name: str = ""
    password: str = field(default="", repr=False)
    kerberos: KerberosKeys | None = None
    """By these keys, for GSSAPI."""

    tokens: OAuthLogin | None = None
    """By such tokens, for OAUTHBEARER."""


def sasl_of_listener(
    texts: Mapping[str, str], listener: str, started_with: Mapping[str, str] | None = None
) -> SaslListenerConfig:
    """The SASL settings of a listener; `texts` are the broker's as that listener has them (`texts_of_listener`).

    `started_with`: the same of the start, which alone say which tokens are taken. None: these are they, and the files that they
    name have to be there.
    """
    config = SaslConfig(**_values(SaslConfig, texts))
    prefix = f"listener.name.{listener.lower()}."
    if not config.sasl_enabled_mechanisms:
        raise _wrong(f"{prefix}sasl.enabled.mechanisms", "no mechanism is enabled")
    mechanisms = {}
    for name in config.sasl_enabled_mechanisms:
        if name not in SERVED_MECHANISMS:
            raise _wrong(
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
    """The login at the others' inter-broker listener, by the user of the mechanism's JAAS line of that listener, as in Kafka.

    `texts` are the settings as this broker's own listener of that name has them, and `served` is what that offers.
    """
    name = "sasl.mechanism.inter.broker.protocol"
    declared = settings_of(SaslConfig)[name]
    mechanism = parse_value(declared, static[name]) if name in static else declared.default
    if mechanism not in served.mechanisms:
        allowed = ", ".join(served.mechanisms)
        raise _wrong(f"{name}={mechanism}", f"must be one of the mechanisms enabled on listener {listener}: {allowed}")
    line = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_NAME}"
    if (kerberos := served.mechanisms[mechanism].kerberos) is not None:
        if not kerberos.keys.initiates:
            raise _wrong(line, "brokers log in at each other, so isInitiator cannot be false here")
        return PeerLoginConfig(mechanism=mechanism, kerberos=kerberos.keys)
    jaas = served.mechanisms[mechanism].jaas
    if mechanism == OAUTHBEARER:
        from ottla.server.settings.login_rules import listener_login  # few brokers log in by tokens

        tokens = listener_login(texts, f"listener.name.{listener.lower()}.", jaas)
        return PeerLoginConfig(mechanism=mechanism, tokens=tokens)
    options = {} if jaas is None else jaas.options
    if not options.get("username") or not options.get("password"):
        raise _wrong(line, "brokers log in at each other, so username and password have to be given here")
    return PeerLoginConfig(mechanism=mechanism, name=options["username"], password=options["password"])


def check_fixed(
    texts: Mapping[str, str], in_force: Mapping[str, str], started_with: Mapping[str, str], listener: str
) -> None:
    """Refuse a change of what says whose tokens a listener takes. InvalidSetting; all are as that listener has them."""
    for name in sorted(texts.keys() | in_force.keys()):
        # What is there already, because another broker has let it in, keeps nobody from changing something else.
        if name.startswith(_FIXED_PREFIXES) and texts.get(name) not in (in_force.get(name), started_with.get(name)):
            raise _wrong(
                f"listener.name.{listener.lower()}.{name}", "it is settled in server.properties, when the broker starts"
            )


def _mechanism(
    texts: Mapping[str, str], prefix: str, name: str, config: SaslConfig, started_with: Mapping[str, str]
) -> MechanismConfig:
    own = f"{name.lower()}."
    of_tokens, of_kerberos = name == OAUTHBEARER, name == GSSAPI
    handler = texts.get(own + HANDLER_NAME, config.sasl_server_callback_handler_class)
    if handler and not of_tokens:
        raise _wrong(f"{prefix}{own}{HANDLER_NAME}={handler}", "callback handlers are not served; remove the setting")
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


def _values(config_class: type, texts: Mapping[str, str]) -> dict[str, Any]:
    known = settings_of(config_class)
    return {field_name(name): parse_value(known[name], texts[name]) for name in known if name in texts}


def _kerberos(texts: Mapping[str, str], line: str, jaas: JaasEntry | None) -> KerberosOfListener:
    from ottla.server.settings.kerberos_rules import (  # few have Kerberos
        KerberosOfListener,
        check_package,
        kerberos_keys,
    )

    assert jaas is not None
    config = KerberosConfig(**_values(KerberosConfig, texts))
    keys = kerberos_keys(jaas, config.sasl_kerberos_service_name, line)
    check_package(line)
    return KerberosOfListener(keys=keys, rules=config.sasl_kerberos_principal_to_local_rules)


def _token_rules(texts: Mapping[str, str], prefix: str, jaas: JaasEntry | None) -> TokenRules:
    from ottla.server.settings.token_rules import token_rules  # most brokers take no tokens

    return token_rules(texts, prefix, jaas)


def _check_files(mechanism: MechanismConfig, prefix: str) -> None:
    """Refuse a start with files of keys that cannot be read."""
    if mechanism.kerberos is not None:
        from ottla.server.settings.kerberos_rules import check_keytab  # as above

        check_keytab(mechanism.kerberos.keys, f"{prefix}{mechanism.name.lower()}.{JAAS_NAME}")
    if mechanism.tokens is not None:
        from ottla.server.settings.token_rules import check_key_file  # as above

        check_key_file(mechanism.tokens, prefix)


def jaas_of(texts: Mapping[str, str], prefix: str, mechanism: str, *, is_needed: bool) -> JaasEntry | None:
    """The JAAS line of a mechanism of a listener; None if there is none and none is needed."""
    from ottla.server.settings.jaas import MalformedJaas, parse_jaas  # most brokers have no line

    short = f"{mechanism.lower()}.{JAAS_NAME}"
    name = prefix + short
    text = texts.get(short)
    if text is None:
        if is_needed:
            raise _wrong(
                name, f"mechanism {mechanism} needs this setting, such as `{_MODULES[mechanism]} required ...;`"
            )
        return None
    try:
        entries = parse_jaas(text)
    except MalformedJaas as error:
        raise _wrong(name, str(error)) from None
    if len(entries) != 1:
        raise _wrong(name, f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    if entries[0].module != _MODULES[mechanism]:
        raise _wrong(name, f"the login module of {mechanism} has to be {_MODULES[mechanism]}")
    return entries[0]


def _wrong(name: str, reason: str) -> InvalidSetting:
    return InvalidSetting(name, "[hidden]", reason, message=f"{name}: {reason}")
