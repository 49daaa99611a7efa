"""All listeners that encrypt: made at start, changed with the settings, looked at now and then for changed files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.server.auth.tls_listener import InForce, TlsListener
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.settings.endpoint import Endpoint
    from ottla.server.settings.repository import ConfigRepository

logger = logging.getLogger("ottla.tls")

FILES_LOOKED_AT_S = 10.0


class TlsListeners:
    """See the module's docstring. InvalidSetting if one of them cannot begin."""

    def __init__(
        self, endpoints: Iterable[Endpoint], configs: ConfigRepository, between_brokers: Collection[str] = ()
    ) -> None:
        """`between_brokers`: the listeners by way of which this broker connects to others."""
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
        """A listener by its name; None if it does not encrypt."""
        return self._by_name.get(name)

    async def watch_files(self) -> None:
        """Take up certificates that are written over."""
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
