"""TLS of the listeners: contexts from their settings and files, changes at run time, and the names of clients.

A change makes a new context, which later connections get. Existing connections keep their certificates. Kafka's rules
for changes (SslFactory) hold: the new key has to be usable, and has to be that of the same holder with the same alternative
names, unless ssl.allow.dn.changes and ssl.allow.san.changes say otherwise.

Brokers of a cluster have certificates of the same authorities as a rule, so a broker that would not let itself in would not find
its way to the others. As Kafka (SslFactory.SslEngineValidator), a listener among brokers connects to itself in memory before it
opens, and before it takes up other certificates: the old and the new ones have to trust each other, because the other brokers do
not change at the same moment. Names of hosts are not looked at.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.config.broker_config import texts_of_listener
from ottla.server.config.security_config import TlsConfig
from ottla.server.dispatch.context import ANONYMOUS
from ottla.server.security.certificates import MalformedDer, alternative_names, distinguished_name, not_after
from ottla.server.security.key_stores import KeyStore, files_of
from ottla.server.security.principal_mapping import InvalidRules, PrincipalMapper
from ottla.server.security.tls_contexts import Secrets, client_context, server_context
from ottla.wire.settings import InvalidSetting, read_settings

if TYPE_CHECKING:
    from ottla.server.config.endpoint import Endpoint
    from ottla.server.config.repository import ConfigRepository

_ROUNDS_MAX = 10  # TLS 1.2 needs three


def lenient_client(config: TlsConfig, secrets: Secrets) -> ssl.SSLContext:
    """Return a TLS context for clients with these settings that does not check host names."""
    return client_context(replace(config, ssl_endpoint_identification_algorithm=""), secrets)


def handshake_problem(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Try a TLS handshake in memory between `server` and `client`; return the problem, None if it works."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    # The client first: with TLS 1.3 it is done before the server has seen its certificate.
    sides = {
        "it does not trust its own certificate": client.wrap_bio(to_client, to_server),
        "it does not trust its own certificate as that of a client": server.wrap_bio(
            to_server, to_client, server_side=True
        ),
    }
    for _ in range(_ROUNDS_MAX):
        for complaint in list(sides):
            try:
                sides[complaint].do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"{complaint} ({error.verify_message})"
            except ssl.SSLError as error:
                return f"the handshake failed ({error.reason})"
            del sides[complaint]
        if not sides:
            return None
    return "the handshake came to no end"


# ---------------------------------------------------------------------- one listener


COSTLY_S = 0.002
"""A step of a handshake that takes longer is done in a thread."""
MEASURED_HANDSHAKES = 3


class KeyCost:
    """Meter of the processor time that a handshake with one key takes in its longest step, usually a signature."""

    __slots__ = ("_count", "_least_s")

    def __init__(self) -> None:
        self._count, self._least_s = 0, float("inf")

    @property
    def is_low(self) -> bool:
        """True if the cost is known, and so low that handshakes may run on the event loop."""
        return self.is_known and self._least_s <= COSTLY_S

    @property
    def is_known(self) -> bool:
        return self._count >= MEASURED_HANDSHAKES

    def note(self, seconds: float) -> None:
        """Record the processor time, in seconds, of a handshake's most expensive step."""
        # The least counts: on a busy machine the others are too long.
        self._count += 1
        self._least_s = min(self._least_s, seconds)


class ToOthers(NamedTuple):
    """TLS context for connections to other brokers' listeners of the same name, with the cost of its key."""

    context: ssl.SSLContext
    cost: KeyCost


class InForce(NamedTuple):
    """TLS state of a listener: its settings, and all objects made from them."""

    config: TlsConfig
    secrets: Secrets
    context: ssl.SSLContext
    mapper: PrincipalMapper
    files: Mapping[str, object]
    cost: KeyCost
    to_others: ToOthers | None
    """None: brokers do not connect to each other by way of this listener."""

    def cannot_connect_to(self, other: InForce) -> str | None:
        """Return why a broker with these certificates cannot connect to one with `other`'s; None if it can."""
        return handshake_problem(other.context, lenient_client(self.config, self.secrets))


class TlsListener:
    """TLS of one listener. The constructor raises InvalidSetting if settings or files cannot be used."""

    def __init__(
        self, name: str, security_protocol: str, texts: Mapping[str, str], *, is_between_brokers: bool = False
    ) -> None:
        """Load the TLS of listener `name`. `is_between_brokers`: brokers use it to connect to each other."""
        self.name = name
        self._authenticates = security_protocol == "SSL"
        self._is_between_brokers = is_between_brokers
        self._in_force = self._read(texts)
        self._checked: InForce | None = None
        self._last_problem = ""
        if is_between_brokers and (problem := self._in_force.cannot_connect_to(self._in_force)):
            raise self._not_trusted(problem)

    # --- for handshakes

    @property
    def context(self) -> ssl.SSLContext:
        """TLS context for the next accepted connection."""
        return self._in_force.context

    @property
    def cost(self) -> KeyCost:
        return self._in_force.cost

    @property
    def expires_s(self) -> int | None:
        """When the first certificate of the chain expires, in seconds since 1970; None if that cannot be read."""
        store = self._in_force.secrets.key_store
        try:
            return None if store is None else min(map(not_after, store.chain), default=None)
        except MalformedDer:
            return None

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a client with this certificate (DER); without one, the anonymous principal.

        A listener that does not authenticate clients always returns that. Raises NoRuleFits and MalformedDer.
        """
        if not certificate or not self._authenticates:
            return ANONYMOUS
        return f"User:{self._in_force.mapper.name(distinguished_name(certificate))}"

    # --- for connections to the same listener of other brokers

    @property
    def to_others(self) -> ToOthers:
        """TLS context for the next connection to another broker; only for listeners between brokers."""
        assert self._in_force.to_others is not None
        return self._in_force.to_others

    @property
    def config(self) -> TlsConfig:
        return self._in_force.config

    @property
    def secrets(self) -> Secrets:
        return self._in_force.secrets

    # --- changes

    def check(self, texts: Mapping[str, str]) -> None:
        """Raise InvalidSetting if the listener cannot use these settings. Changes nothing; may run in a thread."""
        # Kept: when the change comes into force files and keys need not be read again.
        self._checked = self.read_anew(texts)

    def read_anew(self, texts: Mapping[str, str]) -> InForce | None:
        """Read settings and files; return the new state, or None if nothing changed. Raises InvalidSetting.

        May run in a thread.
        """
        config = self._config(texts)
        files = _fingerprints(files_of(config))
        for known in (self._in_force, self._checked):
            if known is not None and known.config == config and known.files == files:
                return None if known is self._in_force else known
        changed = self._read(texts)
        self._check_successor(changed)
        return changed

    def take_up(self, changed: InForce) -> None:
        """Use a state from `read_anew` for all later connections."""
        self._in_force, self._checked = changed, None
        self._last_problem = ""

    def is_news(self, problem: str) -> bool:
        """Remember a problem; return True if it differs from the last one, so that it is logged only once."""
        is_news, self._last_problem = problem != self._last_problem, problem
        return is_news

    def _config(self, texts: Mapping[str, str]) -> TlsConfig:
        own = texts_of_listener(texts, self.name)
        # SASL says who a client is. A certificate is asked for only if this very listener is to.
        if not self._authenticates and f"listener.name.{self.name.lower()}.ssl.client.auth" not in texts:
            own["ssl.client.auth"] = "none"
        return read_settings(TlsConfig, own)

    def _read(self, texts: Mapping[str, str]) -> InForce:
        try:
            config = self._config(texts)
            # Before the files are read: a change in between is seen the next time.
            files = _fingerprints(files_of(config))
            secrets = Secrets(config)
            context = server_context(config, secrets)
            mapper = PrincipalMapper(config.ssl_principal_mapping_rules)
            to_others = ToOthers(client_context(config, secrets), KeyCost()) if self._is_between_brokers else None
        except InvalidRules as error:
            raise self._named("ssl.principal.mapping.rules", str(error)) from None
        except InvalidSetting as error:
            raise self._named(error.name, str(error)) from None
        except OSError as error:  # no descriptor or no room for the file that OpenSSL reads the key from
            reason = f"the key cannot be given to OpenSSL: {error.strerror or error}"
            raise self._named("ssl.keystore.location", reason) from None
        return InForce(config, secrets, context, mapper, files, KeyCost(), to_others)

    def _named(self, name: str, reason: str) -> InvalidSetting:
        return InvalidSetting(name, None, reason, message=f"listener {self.name}: {reason}")

    def _check_successor(self, changed: InForce) -> None:
        now = self._in_force.secrets.key_store
        new, config = changed.secrets.key_store, changed.config
        assert now is not None and new is not None  # `server_context` sees to it
        try:
            _check_same_holder(now, new, config)
        except MalformedDer:
            raise self._named("ssl.keystore.location", "a certificate cannot be read") from None
        if self._in_force.secrets.authorities is None and changed.secrets.authorities is not None:
            reason = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            raise self._named("ssl.truststore.location", reason)
        if self._is_between_brokers:
            self._check_connections(changed)

    def _check_connections(self, changed: InForce) -> None:
        """Raise InvalidSetting unless brokers with the old and the new certificates accept each other."""
        now = self._in_force
        # An old certificate that has expired is no measure for the new one. Kafka measures by it, and has to be restarted.
        before = changed if now.cannot_connect_to(now) else now
        if problem := changed.cannot_connect_to(before) or before.cannot_connect_to(changed):
            raise self._not_trusted(problem)

    def _not_trusted(self, problem: str) -> InvalidSetting:
        reason = (
            "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those"
            f" settings: {problem}; ssl.truststore has to hold the authority of the certificate in ssl.keystore"
        )
        return self._named("ssl.truststore.location", reason)


def _check_same_holder(now: KeyStore, new: KeyStore, config: TlsConfig) -> None:
    refused = partial(InvalidSetting, "ssl.keystore.location", None)
    if not config.ssl_allow_dn_changes:
        before, after = distinguished_name(now.chain[0]), distinguished_name(new.chain[0])
        if before.lower() != after.lower():
            reason = f"Keystore DistinguishedName does not match: existing={before}, new={after}"
            raise refused(reason, message=reason)
    # Names may be added, but clients that know the broker by an old name go on to use that.
    if not config.ssl_allow_san_changes and not alternative_names(now.chain[0]) <= alternative_names(new.chain[0]):
        reason = "Keystore SubjectAltNames do not match: the new certificate lacks some of the existing one"
        raise refused(reason, message=reason)


def _fingerprints(paths: Iterable[str]) -> dict[str, object]:
    """Return a fingerprint of each file, which differs after a change; None if the file is missing."""
    found: dict[str, object] = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (OSError, ValueError):  # ValueError: no file can have such a name
            found[path] = None
    return found


# ---------------------------------------------------------------------- all listeners


logger = logging.getLogger("ottla.tls")

FILES_LOOKED_AT_S = 10.0


class TlsListeners:
    """TLS of all encrypted listeners. It follows changes of settings and files. Raises InvalidSetting."""

    def __init__(
        self, endpoints: Iterable[Endpoint], configs: ConfigRepository, between_brokers: Collection[str] = ()
    ) -> None:
        """Load the TLS of all encrypted endpoints. `between_brokers`: names of listeners that brokers connect to."""
        self._configs = configs
        self._by_name = {
            each.listener: TlsListener(
                each.listener,
                each.security_protocol,
                configs.texts,
                is_between_brokers=each.listener in between_brokers,
            )
            for each in endpoints
            if each.is_encrypted
        }
        configs.on_check(self._check)
        configs.on_change(lambda _: self._take_up(self._read_anew(configs.texts)))

    def __iter__(self) -> Iterator[TlsListener]:
        return iter(self._by_name.values())

    def get(self, name: str) -> TlsListener | None:
        """Return the TLS of listener `name`; None if it is not encrypted."""
        return self._by_name.get(name)

    async def watch_files(self) -> None:
        """Reload certificate files that were replaced, until cancelled."""
        while True:
            await trio.sleep(FILES_LOOKED_AT_S)
            texts = self._configs.texts
            # In a thread, because the disk may hang.
            found = await trio.to_thread.run_sync(self._read_anew, texts)
            # Settings that changed meanwhile have been taken up with the files already.
            if self._configs.texts is texts:
                self._take_up(found)

    def _check(self, texts: Mapping[str, str]) -> None:
        for each in self:
            each.check(texts)

    def _read_anew(self, texts: Mapping[str, str]) -> list[tuple[TlsListener, InForce]]:
        found = []
        for each in self:
            try:
                changed = each.read_anew(texts)
            # Another broker may have let the change through, or the file is half written: the old ones stay.
            except InvalidSetting as error:
                if each.is_news(str(error)):
                    logger.error("TLS goes on with the certificates and settings that it has: %s", error)
            else:
                found += [(each, changed)] if changed is not None else []
        return found

    def _take_up(self, found: Iterable[tuple[TlsListener, InForce]]) -> None:
        for listener, changed in found:
            listener.take_up(changed)
            logger.info("Listener %s has new certificates or settings of TLS", listener.name)
