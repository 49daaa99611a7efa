"""GSSAPI of a listener: its keys, once they have been read, and the names of its users.

The library is loaded and the keys are read in a thread, with the first login or before the listener opens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.config.sasl_config import RULES_NAME
from ottla.server.security.kerberos.exchange import GssapiServer, GssFailure
from ottla.server.security.kerberos.names import InvalidRules, KerberosName, ShortNamer
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.config.sasl_rules import KerberosKeys
    from ottla.server.security.kerberos.library import AcceptedContext, Acceptor


class KerberosListener:
    """GSSAPI of one listener: it creates the server side of each login. Raises InvalidSetting for bad rules."""

    def __init__(self, keys: KerberosKeys, rules: Sequence[str]) -> None:
        try:
            self._namer = ShortNamer(rules)
        except InvalidRules as error:
            raise InvalidSetting(RULES_NAME, ",".join(rules), str(error)) from None
        self._keys = keys
        self._acceptor: Acceptor | None = None
        self._default_realm: str | None = None

    def server(self) -> GssapiServer:
        """Return the server side of a new login."""
        return GssapiServer(self._begin, self._short_name)

    def check(self) -> None:
        """Raise InvalidSetting if the listener's keys cannot be used to accept tickets. Blocks."""
        try:
            self._begin()
        except GssFailure as failure:
            reason = f"no ticket can be accepted for {self._keys.principal}: {failure}"
            raise InvalidSetting.without_value("gssapi.sasl.jaas.config", reason) from None

    def _begin(self) -> AcceptedContext:
        # Two threads may come here at a time, and both make the same.
        if self._acceptor is None:
            try:
                from ottla.server.security.kerberos.library import Acceptor
            except (ImportError, OSError) as error:
                raise GssFailure(f"the package gssapi cannot be loaded: {error}") from None
            self._acceptor = Acceptor(self._keys)
        return self._acceptor.begin()

    def _short_name(self, name: KerberosName) -> str:
        if self._default_realm is None:
            from ottla.server.security.kerberos.library import default_realm

            self._default_realm = default_realm()
        return self._namer.short_name(name, self._default_realm)
