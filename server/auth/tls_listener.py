"""What one listener encrypts with, from its settings and the files that they name; and what its clients are called.

A change makes a new context, which later connections get. Those that are there keep what they began with. Kafka's rules
for changes (SslFactory) hold: the new key has to be usable, and has to be that of the same holder with the same alternative
names, unless ssl.allow.dn.changes and ssl.allow.san.changes say otherwise. On a listener among brokers the old and the new
one have to trust each other, too, because the other brokers do not change at the same moment.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ottla.server.auth.der import MalformedDer, alternative_names
from ottla.server.auth.distinguished_names import distinguished_name
from ottla.server.auth.key_stores import KeyStore, files_of
from ottla.server.auth.principal_mapping import InvalidRules, PrincipalMapper
from ottla.server.auth.tls_contexts import Secrets, client_context, server_context
from ottla.server.auth.tls_rehearsal import lenient_client, rehearse
from ottla.server.gate.context import ANONYMOUS
from ottla.server.settings.broker_config import read_settings, texts_of_listener
from ottla.server.settings.security_config import TlsConfig
from ottla.wire.settings import InvalidSetting

COSTLY_S = 0.002
"""A step of a handshake that takes longer is done in a thread."""
MEASURED_HANDSHAKES = 3


class KeyCost:
    """How long the dearest step of a handshake takes with one key: mostly that is a signature."""

    __slots__ = ("_count", "_least_s")

    def __init__(self) -> None:
        self._count, self._least_s = 0, float("inf")

    @property
    def is_low(self) -> bool:
        """Whether it is known, and the event loop may do it."""
        return self._count >= MEASURED_HANDSHAKES and self._least_s <= COSTLY_S

    @property
    def is_known(self) -> bool:
        return self._count >= MEASURED_HANDSHAKES

    def note(self, seconds: float) -> None:
        """A handshake's dearest step took so much of a processor."""
        # The least counts: on a busy machine the others are too long.
        self._count += 1
        self._least_s = min(self._least_s, seconds)


class ToOthers(NamedTuple):
    """What connections to the same listener of other brokers begin with."""

    context: ssl.SSLContext
    cost: KeyCost


class InForce(NamedTuple):
    """One state of a listener's settings and files."""

    config: TlsConfig
    secrets: Secrets
    context: ssl.SSLContext
    mapper: PrincipalMapper
    files: Mapping[str, object]
    cost: KeyCost
    to_others: ToOthers | None
    """None: no broker connects to another one by way of this listener."""

    def cannot_connect_to(self, other: InForce) -> str | None:
        """What is in the way of a broker with these certificates that connects to one with those; None: nothing."""
        return rehearse(other.context, lenient_client(self.config, self.secrets))


class TlsListener:
    """See the module's docstring. InvalidSetting if the settings or files cannot be used."""

    def __init__(
        self, name: str, security_protocol: str, texts: Mapping[str, str], *, is_between_brokers: bool = False
    ) -> None:
        """`is_between_brokers`: this broker connects to the same listener of others, and they to this one."""
        self.name = name
        self._authenticates = security_protocol == "SSL"
        self._is_between_brokers = is_between_brokers
        self._in_force = self._read(texts)
        self._checked: InForce | None = None
        self._told = ""
        if is_between_brokers and (problem := self._in_force.cannot_connect_to(self._in_force)):
            raise self._not_trusted(problem)

    # --- for handshakes

    @property
    def context(self) -> ssl.SSLContext:
        """What the next connection is encrypted with."""
        return self._in_force.context

    @property
    def cost(self) -> KeyCost:
        return self._in_force.cost

    def principal(self, certificate: bytes | None) -> str:
        """What a client with this certificate (DER) is called. NoRuleFits, MalformedDer."""
        if not certificate or not self._authenticates:
            return ANONYMOUS
        return f"User:{self._in_force.mapper.name(distinguished_name(certificate))}"

    # --- for connections to the same listener of other brokers

    @property
    def to_others(self) -> ToOthers:
        """What the next connection begins with; only if brokers connect to each other by way of this listener."""
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
        """Refuse settings that the listener could not go on with, as InvalidSetting; nothing changes. May run in a thread."""
        # Kept: when the change comes into force nobody has to wait once more for files and keys.
        self._checked = self.read_anew(texts)

    def read_anew(self, texts: Mapping[str, str]) -> InForce | None:
        """What these settings come to with the files as they are now; None if nothing has changed. May run in a thread."""
        config = self._config(texts)
        files = _fingerprints(files_of(config))
        for known in (self._in_force, self._checked):
            if known is not None and known.config == config and known.files == files:
                return None if known is self._in_force else known
        changed = self._read(texts)
        self._check_successor(changed)
        return changed

    def take_up(self, changed: InForce) -> None:
        """Let later connections have what `read_anew` has found."""
        self._in_force, self._checked = changed, None
        self._told = ""

    def is_news(self, problem: str) -> bool:
        """Whether a problem is another one than that of the last look, and worth a line in the log."""
        is_news, self._told = problem != self._told, problem
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
        """Brokers with the old certificates and with the new ones have to reach each other."""
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
    # Names may be added, but whoever knows the broker by one of the old names goes on to do so.
    if not config.ssl_allow_san_changes and not alternative_names(now.chain[0]) <= alternative_names(new.chain[0]):
        reason = "Keystore SubjectAltNames do not match: the new certificate lacks some of the existing one"
        raise refused(reason, message=reason)


def _fingerprints(paths: Iterable[str]) -> dict[str, object]:
    """What changes when a file does. A file that is not there has none."""
    found: dict[str, object] = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (OSError, ValueError):  # ValueError: no file can have such a name
            found[path] = None
    return found
