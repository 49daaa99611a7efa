"""Limits on the number and the rate of connections, for all listeners together, as in Kafka.

    max.connections             When there are so many, no listener accepts more until one has ended. New ones wait in the
                                backlog of the socket. If brokers have a listener of their own, it still accepts, and the
                                connection that has been silent longest on another listener is closed instead.
                                A listener may have a number of its own, listener.name.<listener>.max.connections, which
                                also the one of the brokers keeps to.
    max.connection.creation.rate, also with listener.name.<listener>
                                A listener pauses if more are made in a second. As Kafka has it, what the broker allows
                                does not concern a listener that brokers have of their own, unless it is given for that.
    connection_creation_rate    A quota of an address (`quotas/client_quotas.py`). Connections beyond it are not served,
                                and closed after the pause.
    max.connections.per.ip      When an address has so many, new ones from it are accepted and closed at once.
                                max.connections.per.ip.overrides gives single addresses or host names another number.

The budget of descriptors limits connections as max.connections does. A limit that is reached is logged, in one line a minute.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.reminders import Reminder
from ottla.server.security.quotas.client_quotas import UNLIMITED

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.server.config.server_config import ServerConfig
    from ottla.server.security.quotas.client_quotas import ClientQuotas

logger = logging.getLogger("ottla.listener")

RETRY_SECONDS = 0.2
IPV4_MAPPED = "::ffff:"
OVERRIDES = "max.connections.per.ip.overrides"


class OwnLimits(NamedTuple):
    """Limits of one listener: connections, and new connections per second."""

    connections: int
    connections_per_second: int


class ConnectionLimits:
    """Connection limits of all listeners. `protected`: listener whose connections displace those of other listeners."""

    def __init__(
        self,
        settings: Callable[[], ServerConfig],
        descriptors: Descriptors,
        quotas: ClientQuotas,
        *,
        protected: str | None = None,
        of_listener: Callable[[str], OwnLimits] | None = None,
    ) -> None:
        """Create the limits, with no open connection.

        Limits from `settings` may change any time; those from `of_listener` are cached until `changed` is called.
        """
        self._settings, self._descriptors, self._protected = settings, descriptors, protected
        self._look_up = of_listener
        self._own: dict[str, OwnLimits] = {}
        self._quotas = quotas
        self._quotas_looked_up: Mapping[str | None, float] = {}
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._overrides: Mapping[str, int] = {}
        self._overrides_text = ""
        self._looking_up = trio.Lock()
        self._freed = trio.Event()
        self._all_are_taken, self._ip_has_its_share = Reminder(), Reminder()

    @property
    def count(self) -> int:
        """Number of open connections."""
        return self._descriptors.connections

    @property
    def _connections_max(self) -> int:
        return min(self._settings().max_connections, self._descriptors.connections_max)

    # --- before a connection is accepted

    async def until_room(self, listener: str) -> None:
        """Wait until this listener may accept a connection."""
        # All listeners wait for the same event, so another one may be quicker.
        while not self.has_room(listener):
            self._tell_that_all_are_taken(listener)
            with trio.move_on_after(RETRY_SECONDS):  # the limit may be raised, too
                await self._freed.wait()

    def has_room(self, listener: str) -> bool:
        """True if this listener may accept a connection now."""
        if self._per_listener[listener] >= self._of(listener).connections:
            return False
        # Other brokers come in beyond max.connections, and `excess` says who makes room. Until then a part of the
        # reserve may be used; the rest stays for work that must not fail.
        if listener == self._protected:
            return self.count < self._descriptors.connections_max + self._descriptors.reserve // 4
        return self.count < self._connections_max

    def _of(self, listener: str) -> OwnLimits:
        found = self._own.get(listener)
        if found is None:
            settings = self._settings()
            found = OwnLimits(settings.max_connections, settings.max_connection_creation_rate)
            if self._look_up is not None:
                found = self._own[listener] = self._look_up(listener)
        return found

    def changed(self) -> None:
        """Drop the cached limits, because a listener's settings have changed."""
        self._own.clear()

    def _tell_that_all_are_taken(self, listener: str) -> None:
        self._all_are_taken.tell(
            logger.warning,
            "%s accepts no connections while there are %d, %d of them its own: max.connections is %d, for this listener %d,"
            " and of the %d descriptors that the system allows (`ulimit -n`) connections may have %d",
            listener,
            self.count,
            self._per_listener[listener],
            self._settings().max_connections,
            self._of(listener).connections,
            self._descriptors.limit,
            self._descriptors.connections_max,
        )

    # --- connections come and go

    def pause_of_listener(self, listener: str) -> float:
        """Count a connection that the listener accepted; return the seconds until it may accept the next one."""
        return self._quotas.connections.accepted(listener, *self._rates(listener), _now_ms()) / 1000

    def pause_of_host(self, host: str, listener: str) -> float:
        """Count a connection from an address; return the seconds until the address may connect again, or 0."""
        return self._quotas.connections.come_from(host, listener, *self._rates(listener), _now_ms()) / 1000

    def _rates(self, listener: str) -> tuple[int, int]:
        of_broker = UNLIMITED if listener == self._protected else self._settings().max_connection_creation_rate
        return self._of(listener).connections_per_second, of_broker

    def admit(self, host: str, listener: str) -> bool:
        """Count an accepted connection. False: its address has reached its limit, and nothing was counted."""
        allowed = self._overrides.get(host, self._settings().max_connections_per_ip)
        if self._per_ip[host] >= allowed:
            text = "closing new connections of %s, which has %d already (max.connections.per.ip)"
            self._ip_has_its_share.tell(logger.warning, text, host, allowed)
            return False
        self._per_ip[host] += 1
        self._per_listener[listener] += 1
        self._descriptors.connection_opened()
        return True

    def release(self, host: str, listener: str) -> None:
        """Stop counting a connection that has ended."""
        self._per_listener[listener] -= 1
        self._descriptors.connection_closed()
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            # Or else every address that ever connected would stay here.
            del self._per_ip[host]
        # An event of trio is set for ever, so the next waiting task gets a new one.
        self._freed.set()
        self._freed = trio.Event()

    def excess(self, listener: str) -> int:
        """Return how many connections exceed max.connections and must be closed; 0 for the protected listener."""
        return 0 if listener == self._protected else max(0, self.count - self._connections_max)

    # --- addresses of hosts

    async def look_up_quotas(self) -> None:
        """Resolve the host names that have connection quotas, in a thread, if the quotas have changed."""
        # Replaced when it changes.
        quotas = self._quotas.addresses
        if quotas is not self._quotas_looked_up:
            self._quotas_looked_up = quotas
            found = await trio.to_thread.run_sync(_rates_by_address, quotas) if quotas else {}
            if self._quotas_looked_up is quotas:  # else another listener has asked for newer ones meanwhile
                self._quotas.connections.put(found)

    async def look_up_overrides(self) -> None:
        """Resolve the host names of max.connections.per.ip.overrides, in a thread, if the setting has changed."""
        # Every listener asks. The others wait for the first one, and find that the resolver need not be asked again.
        async with self._looking_up:
            text = self._settings().max_connections_per_ip_overrides
            if text != self._overrides_text:
                try:
                    self._overrides = await trio.to_thread.run_sync(_addresses, _pairs(text), OVERRIDES)
                except ValueError as error:  # an older broker, or somebody else's tool, may have let it through
                    logger.error("max.connections.per.ip.overrides cannot be used: %s", error)
                self._overrides_text = text

    @property
    def is_looking_up(self) -> bool:
        """True while the resolver is busy."""
        return self._looking_up.locked()


def plain_address(host: str) -> str:
    """Return `host` without the prefix that a dual-stack socket puts before IPv4 addresses (`::ffff:`)."""
    return host.removeprefix(IPV4_MAPPED)


def _pairs(text: str) -> list[tuple[str, int]]:
    # From the right, because an IPv6 address has colons of its own.
    pairs = (pair.rpartition(":") for pair in text.split(",") if pair.strip())
    return [(host.strip().strip("[]"), int(count)) for host, _, count in pairs]


def _now_ms() -> int:
    return int(trio.current_time() * 1000)


def _rates_by_address(rates: Mapping[str | None, float]) -> dict[str | None, float]:
    found: dict[str | None, float] = {}
    plain: dict[str | None, float] = {}
    for host, rate in rates.items():
        try:
            plain[host if host is None else plain_address(str(ip_address(host)))] = rate
        except ValueError:
            found |= dict.fromkeys(_addresses([(str(host), 0)], "connection_creation_rate"), rate)
    # What is said of the very address counts more than what is said of a name of it.
    return found | plain


def _addresses(pairs: Iterable[tuple[str, int]], purpose: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for host, count in pairs:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a part of the name is too long, or it has a zero in it
            logger.error("%s: the address of %s is not known: %s", purpose, host, error)
            continue
        # A name may have several addresses, and a peer comes from any of them.
        for answer in answers:
            found[plain_address(str(answer[4][0]))] = count
    return found
