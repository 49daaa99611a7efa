"""Settings of OAUTHBEARER (KIP-768): whose tokens a listener takes, and where the keys are that they are signed with.

Each listener, and the mechanism of each listener, may have its own, as all settings of SASL (`sasl_config.py`). They are
those that the broker was started with: nobody can tell a running broker to trust somebody else, or to read another address.
(Kafka keeps these addresses from its administrators by a system property, org.apache.kafka.sasl.oauthbearer.allowed.urls.)

`token_rules.py` has what they come to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.wire.settings import CLASS, LONG, setting

if TYPE_CHECKING:
    from ottla.server.settings.tls_config import TlsConfig

OAUTHBEARER = "OAUTHBEARER"
HANDLER_NAME = "sasl.server.callback.handler.class"
DEFAULT_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"


@dataclass(frozen=True, kw_only=True)
class OAuthConfig:
    """Kafka's settings (KIP-768, and those of 4.4)."""

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
class KeyEndpoint:
    """Where keys are read. `address` is a URL, or a path if `is_file`; `tls` is for https."""

    address: str
    is_file: bool
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    tls: TlsConfig | None = None


@dataclass(frozen=True, kw_only=True)
class SignedTokenRules:
    """What a signed token has to be. No audiences, no issuer: they are not looked at."""

    endpoint: KeyEndpoint
    audiences: tuple[str, ...]
    issuer: str | None
    clock_skew_s: int
    scope_claim: str
    subject_claim: str


@dataclass(frozen=True, kw_only=True)
class UnsecuredTokenRules:
    """What a token that nobody has signed has to be, for tests."""

    principal_claim: str
    scope_claim: str
    required_scope: tuple[str, ...]
    clock_skew_ms: int


TokenRules = SignedTokenRules | UnsecuredTokenRules
