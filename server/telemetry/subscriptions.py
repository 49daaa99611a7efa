"""What subscriptions ask of which clients (KIP-714; the parts of Kafka's ClientMetricsManager and ClientMetricsConfigs that match).

A client is matched by all subscriptions whose patterns its attributes match as a whole; without patterns a subscription
matches everybody. It is asked for all that they name, at the shortest of their intervals. Metrics are told in the order that
Java's HashSet has, because the id of what is asked (`subscription_id`) is a checksum over it, and another broker of the cluster
may be Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.server.settings.client_metrics import ClientMetricsConfig, named_patterns, patterns_of, subscription_of
from ottla.server.telemetry.receiver import Client
from ottla.wire.checksum import crc32c
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.groupcoord.patterns import Pattern
    from ottla.server.settings.client_metrics import Subscriptions as Kept
    from ottla.server.settings.overrides import Overrides

logger = logging.getLogger("ottla.telemetry")

ALL = "*"
INTERVAL_DEFAULT_MS = ClientMetricsConfig().interval_ms
ATTRIBUTE_CHARACTERS_MAX = 512
"""A client with a longer attribute is matched by no pattern for it: whoever connects chooses it, and it is matched a thousand times."""
COST_MAX = 20_000  # steps of a match, some milliseconds


class Wanted(NamedTuple):
    """What a client is asked for, in Java's order, and how often."""

    metrics: tuple[str, ...]
    interval_ms: int


class Subscription:
    """One resource that can be read. Its patterns are compiled when somebody has to be matched, maybe in a thread."""

    def __init__(self, name: str, config: ClientMetricsConfig) -> None:
        self.metrics = config.metrics
        self.interval_ms = config.interval_ms
        self._named = named_patterns(config.match)
        self._name = name

    @property
    def cost(self) -> int:
        """How many steps it may take to match a client; known without compiling if there are no patterns."""
        if "_patterns" not in self.__dict__:
            return COST_MAX + 1 if self._named else 0
        return sum([pattern.cost("x" * ATTRIBUTE_CHARACTERS_MAX) for pattern in (self._patterns or {}).values()])

    @cached_property
    def _patterns(self) -> dict[str, Pattern] | None:
        """By attribute; None: one cannot be compiled, which a broker of another make has stored."""
        try:
            return patterns_of(self._named)
        except KafkaError as error:
            logger.error("the subscription %s matches no client: %s", self._name, error)
            return None

    def matches(self, client: Client, instance_id: str) -> bool:
        """Whether it asks this client."""
        if not self._named:
            return True
        attributes = {
            "client_id": client.client_id,
            "client_instance_id": instance_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.source_address,
            "client_source_port": client.source_port,
        }
        return self._patterns is not None and all(
            len(attributes[name]) <= ATTRIBUTE_CHARACTERS_MAX and pattern.matches(attributes[name])
            for name, pattern in self._patterns.items()
        )


class Subscriptions:
    """All that are in force. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._kept: dict[str, tuple[Overrides, Subscription | None]] = {}

    def take(self, kept: Kept) -> None:
        """Take up what is in force now; what has not changed is not read again."""
        known, self._kept = self._kept, {}
        for name, overrides in kept.items():
            before = known.get(name)
            unchanged = before is not None and before[0] is overrides
            self._kept[name] = before if unchanged and before is not None else (overrides, _read(name, overrides))
        self.version += 1

    def all(self) -> tuple[Subscription, ...]:
        """Those that can be read."""
        return tuple(each for _, each in self._kept.values() if each is not None)


def _read(name: str, overrides: Overrides) -> Subscription | None:
    try:
        return Subscription(name, subscription_of(overrides.texts))
    except KafkaError as error:  # stored by somebody who did not look so closely
        logger.error("the subscription %s cannot be used: %s", name, error)
        return None


def is_dear(subscriptions: Sequence[Subscription]) -> bool:
    """Whether matching a client takes so long that a thread should do it."""
    return sum([each.cost for each in subscriptions]) > COST_MAX


def wanted_of(subscriptions: Iterable[Subscription], client: Client, instance_id: str) -> Wanted:
    """What all of them together ask of a client. It may be asked in a thread."""
    found = [each for each in subscriptions if each.matches(client, instance_id)]
    interval_ms = min([INTERVAL_DEFAULT_MS, *(each.interval_ms for each in found)])
    names = dict.fromkeys(name for each in found for name in each.metrics)
    metrics = [ALL] if ALL in names else sorted(names, key=lambda name: hash_map_slot(name, len(names)))
    return Wanted(tuple(metrics), interval_ms)


def subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """The id of what an instance is asked for, as a signed number of 32 bits."""
    text = f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}"
    words = [int.from_bytes(instance_id[start : start + 4], "big") for start in range(0, 16, 4)]
    value: int = crc32c(text.encode("utf-8", "replace")) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return value - (1 << 32) if value >= 1 << 31 else value
