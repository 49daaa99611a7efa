"""Settings of OAUTHBEARER for who logs in: where this broker gets the tokens by which it logs in at other ones (KIP-768, KIP-1139).

They are read as those of `oauth_config.py`, for one mechanism of one listener, one listener, or all; and are settled when the
broker starts. `login_rules.py` has what they come to. Each start loads this module, and few load that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.wire.settings import CLASS, DOUBLE, INT, LONG, PASSWORD, SHORT, setting

LOGIN_HANDLER_NAME = "sasl.login.callback.handler.class"
DEFAULT_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"


@dataclass(frozen=True, kw_only=True)
class OAuthLoginConfig:
    """Kafka's settings that have an effect."""

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
    sasl_login_refresh_buffer_seconds: int = setting(
        300,
        kind=SHORT,
        dynamic="per-broker",
        doc="Time before the end of an OAuth token that is kept free for getting another one.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        60,
        kind=SHORT,
        dynamic="per-broker",
        doc="Shortest time before an OAuth token is replaced by another one.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
    )
    sasl_login_refresh_window_factor: float = setting(
        0.8,
        kind=DOUBLE,
        dynamic="per-broker",
        doc="Share of its life after which an OAuth token is replaced by another one.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
    )
    sasl_login_refresh_window_jitter: float = setting(
        0.05,
        kind=DOUBLE,
        dynamic="per-broker",
        doc="Random part of the time at which an OAuth token is replaced.",
        on_change="Nothing: how brokers log in at each other is settled when they start, by server.properties.",
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
