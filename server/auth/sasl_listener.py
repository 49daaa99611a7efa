"""What a SASL listener offers, put together from its settings and from those who know the users.

Settings that change at run time hold for the logins after the change. One that the listener could not live with is refused.
"""

from __future__ import annotations

import base64
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.auth.plain import PlainServer, PlainUsers
from ottla.server.auth.sasl_exchange import OfferedMechanism, SaslExchange
from ottla.server.auth.scram import ScramServer
from ottla.server.settings.broker_config import texts_of_listener
from ottla.server.settings.sasl_config import PLAIN, sasl_of_listener
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.auth.failed_logins import FailedLogins
    from ottla.server.auth.scram import ScramStore
    from ottla.server.auth.strangers import Strangers
    from ottla.server.settings.broker_config import BrokerConfig
    from ottla.server.settings.overrides import Texts
    from ottla.server.settings.repository import ConfigRepository
    from ottla.server.settings.sasl_config import MechanismConfig, SaslListenerConfig

logger = logging.getLogger("ottla.auth")

NONCE_BYTES = 24


class SaslListener:
    """Authenticates who comes in through one listener. `receive_bytes_max` bounds a frame, `failure_delay_s` is in seconds."""

    def __init__(
        self, config: SaslListenerConfig, scram: ScramStore, failures: FailedLogins, strangers: Strangers
    ) -> None:
        self.failures = failures
        self.strangers = strangers
        self._scram = scram
        self._offered: dict[str, OfferedMechanism] = {}
        self._take(config)

    def _take(self, config: SaslListenerConfig) -> None:
        self._config = config
        self.receive_bytes_max = config.receive_bytes_max
        self.failure_delay_s = config.failure_delay_ms / 1000
        # The same dictionary, so that who is connected already logs in by the new settings, too.
        self._offered.clear()
        self._offered.update({name: _offered(each, self._scram) for name, each in config.mechanisms.items()})

    def follow(self, configs: ConfigRepository, name: str) -> None:
        """Take up the settings of the listener of that name, now and after each change."""

        def check(texts: Texts) -> None:
            sasl_of_listener(texts_of_listener(texts, name), name)

        def take_up(_: BrokerConfig) -> None:
            try:
                config = sasl_of_listener(configs.texts_of_listener(name), name)
            except InvalidSetting as error:  # another broker has written it
                logger.error("Listener %s keeps its SASL settings as they were: %s", name, error)
                return
            if config != self._config:
                self._take(config)

        configs.on_check(check)
        configs.on_change(take_up)
        take_up(configs.current)

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
