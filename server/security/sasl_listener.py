"""SASL of a listener: the mechanisms that it offers, made from its settings and from those who know the users.

Settings that change at run time hold for the logins after the change. One that the listener could not live with is refused.
"""

from __future__ import annotations

import base64
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.replication.reminders import KEPT_MAX, Reminders
from ottla.server.config.broker_config import texts_of_listener
from ottla.server.config.sasl_config import PLAIN
from ottla.server.config.sasl_rules import check_fixed, sasl_of_listener
from ottla.server.config.token_rules import SignedTokenRules, UnsecuredTokenRules
from ottla.server.security.mechanism import PlainServer, PlainUsers
from ottla.server.security.sasl_exchange import OfferedMechanism, SaslExchange
from ottla.server.security.scram import ScramServer
from ottla.wire.happenings import LOGIN_FAILED, Note, note_nothing
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.repository import ConfigRepository, Texts
    from ottla.server.config.sasl_rules import KerberosOfListener, MechanismConfig, SaslListenerConfig
    from ottla.server.config.token_rules import TokenRules
    from ottla.server.security.kerberos.listener import KerberosListener
    from ottla.server.security.oauth.bearer import Judge
    from ottla.server.security.oauth.key_sources import KeySources
    from ottla.server.security.scram import ScramStore

logger = logging.getLogger("ottla.auth")

NONCE_BYTES = 24
ADDRESSES_MAX = KEPT_MAX
OF_ONE_ADDRESS_MAX = 500
ALL_MAX = 5_000


class FailedLogins:
    """Log of failed logins at all listeners, with a rate limit. `clock_s` returns monotonic seconds.

    The first failure of an address is logged at once; later ones are counted, and logged once a minute. So password
    attempts fill neither the log nor the memory (`replication/reminders.py`).
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic, note: Note = note_nothing) -> None:
        self._reminders, self._note = Reminders(ADDRESSES_MAX, clock_s), note

    def note(self, address: str, reason: str) -> None:
        """Log, within the rate limit, that a login from this address failed; note it as a happening."""
        self._note(LOGIN_FAILED, f"a login of {address} failed: {reason}", source=address, host=address)
        self._reminders.tell(address, logger.warning, "failed authentication of %s: %s", address, reason)


class UnauthenticatedPeers:
    """Limit of unauthenticated connections, from one address and in all. It does no I/O itself.

    Each connection has a descriptor, a task and up to 64 KiB. Beyond a limit the oldest is closed, so that old ones do
    not keep new ones out.
    """

    def __init__(self) -> None:
        self._all: dict[object, str] = {}
        self._of_address: dict[str, dict[object, Callable[[], None]]] = {}

    @contextmanager
    def counted(self, address: str, end: Callable[[], None]) -> Iterator[None]:
        """Count an unauthenticated connection during the block. `end`: called if the connection has to close."""
        key = object()
        self._all[key] = address
        mine = self._of_address.setdefault(address, {})
        mine[key] = end
        if len(mine) > OF_ONE_ADDRESS_MAX:
            self._end(next(iter(mine)))
        elif len(self._all) > ALL_MAX:
            self._end(next(iter(self._all)))
        try:
            yield
        finally:
            self._remove(key)

    def _end(self, key: object) -> None:
        end = self._of_address[self._all[key]][key]
        self._remove(key)
        end()

    def _remove(self, key: object) -> None:
        address = self._all.pop(key, None)
        if address is not None:
            del self._of_address[address][key]
            if not self._of_address[address]:
                del self._of_address[address]


# ---------------------------------------------------------------------- the listener


class SaslListener:
    """SASL of one listener. `receive_bytes_max`: largest frame.

    `failure_delay_s`: delay in seconds before a failure is answered.
    """

    def __init__(
        self,
        config: SaslListenerConfig,
        scram: ScramStore,
        failures: FailedLogins,
        unauthenticated: UnauthenticatedPeers,
        key_sources: Callable[[], KeySources] | None = None,
    ) -> None:
        """Create the listener's SASL. `key_sources`: called only if it accepts signed tokens. Raises InvalidSetting."""
        self.failures, self.unauthenticated = failures, unauthenticated
        self._scram, self._key_sources = scram, key_sources
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
        """Apply the settings of listener `name`, now and after each change."""

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
        """Return a new SASL exchange for one connection."""
        return SaslExchange(self._offered)

    async def until_ready(self) -> None:
        """Wait until token keys were read, or a read failed. Raises InvalidSetting if Kerberos keys are unusable."""
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
        from ottla.server.security.oauth.bearer import OAuthBearerServer
        from ottla.server.security.oauth.signed_tokens import SignedTokens
        from ottla.server.security.oauth.tokens import UnsecuredTokens

        judge: Judge
        if isinstance(rules, UnsecuredTokenRules):
            judge = UnsecuredTokens(rules)
        else:
            assert self._key_sources is not None
            judge = SignedTokens(rules, self._key_sources().of(rules.endpoint))
        return OfferedMechanism(partial(OAuthBearerServer, judge), config.max_reauth_ms)


def _of_kerberos(config: KerberosOfListener) -> KerberosListener:
    from ottla.server.security.kerberos.listener import KerberosListener  # here, because few brokers have Kerberos

    return KerberosListener(config.keys, config.rules)


def new_nonce() -> str:
    """Return an unpredictable nonce of characters that SCRAM allows."""
    return base64.urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
