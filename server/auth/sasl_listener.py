"""What a SASL listener offers, put together from its settings and from those who know the users.

Settings that change at run time hold for the logins after the change. One that the listener could not live with is refused.
"""

from __future__ import annotations

import base64
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.server.auth.plain import PlainServer, PlainUsers
from ottla.server.auth.sasl_exchange import OfferedMechanism, SaslExchange
from ottla.server.auth.scram import ScramServer
from ottla.server.settings.broker_config import texts_of_listener
from ottla.server.settings.sasl_config import PLAIN
from ottla.server.settings.sasl_rules import check_fixed, sasl_of_listener
from ottla.server.settings.token_rules import SignedTokenRules, UnsecuredTokenRules
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.auth.failed_logins import FailedLogins
    from ottla.server.auth.kerberos.listener import KerberosListener
    from ottla.server.auth.oauth.bearer import Judge
    from ottla.server.auth.oauth.key_sources import KeySources
    from ottla.server.auth.scram import ScramStore
    from ottla.server.auth.strangers import Strangers
    from ottla.server.settings.broker_config import BrokerConfig
    from ottla.server.settings.overrides import Texts
    from ottla.server.settings.repository import ConfigRepository
    from ottla.server.settings.sasl_rules import KerberosOfListener, MechanismConfig, SaslListenerConfig
    from ottla.server.settings.token_rules import TokenRules

logger = logging.getLogger("ottla.auth")

NONCE_BYTES = 24


class SaslListener:
    """Authenticates who comes in through one listener. `receive_bytes_max` bounds a frame, `failure_delay_s` is in seconds."""

    def __init__(
        self,
        config: SaslListenerConfig,
        scram: ScramStore,
        failures: FailedLogins,
        strangers: Strangers,
        key_sources: Callable[[], KeySources] | None = None,
    ) -> None:
        """`key_sources` is asked only for signed tokens. InvalidSetting: they cannot be had with these settings."""
        self.failures = failures
        self.strangers = strangers
        self._scram = scram
        self._key_sources = key_sources
        self._offered: dict[str, OfferedMechanism] = {}
        self._take(config)

    def _take(self, config: SaslListenerConfig) -> None:
        kerberos: list[KerberosListener] = []
        offered = {name: self._made(each, kerberos) for name, each in config.mechanisms.items()}
        self._kerberos = kerberos
        self._config = config
        self.receive_bytes_max = config.receive_bytes_max
        self.failure_delay_s = config.failure_delay_ms / 1000
        # The same dictionary, so that who is connected already logs in by the new settings, too.
        self._offered.clear()
        self._offered.update(offered)

    def follow(self, configs: ConfigRepository, name: str) -> None:
        """Take up the settings of the listener of that name, now and after each change."""

        started_with = texts_of_listener(configs.started_with.static, name)

        def check(texts: Texts) -> None:
            own = texts_of_listener(texts, name)
            check_fixed(own, configs.texts_of_listener(name), started_with, name)
            for each in sasl_of_listener(own, name, started_with).mechanisms.values():
                if each.kerberos is not None:
                    _of_kerberos(each.kerberos)

        def take_up(_: BrokerConfig) -> None:
            try:
                config = sasl_of_listener(configs.texts_of_listener(name), name, started_with)
                if config != self._config:
                    self._take(config)
            except InvalidSetting as error:  # another broker has written it
                logger.error("Listener %s keeps its SASL settings as they were: %s", name, error)

        configs.on_check(check)
        configs.on_change(take_up)
        take_up(configs.current)
        if self._takes(UnsecuredTokenRules):
            logger.warning("Listener %s takes tokens that nobody has signed: anybody can log in as anybody", name)

    def exchange(self) -> SaslExchange:
        """For one connection."""
        return SaslExchange(self._offered)

    async def until_ready(self) -> None:
        """Return when the keys of tokens have been read, or could not be: until then nobody could log in by a token.

        InvalidSetting: the keys of Kerberos cannot be used.
        """
        for kerberos in self._kerberos:
            await trio.to_thread.run_sync(kerberos.check)
        if self._key_sources is not None and self._takes(SignedTokenRules):
            await self._key_sources().until_tried()

    def _takes(self, rules: type[TokenRules]) -> bool:
        return any(isinstance(each.tokens, rules) for each in self._config.mechanisms.values())

    def _made(self, config: MechanismConfig, kerberos: list[KerberosListener]) -> OfferedMechanism:
        if config.kerberos is not None:
            kerberos.append(_of_kerberos(config.kerberos))
            return OfferedMechanism(kerberos[-1].server, config.max_reauth_ms, in_thread=True)
        if config.tokens is not None:
            return self._of_tokens(config, config.tokens)
        if config.name == PLAIN:
            assert config.jaas is not None
            users = PlainUsers(config.jaas.options)
            return OfferedMechanism(partial(PlainServer, users), config.max_reauth_ms)
        return OfferedMechanism(partial(ScramServer, config.name, self._scram, new_nonce), config.max_reauth_ms)

    def _of_tokens(self, config: MechanismConfig, rules: TokenRules) -> OfferedMechanism:
        # Here, because most brokers take no tokens.
        from ottla.server.auth.oauth.bearer import OAuthBearerServer
        from ottla.server.auth.oauth.signed_tokens import SignedTokens
        from ottla.server.auth.oauth.unsecured_tokens import UnsecuredTokens

        judge: Judge
        if isinstance(rules, UnsecuredTokenRules):
            judge = UnsecuredTokens(rules)
        else:
            assert self._key_sources is not None
            judge = SignedTokens(rules, self._key_sources().of(rules.endpoint))
        return OfferedMechanism(partial(OAuthBearerServer, judge), config.max_reauth_ms)


def _of_kerberos(config: KerberosOfListener) -> KerberosListener:
    from ottla.server.auth.kerberos.listener import KerberosListener  # here, because few brokers have Kerberos

    return KerberosListener(config.keys, config.rules)


def new_nonce() -> str:
    """A text that nobody can guess, of characters that SCRAM allows."""
    return base64.urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
