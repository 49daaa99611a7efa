"""Metadata cache: live brokers, topics and the state of each partition, as this broker last heard of them.

Values are immutable and replaced as a whole, so that a holder of a value sees a consistent state, and a cache can compare
identities to check that its value is current. `version` rises with every change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

NO_LEADER = -1
NO_CONTROLLER = -1
NO_BROKER_EPOCH = -1
NO_TOPIC_ID = bytes(16)  # of topics that Kafka before 2.8 made, until a newer controller gives them one
NO_PARTITION_EPOCH = -1  # no leader was ever elected: the partition has no /state node

RECOVERED = 0
RECOVERING = 1  # led by a replica that was not in sync, which has not said yet that it has made its log good (KIP-704)

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

ListenerT = TypeVar("ListenerT")


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Address of a broker on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker with its endpoint and Kafka's id of the security protocol, both by listener.

    `epoch`, the transaction that created the broker's node, identifies the incarnation (KIP-380). `features` are the
    newest supported levels; comparisons ignore them, because the controller does not send them to brokers.
    """

    node_id: int
    endpoints: Mapping[str, BrokerEndpoint]
    rack: str | None = None
    epoch: int = NO_BROKER_EPOCH
    security_protocols: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's replicas and leadership, as the controller last decided them.

    During a reassignment `replicas` holds the remaining, the added and the removed replicas (KIP-455).
    `partition_epoch` is the version of the partition's /state node, and `controller_epoch` the epoch of the controller
    that wrote the node. `offline_replicas` are the replicas whose broker or disk has failed according to a controller.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    controller_epoch: int = 0
    offline_replicas: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        """Replicas before the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


UNKNOWN_STATE = PartitionState(NO_LEADER, -1, (), (), NO_PARTITION_EPOCH)
"""State of a partition of which this broker has a log, or an indirect notice, before a controller sends its state."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicState:
    """A topic and its partitions, indexed by partition number."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    is_internal: bool = False


@dataclass(slots=True)
class MetadataCache:
    """The cluster's metadata as this broker knows it; only the controller shell changes it."""

    cluster_id: str = ""
    controller_id: int = NO_CONTROLLER
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    registered: set[int] = field(default_factory=set, compare=False, repr=False)
    """Brokers that have been live at some time, as far as this broker knows: Kafka keeps a registration while a broker is down."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    topic_by_id: dict[bytes, TopicState] = field(default_factory=dict)
    version: int = 0
    on_replaced: Callable[[TopicState, TopicState | None], None] | None = field(default=None, compare=False, repr=False)
    """Called with a topic's former state and its new one, None for a deleted topic, while `brokers` are the latest."""
    _sorted_names: list[str] | None = None
    _topic_listeners: dict[object, Callable[[str], None]] = field(default_factory=dict, compare=False, repr=False)
    _broker_listeners: dict[object, Callable[[], None]] = field(default_factory=dict, compare=False, repr=False)

    def on_topic_change(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with a topic's name after its addition, replacement or removal. Return a cancel function."""
        return _added(self._topic_listeners, listener)

    def on_broker_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after the set of live brokers has changed. Returns the function that removes the listener."""
        return _added(self._broker_listeners, listener)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return state.partitions[index] if state is not None and 0 <= index < len(state.partitions) else None

    def put_topic(self, topic: TopicState) -> None:
        """Add a topic or replace its cached state."""
        known = self.topics.get(topic.name)
        if known is None:
            self._sorted_names = None
        # The topic was deleted and created again. It must not be found by its former id.
        elif known.topic_id != topic.topic_id:
            self.topic_by_id.pop(known.topic_id, None)
        if known is not None and self.on_replaced is not None:
            self.on_replaced(known, topic)
        self.topics[topic.name] = topic
        # Several topics can be without an id, so none of them is found by that.
        if topic.topic_id != NO_TOPIC_ID:
            self.topic_by_id[topic.topic_id] = topic
        self._notify_topic(topic.name)

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.topic_by_id.pop(topic.topic_id, None)
        self._sorted_names = None
        if self.on_replaced is not None:
            self.on_replaced(topic, None)
        self._notify_topic(name)

    def _notify_topic(self, topic: str) -> None:
        self.version += 1
        for listener in list(self._topic_listeners.values()):  # a listener may add or cancel others
            listener(topic)

    def put_broker(self, broker: BrokerRegistration) -> None:
        self.brokers[broker.node_id] = broker
        self.registered.add(broker.node_id)
        self._notify_brokers()

    def put_brokers(self, brokers: Iterable[BrokerRegistration], *, controller_id: int) -> None:
        """Replace the set of live brokers and the controller's id."""
        # Another mapping, so that who holds the former one still sees the brokers that are gone.
        self.brokers = {broker.node_id: broker for broker in brokers}
        self.registered |= self.brokers.keys()
        self.controller_id = controller_id
        self._notify_brokers()

    def _notify_brokers(self) -> None:
        self.version += 1
        for listener in list(self._broker_listeners.values()):
            listener()

    def topic_names(self) -> list[str]:
        """Return all topic names in alphabetical order."""
        # Sorted when somebody asks: while thousands of topics come one after the other, nobody may.
        if self._sorted_names is None:
            self._sorted_names = sorted(self.topics)
        return self._sorted_names

    def endpoint(self, node_id: int, listener: str) -> BrokerEndpoint | None:
        """Return a live broker's address on a listener; None if the broker is unknown or lacks the listener."""
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.endpoints.get(listener)

    def endpoints(self, listener: str) -> Iterator[BrokerEndpoint]:
        """Yield the address of each live broker that has the listener."""
        for broker in self.brokers.values():
            if (endpoint := broker.endpoints.get(listener)) is not None:
                yield endpoint


def _added(listeners: dict[object, ListenerT], listener: ListenerT) -> Callable[[], None]:
    """Add a listener; returns the function that removes it."""
    # The same function may listen twice, and each time ends for itself.
    key = object()
    listeners[key] = listener

    def cancel() -> None:
        listeners.pop(key, None)

    return cancel


def is_internal_topic(name: str) -> bool:
    return name in INTERNAL_TOPICS


def topic_name_problem(name: str) -> str | None:
    """Return Kafka's message about an invalid topic name; None if the name is valid."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    elif not _LEGAL.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"
