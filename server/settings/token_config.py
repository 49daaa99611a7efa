"""Settings of delegation tokens (Kafka's DelegationTokenManagerConfigs)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.wire.settings import LONG, PASSWORD, field_name, parse_value, setting, settings_of

MASTER_KEY = "delegation.token.master.key"


@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """Without a secret key there are no delegation tokens. Times are in ms."""

    delegation_token_secret_key: str | None = setting(
        None, kind=PASSWORD, doc="Key that the passwords of delegation tokens are made with, the same on every broker."
    )
    delegation_token_max_lifetime_ms: int = setting(
        604_800_000, kind=LONG, minimum=1, doc="Age beyond which a delegation token cannot be renewed."
    )
    delegation_token_expiry_time_ms: int = setting(
        86_400_000, kind=LONG, minimum=1, doc="How long a delegation token is good for if it is not renewed."
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, kind=LONG, minimum=1, doc="Time between two looks for delegation tokens that have expired."
    )

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "TokenConfig":
        """From the texts that a broker is started with, the secret key under its older name, too. Raises InvalidSetting."""
        known = settings_of(cls)
        config = cls(**{field_name(name): parse_value(known[name], texts[name]) for name in known if name in texts})
        if config.delegation_token_secret_key is None:
            return replace(config, delegation_token_secret_key=texts.get(MASTER_KEY))
        return config

    @property
    def secret_key(self) -> bytes:
        """Empty: there are no tokens."""
        return (self.delegation_token_secret_key or "").encode()


@dataclass(frozen=True, kw_only=True)
class OlderTokenConfig:
    """What Kafka 4 has no more. It is accepted, and members of a cluster describe it."""

    delegation_token_master_key: str | None = setting(
        None, kind=PASSWORD, doc="Older name of delegation.token.secret.key."
    )
