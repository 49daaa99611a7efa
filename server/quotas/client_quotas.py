"""All quotas of clients: what is set, and what was used. Sans-IO.

| quota                    | counts                                            | at the latest the client goes on after |
|--------------------------|---------------------------------------------------|----------------------------------------|
| producer_byte_rate       | bytes of Produce requests                         | as long as it takes                    |
| consumer_byte_rate       | bytes of answers with records                     | as long as it takes                    |
| request_percentage       | time of the event loop; 100 is all of it          | one window                             |
| controller_mutation_rate | partitions that are created and deleted           | as long as it takes                    |
| connection_creation_rate | connections of an address; `connection_rates.py`  | one window                             |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.server.quotas.connection_rates import ConnectionRates
from ottla.server.quotas.entities import (
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
from ottla.server.quotas.meters import Meters, MutationMeters, RateMeters
from ottla.server.quotas.rates import Windows
from ottla.server.settings.server_config import QuotaConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.settings.overrides import Texts


DEFAULTS = QuotaConfig()


class ClientQuotas:
    """See the module's docstring."""

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
        """Whether requests have to be measured."""
        self._meters: dict[str, Meters[Any]] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.mutations,
        }

    def take(self, path: str, texts: Texts) -> None:
        """What is kept of an entity has changed. Other things than quotas are passed over."""
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
        # A new dictionary, because whoever looks up the names has to see that something has changed.
        others = {other: each for other, each in self.addresses.items() if other != name}
        self.addresses = others if rate is None else {**others, name: rate}


def _values(texts: Texts, keys: Mapping[str, object]) -> dict[str, float]:
    found = {key: quota_value(texts[key]) for key in keys if key in texts}
    return {key: value for key, value in found.items() if value is not None}
