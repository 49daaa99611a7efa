"""How somebody logs in by tokens: where they come from, and when they are replaced. `login_rules.py` makes it of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.settings.tls_config import TlsConfig


@dataclass(frozen=True, kw_only=True)
class ClientCredentials:
    """Tokens that a server gives out for a secret (RFC 6749, section 4.4). `tls` is for https. None of times: no limit but all."""

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
    """A token that somebody else keeps in a file, by its whole path."""

    path: str


@dataclass(frozen=True, kw_only=True)
class UnsecuredLogin:
    """A token that nobody signs, for tests: it says what the settings say."""

    claims: Mapping[str, str | float | tuple[str, ...]]
    lifetime_s: int
    subject_claim: str


@dataclass(frozen=True, kw_only=True)
class RefreshRules:
    """When a token is replaced."""

    window_factor: float
    window_jitter: float
    min_period_s: int
    buffer_s: int


@dataclass(frozen=True, kw_only=True)
class OAuthLogin:
    """Everything about a login by tokens. `extensions` go along with each token (KIP-342)."""

    source: ClientCredentials | TokenFile | UnsecuredLogin
    refresh: RefreshRules
    extensions: Mapping[str, str]
    subject_claim: str
