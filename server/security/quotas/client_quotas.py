"""Client quotas: their limits, and the usage measured so far. Sans-IO.

| quota                    | counts                                            | at the latest the client goes on after |
|--------------------------|---------------------------------------------------|----------------------------------------|
| producer_byte_rate       | bytes of Produce requests                         | as long as it takes                    |
| consumer_byte_rate       | bytes of answers with records                     | as long as it takes                    |
| request_percentage       | time of the event loop; 100 is all of it          | one window                             |
| controller_mutation_rate | partitions that are created and deleted           | as long as it takes                    |
| connection_creation_rate | connections of an address; `ConnectionRates`      | one window                             |

Quotas are charged when the answer is there (`Charge`). If several are exceeded the longest pause counts (Kafka's KafkaApis):

| request              | request_percentage       | bytes                                                            |
|----------------------|--------------------------|------------------------------------------------------------------|
| Produce              | unless acks=0            | producer_byte_rate, of the request                               |
| Fetch of a consumer  | yes                      | consumer_byte_rate, of the answer; if there has to be a pause the answer is empty and its bytes do not count |
| ShareFetch           | yes                      | consumer_byte_rate, of the answer, which is given: its records belong to the member by now |
| of another broker    | no, unless it is refused because who asks is none |                                         |
| changes of topics    | yes                      | controller_mutation_rate of the controller, see `take_mutations` and `carry` |
| any other            | yes                      |                                                                  |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.server.config.server_config import QuotaConfig
from ottla.server.security.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER_AND_CLIENT_KEYS,
    Entity,
    entity_at,
    quota_value,
)
from ottla.server.security.quotas.meters import Meters, MutationMeters, Rate, RateMeters, Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.config.repository import Texts

UNLIMITED = (1 << 31) - 1


class ConnectionRates:
    """Meters and limits of new connections a second: Kafka's ConnectionQuotas (KIP-402, KIP-612).

    A listener pauses if it or the broker exceeds max.connection.creation.rate: accepted connections wait, others stay
    in the backlog. An address above its quota connection_creation_rate pauses alone: its connection is not served, and
    not counted in any rate. A pause lasts at most one window. Times are in ms.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._of_broker = Rate(windows)
        self._of_listeners: dict[str, Rate] = {}
        # Addresses are counted as client ids are, which also limits how many are remembered.
        self._of_addresses = RateMeters(windows, pause_ms_max=windows.size_ms)
        self._by_address: Mapping[str | None, float] = {}

    def put(self, by_address: Mapping[str | None, float]) -> None:
        """Replace the rate limits of addresses; the key None stands for all addresses without a limit of their own."""
        before, self._by_address = self._by_address, by_address
        for address in before.keys() - by_address.keys():
            self._of_addresses.put(((CLIENT_ID, address),), None)
        for address, rate in by_address.items():
            if before.get(address) != rate:
                self._of_addresses.put(((CLIENT_ID, address),), rate)

    @property
    def remembered(self) -> int:
        """Number of addresses whose connections are being counted."""
        return len(self._of_addresses)

    def accepted(self, listener: str, of_listener: int, of_broker: int, now_ms: int) -> int:
        """Count a connection that `listener` has accepted; return the listener's pause in ms.

        `of_listener` and `of_broker`: limits of connections a second. Without limit, a rate is not counted.
        """
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
        """Count an accepted connection for its address; return the address's pause in ms.

        A connection that must pause no longer counts in any rate. `of_listener` and `of_broker`: limits of connections a
        second.
        """
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


DEFAULTS = QuotaConfig()


class ClientQuotas:
    """Quotas of all entities, and the meters of their usage."""

    def __init__(self, config: QuotaConfig = DEFAULTS) -> None:
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        controller_size_ms = config.controller_quota_window_size_seconds * 1000
        self.by_entity: dict[Entity, dict[str, float]] = {}
        self.addresses: dict[str | None, float] = {}
        """Connections that addresses, or hosts with names, may make in a second; None: all others. Replaced when it changes."""
        self.produce = RateMeters(windows)
        self.fetch = RateMeters(windows)
        self.request = RateMeters(windows, pause_ms_max=windows.size_ms)
        self.connections = ConnectionRates(windows)
        self.mutations = MutationMeters(Windows(config.controller_quota_window_num, controller_size_ms))
        self.is_on = False
        """True if requests have to be measured."""
        self._meters: dict[str, Meters[Any]] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.mutations,
        }

    def take(self, path: str, texts: Texts) -> None:
        """Apply the quotas in an entity's node. The node's other settings are ignored."""
        entity = entity_at(path)
        is_address = entity[0][0] == IP
        before = self.by_entity.get(entity, {})
        values = _values(texts, IP_KEYS if is_address else USER_AND_CLIENT_KEYS)
        if values:
            self.by_entity[entity] = values
        else:
            self.by_entity.pop(entity, None)
        if is_address:
            self._take_address(entity[0][1], values.get(CONNECTION_CREATION_RATE))
            return
        for key, meters in self._meters.items():
            if values.get(key) != before.get(key):
                meters.put(entity, values.get(key))
        self.is_on = any(meters.is_on for meters in self._meters.values())

    def _take_address(self, name: str | None, rate: float | None) -> None:
        # A new dictionary, because readers of the names detect a change by its identity.
        others = {other: each for other, each in self.addresses.items() if other != name}
        self.addresses = others if rate is None else {**others, name: rate}


def _values(texts: Texts, keys: Mapping[str, object]) -> dict[str, float]:
    found = {key: quota_value(texts[key]) for key in keys if key in texts}
    return {key: value for key, value in found.items() if value is not None}


PERCENT_PER_NANOSECOND = 100 / 1e9


class Charge:
    """Usage of one request, charged to its client's quotas. `is_settled`: it is charged, and does not change."""

    __slots__ = (
        "_client_id",
        "_clock_ms",
        "_mutations_pause_ms",
        "_mutations_paused_ms",
        "_quotas",
        "_request_bytes",
        "_user",
        "is_exempt",
        "is_settled",
        "pause_ms",
        "quota",
        "spent_ns",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        clock_ms: Callable[[], int],
        principal: str,
        client_id: str,
        *,
        produced_bytes: int = 0,
        is_exempt: bool = False,
    ) -> None:
        """Begin to charge a request. `is_exempt`: the request does not count for request_percentage.

        `produced_bytes`: size of the request if it contains records, else 0.
        """
        self._quotas, self._clock_ms = quotas, clock_ms
        self._user = principal.partition(":")[2]
        self._client_id = client_id
        self._request_bytes = produced_bytes
        self.is_exempt = is_exempt
        self.is_settled = False
        self.pause_ms = 0
        self.quota = ""
        """Name of the quota that `pause_ms` is due to; empty if there is no pause."""
        self.spent_ns = 0
        self._mutations_pause_ms = self._mutations_paused_ms = 0

    @property
    def is_timed(self) -> bool:
        """True if quotas on request time exist, so that the caller has to measure `spent_ns`."""
        return self._quotas.request.is_on

    def settle(self, *, is_answered: bool = True) -> int:
        """Charge the quotas at the end of the request; return the client's throttle time in ms."""
        if not self.is_settled:
            now_ms = self._clock_ms()
            self._settle_time(now_ms, is_answered=is_answered)
            if self._request_bytes and self._quotas.produce.is_on:
                self._pause(
                    self._quotas.produce.record(self._user, self._client_id, self._request_bytes, now_ms),
                    PRODUCER_BYTE_RATE,
                )
        return self.pause_ms

    def _settle_time(self, now_ms: int, *, is_answered: bool) -> None:
        self.is_settled = True
        if self._mutations_pause_ms:
            # The request may have taken long since then.
            self._pause(self._mutations_pause_ms - (now_ms - self._mutations_paused_ms), CONTROLLER_MUTATION_RATE)
        if self._quotas.request.is_on and is_answered and not self.is_exempt:
            spent = self.spent_ns * PERCENT_PER_NANOSECOND
            self._pause(self._quotas.request.record(self._user, self._client_id, spent, now_ms), REQUEST_PERCENTAGE)

    def _pause(self, pause_ms: int, quota: str) -> None:
        if pause_ms > self.pause_ms:
            self.pause_ms, self.quota = pause_ms, quota

    # ------------------------------------------------------------------ what handlers say

    def exempt(self) -> None:
        """Set `is_exempt`, because the request turned out to come from another broker."""
        self.is_exempt = True

    def count(self) -> None:
        """Clear `is_exempt`, because the request turned out not to come from a broker."""
        self.is_exempt = False

    @property
    def fetched_bytes_max(self) -> float:
        """Size in bytes beyond which a fetch response certainly leads to throttling; infinite without a quota."""
        fetch = self._quotas.fetch
        if self.is_settled or self.is_exempt or not fetch.is_on:
            return math.inf
        return fetch.most_at_once(self._user, self._client_id, self._clock_ms())

    def settle_fetch(self, answer_bytes: int, *, is_given: bool = False) -> int:
        """Charge a fetch response of `answer_bytes` bytes; return the throttle time in ms.

        A throttled client gets no records, so the bytes are not charged, unless `is_given`: then records are sent anyway.
        """
        if self.is_settled or self.is_exempt:
            return 0
        now_ms, fetch = self._clock_ms(), self._quotas.fetch
        self._settle_time(now_ms, is_answered=True)
        if fetch.is_on:
            self._pause(fetch.record(self._user, self._client_id, answer_bytes, now_ms), CONSUMER_BYTE_RATE)
            if self.pause_ms and not is_given:
                fetch.take_back(self._user, self._client_id, answer_bytes, now_ms)
        return self.pause_ms

    def carry(self, pause_ms: int) -> None:
        """Adopt the throttle time in ms from the controller, to which the request was forwarded."""
        self._mutations_pause_ms, self._mutations_paused_ms = pause_ms, self._clock_ms()

    def take_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Charge the creation or deletion of `count` partitions; return False if it must not be carried out.

        `is_strict` False: the client is older than KIP-599 and does not know the error; it is served, and throttled then.
        """
        mutations = self._quotas.mutations
        if self.is_settled or not mutations.is_on:
            return True
        now_ms = self._clock_ms()
        take = mutations.try_to_record if is_strict else mutations.record
        pause_ms = take(self._user, self._client_id, count, now_ms)
        if pause_ms:
            self._mutations_pause_ms, self._mutations_paused_ms = pause_ms, now_ms
        return not (is_strict and pause_ms)
