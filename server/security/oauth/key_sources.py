"""Sources of the keys that sign tokens, read again while the broker runs: a file whenever it has changed, a server now and then.

A source reads at once, and then
    after refresh.ms, as long as reading succeeds; a file is looked at every FILE_LOOKED_AT_S
    after a pause that doubles from retry.backoff.ms to retry.backoff.max.ms, as long as it fails
    when a token names a key that is not there, which means that the issuer has new ones
What was read stays in force while reading fails. Tokens with made-up key ids make this broker ask no more than once in
EXPEDITED_S, and the same id counts once a minute, as in Kafka's RefreshingHttpsJwks (which asks without a pause).
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from ottla.server.config.token_rules import read_key_file
from ottla.server.security.oauth.fetching import FailedRead, fetch, https_context
from ottla.server.security.oauth.key_sets import KeySet, MalformedKeySet, parse_key_set

if TYPE_CHECKING:
    import ssl

    from ottla.server.config.token_rules import KeyEndpoint

logger = logging.getLogger("ottla.auth")

FILE_LOOKED_AT_S = 10.0
EXPEDITED_S = 10.0
"""Pause between the end of one read and the beginning of another that a token asks for."""

MISSED_S = 60.0
MISSED_MAX = 16
KEY_ID_LENGTH_MAX = 1_000
FIRST_READ_S = 10.0
_PAUSE_S_MIN = 0.01
_reads = trio.CapacityLimiter(1)  # of its own: a disk that hangs blocks no other work


class KeySource:
    """Reader of the public keys at one address. `context`: TLS context for https."""

    def __init__(self, endpoint: KeyEndpoint, context: ssl.SSLContext | None = None) -> None:
        self.current: KeySet | None = None
        self._endpoint, self._context = endpoint, context
        self._tried = trio.Event()
        self._wanted = trio.Event()
        self._missed: OrderedDict[str, float] = OrderedDict()  # key id -> when it counts again
        self._fingerprint: object = None
        self._told = ""

    def miss(self, key_id: str) -> None:
        """Ask for an early read of the keys, because a token names an unknown key, which may be new."""
        now = trio.current_time()
        if len(key_id) > KEY_ID_LENGTH_MAX or self._missed.get(key_id, now) > now:
            return
        self._missed[key_id] = now + MISSED_S
        self._missed.move_to_end(key_id)
        if len(self._missed) > MISSED_MAX:
            self._missed.popitem(last=False)
        self._wanted.set()

    async def until_tried(self) -> None:
        """Wait until the keys have been read or a read has failed, but at most FIRST_READ_S seconds."""
        with trio.move_on_after(FIRST_READ_S):
            await self._tried.wait()

    async def run(self) -> None:
        """Read the keys at intervals, until cancelled."""
        failures = 0
        while True:
            self._wanted = trio.Event()
            failures = 0 if await self._read() else failures + 1
            self._tried.set()
            refresh_s = (
                FILE_LOOKED_AT_S if self._endpoint.is_file else max(_PAUSE_S_MIN, self._endpoint.refresh_ms / 1000)
            )
            pause_s = self._backoff_s(failures) if failures else refresh_s
            if pause_s <= EXPEDITED_S:
                await trio.sleep(pause_s)
                continue
            await trio.sleep(EXPEDITED_S)
            with trio.move_on_after(pause_s - EXPEDITED_S):
                await self._wanted.wait()

    def _backoff_s(self, failures: int) -> float:
        endpoint = self._endpoint
        doubled_ms = endpoint.retry_backoff_ms << min(failures - 1, 30)
        return max(_PAUSE_S_MIN, min(doubled_ms, endpoint.retry_backoff_max_ms) / 1000)

    async def _read(self) -> bool:
        """Read the keys once; return False, and log it, if that fails."""
        try:
            if self._endpoint.is_file:
                found = await trio.to_thread.run_sync(self._of_file, limiter=_reads, abandon_on_cancel=True)
            else:
                found = await trio.to_thread.run_sync(parse_key_set, await fetch(self._endpoint.address, self._context))
        # Its code cannot be loaded, either, as long as too many files are open.
        except (FailedRead, MalformedKeySet, OSError, ImportError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            # Once for each reason, or a server that stays away for a day fills the log.
            if reason != self._told:
                logger.error("Keys of tokens cannot be read from %s: %s", self._endpoint.address, reason)
            self._told = reason
            return False
        except Exception:
            # A bug; the broker has other clients.
            logger.exception("Keys of tokens cannot be read from %s", self._endpoint.address)
            return False
        if found is not None:
            self._take(found)
        return True

    def _of_file(self) -> KeySet | None:
        """Return the keys in the key file; None if the file has not changed since it was read."""
        status = os.stat(self._endpoint.address)
        fingerprint = (status.st_mtime_ns, status.st_size, status.st_ino)
        if fingerprint == self._fingerprint and not self._told:
            return None
        found = parse_key_set(read_key_file(self._endpoint.address))
        self._fingerprint = fingerprint
        return found

    def _take(self, found: KeySet) -> None:
        if self.current is None or self._told or len(found) != len(self.current):
            logger.info(
                "%d keys of tokens were read from %s; %d were left out",
                len(found),
                self._endpoint.address,
                found.unusable,
            )
        if not len(found):
            logger.error("There is no key for tokens that can be used at %s", self._endpoint.address)
        self.current, self._told = found, ""


class KeySources:
    """Key sources of all listeners, one for each address. The addresses do not change while the broker runs."""

    def __init__(self) -> None:
        self._all: dict[KeyEndpoint, KeySource] = {}
        self._nursery: trio.Nursery | None = None

    def start_in(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        for each in self._all.values():
            nursery.start_soon(each.run)

    def of(self, endpoint: KeyEndpoint) -> KeySource:
        """Return the key source of an address, made at the first call. Raises InvalidSetting for bad TLS files."""
        found = self._all.get(endpoint)
        if found is None:
            found = self._all[endpoint] = KeySource(endpoint, https_context(endpoint.tls))
            if self._nursery is not None:
                self._nursery.start_soon(found.run)
        return found

    async def until_tried(self) -> None:
        """Wait until each source has read its keys or a read has failed, for at most FIRST_READ_S seconds each."""
        for each in self._all.values():
            await each.until_tried()
