"""How many connections come in a second, against how many may: Kafka's ConnectionQuotas (KIP-402, KIP-612). Sans-IO.

A listener pauses if more come than it may accept (max.connection.creation.rate of the broker, or its own). What it has accepted waits for the
end of the pause, and all others in the backlog. An address pauses alone (connection_creation_rate): its connection is not served, and does
not count for anybody. No pause is longer than one window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.quotas.entities import CLIENT_ID
from ottla.server.quotas.meters import RateMeters
from ottla.server.quotas.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.quotas.rates import Windows

UNLIMITED = (1 << 31) - 1


class ConnectionRates:
    """See the module's docstring. Times in ms, rates in connections per second."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._of_broker = Rate(windows)
        self._of_listeners: dict[str, Rate] = {}
        # Addresses are counted as client ids are, which also limits how many are remembered.
        self._of_addresses = RateMeters(windows, pause_ms_max=windows.size_ms)
        self._by_address: Mapping[str | None, float] = {}

    def put(self, by_address: Mapping[str | None, float]) -> None:
        """How many connections addresses may make; None: those that are not named. Replaces what was put before."""
        before, self._by_address = self._by_address, by_address
        for address in before.keys() - by_address.keys():
            self._of_addresses.put(((CLIENT_ID, address),), None)
        for address, rate in by_address.items():
            if before.get(address) != rate:
                self._of_addresses.put(((CLIENT_ID, address),), rate)

    @property
    def remembered(self) -> int:
        """How many addresses there are whose connections are counted."""
        return len(self._of_addresses)

    def accepted(self, listener: str, of_listener: int, of_broker: int, now_ms: int) -> int:
        """A listener has accepted one more: for how long it has to pause. Nobody counts where all is allowed."""
        pauses_ms = [self._pause_ms(self._of_broker, of_broker, now_ms)]
        if of_listener != UNLIMITED:
            pauses_ms.append(self._pause_ms(self._of_listener(listener), of_listener, now_ms))
        return max(pauses_ms)

    def _pause_ms(self, rate: Rate, bound: int, now_ms: int) -> int:
        if bound == UNLIMITED:
            return 0
        rate.record(1, now_ms)
        # Without any allowed, the longest pause; Kafka divides by zero and comes to the same.
        return min(rate.throttle_ms(bound, now_ms), self._windows.size_ms) if bound else self._windows.size_ms

    def come_from(self, address: str, listener: str, of_listener: int, of_broker: int, now_ms: int) -> int:
        """It came from there: for how long that address has to pause. If it has to, the connection was none at all."""
        if not self._by_address or (address not in self._by_address and None not in self._by_address):
            return 0
        pause_ms = self._of_addresses.record("", address, 1, now_ms)
        if pause_ms:
            self._of_addresses.take_back("", address, 1, now_ms)
            if of_broker != UNLIMITED:
                self._of_broker.record(-1, now_ms)
            if of_listener != UNLIMITED:
                self._of_listener(listener).record(-1, now_ms)
        return pause_ms

    def _of_listener(self, listener: str) -> Rate:
        return self._of_listeners.setdefault(listener, Rate(self._windows))
