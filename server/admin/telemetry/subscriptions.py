"""Subscriptions to client metrics (KIP-714), and the client instances that take part.

These are the parts of Kafka's ClientMetricsManager, ClientMetricsConfigs and ClientMetricsInstance that match clients and keep time.

Matching: a client is matched by all subscriptions whose patterns match its attributes as a whole; without patterns a subscription
matches every client. The client is asked for all metrics that they name, at the shortest of their intervals. Metrics are listed in the
order of Java's HashSet, because `subscription_id` is a checksum over that list, and another broker of the cluster may be Kafka.

Theory of an instance
    get      allowed if an interval has passed since the last get or push. Else THROTTLING_QUOTA_EXCEEDED, unless its last request was
             refused with UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE, after which it has to get again.
    push     allowed if its last request was a get, or if an interval has passed since the last push. The last push of all
             (`terminating`) is taken at any time, and nothing after it (INVALID_REQUEST).
When the subscriptions change, the instance is recreated and may get and push at once.

An instance is forgotten
    - after three intervals without a request, a minute at least
    - when the connection that it came in through first ends or brings another one, so that no client has more instances than
    connections
    - when there are too many: then the one without a request for longest.
Its id stays valid; its next request creates it again.

Pushes go to a `Receiver`, as in Kafka to a ClientTelemetryReceiver.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.server.config.client_metrics import ClientMetricsConfig, named_patterns, patterns_of, subscription_of
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.groupcoord.patterns import Pattern
    from ottla.server.config.client_metrics import Subscriptions as Kept
    from ottla.server.config.repository import Overrides


class Client(NamedTuple):
    """Attributes of a client, by which subscriptions select clients. `source_port` is empty if it is not known."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: str


class Push(NamedTuple):
    """Metrics that a client has pushed: OpenTelemetry's MetricsData in protobuf."""

    instance_id: str
    owner: str
    """Owner of the client, and maybe of others: a principal, or else an address."""
    client: Client
    data: bytes
    compression: Compression
    bytes_max: int
    """Limit of the decompressed size."""
    metrics: tuple[str, ...]
    """Prefixes of the metrics that the client was asked for; "*" means all."""
    interval_ms: int
    """Interval until the next push is due."""


class BadMetrics(ValueError):
    """Pushed metrics that cannot be decoded; the text gives the reason."""


class Receiver(Protocol):
    """Interface of the receiver of pushed metrics. It exists only if opentelemetry-proto is installed."""

    async def take(self, push: Push) -> None:
        """Store the metrics of a push. Raises BadMetrics."""


logger = logging.getLogger("ottla.telemetry")

ALL = "*"
INTERVAL_DEFAULT_MS = ClientMetricsConfig().interval_ms
ATTRIBUTE_CHARACTERS_MAX = 512
"""No pattern matches a longer attribute: the client chooses it, and it would be matched a thousand times."""
COST_MAX = 20_000  # steps of a match, some milliseconds


class Wanted(NamedTuple):
    """Metrics that a client shall push, in the order of Kafka's Java broker, and the push interval in ms."""

    metrics: tuple[str, ...]
    interval_ms: int


class Subscription:
    """Valid subscription to client metrics. Its patterns are compiled at first use, possibly in a thread."""

    def __init__(self, name: str, config: ClientMetricsConfig) -> None:
        self.metrics = config.metrics
        self.interval_ms = config.interval_ms
        self._named = named_patterns(config.match)
        self._name = name

    @property
    def cost(self) -> int:
        """Maximal number of steps to match a client; 0 without patterns.

        Until the patterns are compiled, their cost is not known and counts as too high.
        """
        if "_patterns" not in self.__dict__:
            return COST_MAX + 1 if self._named else 0
        return sum([pattern.cost("x" * ATTRIBUTE_CHARACTERS_MAX) for pattern in (self._patterns or {}).values()])

    @cached_property
    def _patterns(self) -> dict[str, Pattern] | None:
        """Compiled patterns by attribute; None if a pattern that another broker has stored does not compile."""
        try:
            return patterns_of(self._named)
        except KafkaError as error:
            logger.error("the subscription %s matches no client: %s", self._name, error)
            return None

    def matches(self, client: Client, instance_id: str) -> bool:
        """Tell whether this subscription matches the client."""
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
    """All subscriptions in force. `version` rises at each change."""

    def __init__(self) -> None:
        self.version = 0
        self._kept: dict[str, tuple[Overrides, Subscription | None]] = {}

    def take(self, kept: Kept) -> None:
        """Replace the subscriptions by those in `kept`; unchanged ones are not parsed again."""
        known, self._kept = self._kept, {}
        for name, overrides in kept.items():
            before = known.get(name)
            unchanged = before is not None and before[0] is overrides
            self._kept[name] = before if unchanged and before is not None else (overrides, _read(name, overrides))
        self.version += 1

    def all(self) -> tuple[Subscription, ...]:
        """Return the valid subscriptions."""
        return tuple(each for _, each in self._kept.values() if each is not None)


def _read(name: str, overrides: Overrides) -> Subscription | None:
    try:
        return Subscription(name, subscription_of(overrides.texts))
    except KafkaError as error:  # stored by somebody who did not look so closely
        logger.error("the subscription %s cannot be used: %s", name, error)
        return None


def is_dear(subscriptions: Sequence[Subscription]) -> bool:
    """Tell whether matching a client takes so long that it should run in a thread."""
    return sum([each.cost for each in subscriptions]) > COST_MAX


def wanted_of(subscriptions: Iterable[Subscription], client: Client, instance_id: str) -> Wanted:
    """Return the metrics and push interval from all subscriptions that match a client. May run in a thread."""
    found = [each for each in subscriptions if each.matches(client, instance_id)]
    interval_ms = min([INTERVAL_DEFAULT_MS, *(each.interval_ms for each in found)])
    names = dict.fromkeys(name for each in found for name in each.metrics)
    metrics = [ALL] if ALL in names else sorted(names, key=lambda name: hash_map_slot(name, len(names)))
    return Wanted(tuple(metrics), interval_ms)


def subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """Return the id of an instance's wanted metrics, a checksum as a signed 32-bit integer."""
    text = f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}"
    words = [int.from_bytes(instance_id[start : start + 4], "big") for start in range(0, 16, 4)]
    value: int = crc32c(text.encode("utf-8", "replace")) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return value - (1 << 32) if value >= 1 << 31 else value


INSTANCES_MAX = 16_384
EXPIRY_MIN_MS = 60_000
_MAY_GET_AGAIN = frozenset([ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])


class Instance:
    """Client instance, and the metrics that it shall push."""

    __slots__ = (
        "client",
        "expires_ms",
        "instance_id",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "principal",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, principal: str, client: Client, wanted: Wanted, subscription_id: int, version: int
    ) -> None:
        """Create an instance. `version`: version of the subscriptions from which `wanted` was computed."""
        self.instance_id, self.principal, self.client = instance_id, principal, client
        self.wanted, self.subscription_id, self.version = wanted, subscription_id, version
        self.last_get_ms = self.last_push_ms = self.expires_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        """Tell whether GetTelemetrySubscriptions may come now, and record its time. After some errors it always may."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in _MAY_GET_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Tell whether a push may come now; if so, record its time."""
        if self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.wanted.interval_ms:
            self.last_push_ms = now_ms
            return True
        return False


class Instances:
    """Client instances by id. Their number is limited."""

    def __init__(self, instances_max: int = INSTANCES_MAX) -> None:
        self._instances_max = instances_max
        self._known: OrderedDict[bytes, Instance] = OrderedDict()  # who did something last stands last
        self._of_connection: dict[object, Instance] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, instance_id: bytes) -> bool:
        return instance_id in self._known

    def is_of_another(self, instance_id: bytes, principal: str, now_ms: int) -> bool:
        """Tell whether an unexpired instance with this id belongs to another principal."""
        found = self._known.get(instance_id)
        return found is not None and found.expires_ms > now_ms and found.principal != principal

    def find(self, instance_id: bytes, now_ms: int) -> Instance | None:
        """Return the unexpired instance with this id, and extend its life; None if there is none."""
        found = self._known.get(instance_id)
        if found is None or found.expires_ms <= now_ms:
            return None
        self._note_alive(found, now_ms)
        return found

    def put(self, instance: Instance, connection: object, now_ms: int) -> None:
        """Add an instance; replace one with its id or connection. If there are too many, drop the longest inactive."""
        before = self._of_connection.get(connection)
        if before is not None:
            self._forget(before)
        self._known[instance.instance_id] = instance
        self._of_connection[connection] = instance
        self._note_alive(instance, now_ms)
        if len(self._known) > self._instances_max:
            self._known.popitem(last=False)

    def _note_alive(self, instance: Instance, now_ms: int) -> None:
        instance.expires_ms = now_ms + max(EXPIRY_MIN_MS, 3 * instance.wanted.interval_ms)
        self._known.move_to_end(instance.instance_id)

    def leave(self, connection: object) -> None:
        """Remove the instance of a connection that has ended."""
        instance = self._of_connection.pop(connection, None)
        if instance is not None:
            self._forget(instance)

    def _forget(self, instance: Instance) -> None:
        # When it had expired its id may have become another principal's.
        if self._known.get(instance.instance_id) is instance:
            del self._known[instance.instance_id]

    def expire(self, now_ms: int) -> None:
        """Remove expired instances. With sixteen thousand instances this takes some milliseconds."""
        for instance_id in [each.instance_id for each in self._known.values() if each.expires_ms <= now_ms]:
            del self._known[instance_id]
