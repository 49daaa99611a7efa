"""What a SASL listener offers, put together from its settings and from those who know the users."""

from __future__ import annotations

import base64
import secrets
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.auth.plain import PlainServer, PlainUsers
from ottla.server.auth.sasl_exchange import OfferedMechanism, SaslExchange
from ottla.server.auth.scram import ScramServer
from ottla.server.settings.sasl_config import PLAIN

if TYPE_CHECKING:
    from ottla.server.auth.failed_logins import FailedLogins
    from ottla.server.auth.scram import ScramStore
    from ottla.server.auth.strangers import Strangers
    from ottla.server.settings.sasl_config import MechanismConfig, SaslListenerConfig

NONCE_BYTES = 24


class SaslListener:
    """Authenticates who comes in through one listener. `receive_bytes_max` bounds a frame, `failure_delay_s` is in seconds."""

    def __init__(
        self, config: SaslListenerConfig, scram: ScramStore, failures: FailedLogins, strangers: Strangers
    ) -> None:
        self.receive_bytes_max = config.receive_bytes_max
        self.failure_delay_s = config.failure_delay_ms / 1000
        self.failures = failures
        self.strangers = strangers
        self._offered = {name: _offered(each, scram) for name, each in config.mechanisms.items()}

    def exchange(self) -> SaslExchange:
        """For one connection."""
        return SaslExchange(self._offered)


def new_nonce() -> str:
    """A text that nobody can guess, of characters that SCRAM allows."""
    return base64.urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode()


def _offered(config: MechanismConfig, scram: ScramStore) -> OfferedMechanism:
    if config.name == PLAIN:
        assert config.jaas is not None
        users = PlainUsers(config.jaas.options)
        return OfferedMechanism(partial(PlainServer, users), config.max_reauth_ms)
    return OfferedMechanism(partial(ScramServer, config.name, scram, new_nonce), config.max_reauth_ms)
