"""Declarations of the settings of SASL: of listeners, OAUTHBEARER (KIP-768, KIP-1139) and GSSAPI (Kerberos).

A listener has settings of its own below `listener.name.<listener>.`, and each of its mechanisms below
`listener.name.<listener>.<mechanism>.`, as Kafka reads them. Every broker loads this module; `sasl_rules.py`, `token_rules.py`
and `login_rules.py` evaluate the settings and are loaded only where they are needed.

The settings of OAUTHBEARER and the keys of GSSAPI are those that the broker was started with: no client can make a running
broker trust another issuer, or read another address. (Kafka keeps these addresses from its administrators by a system
property, org.apache.kafka.sasl.oauthbearer.allowed.urls.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ottla.wire.settings import CLASS, DOUBLE, INT, LONG, PASSWORD, SHORT, setting

OAUTHBEARER = "OAUTHBEARER"
HANDLER_NAME = "sasl.server.callback.handler.class"
DEFAULT_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
LOGIN_HANDLER_NAME = "sasl.login.callback.handler.class"
DEFAULT_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
GSSAPI = "GSSAPI"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE_NAME = "sasl.kerberos.service.name"
RULES_NAME = "sasl.kerberos.principal.to.local.rules"
PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
SERVED_MECHANISMS = (GSSAPI, PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)
JAAS_NAME = "sasl.jaas.config"

_settled = partial(
    setting,
    dynamic="per-broker",
    on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
)
_of_next_login = partial(
    setting,
    dynamic="per-broker",
    on_change="Holds for the next login, also of who is connected and has to log in again.",
)


@dataclass(frozen=True, kw_only=True)
class OAuthConfig:
    """OAUTHBEARER settings of a listener (KIP-768), such as the accepted issuer and the address of its keys."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None, doc="Address of the keys that tokens are signed with (a JWKS): https://, http:// or file:///."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, kind=LONG, doc="Time between two reads of the keys that tokens are signed with."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, kind=LONG, doc="Pause after a first attempt to read the keys has failed; it doubles with each one."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000, kind=LONG, doc="Longest pause between two attempts to read the keys."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting((), doc="Audiences one of which a token has to name.")
    sasl_oauthbearer_expected_issuer: str | None = setting(None, doc="Issuer that a token has to name.")
    sasl_oauthbearer_allow_unverified_audience: bool = setting(
        False, doc="Whether tokens are taken although no sasl.oauthbearer.expected.audience is set."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = setting(
        False, doc="Whether tokens are taken although no sasl.oauthbearer.expected.issuer is set."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, doc="How far the clocks of whoever issues tokens and of this broker may differ."
    )
    sasl_oauthbearer_scope_claim_name: str = setting("scope", doc="Claim of a token that has its scope.")
    sasl_oauthbearer_sub_claim_name: str = setting("sub", doc="Claim of a token that has the user's name.")
    sasl_oauthbearer_jwt_validator_class: str = setting(
        DEFAULT_VALIDATOR,
        kind=CLASS,
        doc="Judges tokens: Kafka's DefaultJwtValidator or BrokerJwtValidator, which are one here.",
    )


@dataclass(frozen=True, kw_only=True)
class OAuthLoginConfig:
    """OAUTHBEARER settings of this broker's logins at other brokers: the source of its tokens (KIP-768, KIP-1139)."""

    sasl_login_callback_handler_class: str | None = setting(
        None,
        kind=CLASS,
        doc="Gets the token of a login by OAUTHBEARER: one of Kafka's own two classes; else without effect.",
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        None, kind=INT, doc="Longest wait for a connection to the server that gives out OAuth tokens."
    )
    sasl_login_read_timeout_ms: int | None = setting(
        None, kind=INT, doc="Longest wait for an answer of the server that gives out OAuth tokens."
    )
    sasl_login_refresh_buffer_seconds: int = _settled(
        300, kind=SHORT, doc="Time before the end of an OAuth token that is kept free for getting another one."
    )
    sasl_login_refresh_min_period_seconds: int = _settled(
        60, kind=SHORT, doc="Shortest time before an OAuth token is replaced by another one."
    )
    sasl_login_refresh_window_factor: float = _settled(
        0.8, kind=DOUBLE, doc="Share of its life after which an OAuth token is replaced by another one."
    )
    sasl_login_refresh_window_jitter: float = _settled(
        0.05, kind=DOUBLE, doc="Random part of the time at which an OAuth token is replaced."
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        10_000, kind=LONG, doc="Time after which a login gives up to get an OAuth token."
    )
    sasl_login_retry_backoff_ms: int = setting(
        100, kind=LONG, doc="First pause between two attempts to get an OAuth token; it doubles with each one."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        None, doc="Name that this broker gives to an OAuth server."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        None, kind=PASSWORD, doc="Password that this broker gives to an OAuth server."
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        DEFAULT_RETRIEVER,
        kind=CLASS,
        doc="Gets OAuth tokens: Kafka's DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever.",
    )
    sasl_oauthbearer_scope: str | None = setting(None, doc="Scope that this broker asks an OAuth server for.")
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None,
        doc="Address at which an OAuth server gives out tokens (https:// or http://), or a file with a token (file:///).",
    )


@dataclass(frozen=True, kw_only=True)
class KerberosConfig:
    """Settings of Kerberos (GSSAPI)."""

    sasl_kerberos_service_name: str | None = _settled(
        None, doc="First part of the brokers' Kerberos principal, if the JAAS line has no serviceName."
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = _of_next_login(
        ("DEFAULT",), doc="Rules that make a user's name of a Kerberos principal."
    )


@dataclass(frozen=True, kw_only=True)
class SaslConfig(OAuthConfig):
    """SASL settings of a listener, including OAUTHBEARER."""

    sasl_enabled_mechanisms: tuple[str, ...] = _of_next_login(
        ("GSSAPI",), doc="Mechanisms that clients may choose from."
    )
    sasl_jaas_config: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Login module with its options, given as listener.name.<listener>.<mechanism>.sasl.jaas.config.",
        on_change="Holds for the next login; the lines of OAUTHBEARER and GSSAPI are settled at the start.",
    )
    sasl_mechanism_inter_broker_protocol: str = _settled(
        "GSSAPI", doc="Mechanism by which brokers authenticate at each other."
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
