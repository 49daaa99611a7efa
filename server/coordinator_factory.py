"""Make the coordinators of a broker.

Importing this module imports their code, a third of all. That takes too long for the event loop, and most brokers never need it. So a
thread imports it, with the first handler that asks a coordinator, or before this broker leads a partition of an internal topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from ottla.groupcoord.service import GroupCoordinator, GroupTypes
from ottla.groupcoord.share.coordinator.service import ShareCoordinator
from ottla.groupcoord.topic_images import TopicImage
from ottla.groupcoord.transactions.service import TransactionCoordinator
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC, MetadataCache, TopicState
from ottla.replication.reminders import Reminders
from ottla.server.api.produce.markers import write_markers
from ottla.server.coordinators.coordinator_log import offsets_topic, share_state_topic, transaction_topic
from ottla.server.coordinators.share_coordinators import LeadersEndOffsets, ShareCoordinators
from ottla.server.coordinators.transaction_markers import TransactionMarkers
from ottla.server.coordinators.transaction_verification import OffsetsTopicVerifier

if TYPE_CHECKING:
    from ottla.server.api.share.share_partition_manager import SharePartitionManager
    from ottla.server.ports import BrokerParts

FENCED_TOLD_MAX = 100
"""Transactional ids whose producers the log tells of in a minute."""


class _SharePartitionLeader(Protocol):
    # Not in `BrokerParts`: share partitions need those themselves.
    @property
    def share_groups(self) -> SharePartitionManager: ...


# Whoever asks for a coordinator here, and not the broker itself, has had all of this imported by a thread.
groups_of: Callable[[BrokerParts], GroupCoordinator] = attrgetter("groups")
transactions_of: Callable[[BrokerParts], TransactionCoordinator] = attrgetter("transactions")
share_coordinator_of: Callable[[BrokerParts], ShareCoordinator] = attrgetter("share_coordinator")
share_partitions_of: Callable[[_SharePartitionLeader], SharePartitionManager] = attrgetter("share_groups")


def make_groups(broker: BrokerParts) -> GroupCoordinator:
    """Create the group coordinator, whose log is `__consumer_offsets`."""
    types = GroupTypes()
    return GroupCoordinator(
        broker.configs.started_with.groups,
        offsets_topic(broker, types.formats.load_codecs),
        broker.cluster,
        ClusterTopicImages(broker.cluster),
        lambda: OffsetsTopicVerifier(broker),
        broker.configs.groups.in_force,
        lambda: (ShareCoordinators(broker), LeadersEndOffsets(broker)),
        types=types,
        wall_clock=broker.environment.clock_ms,
        run_in_thread=broker.environment.run_in_thread,
        note=broker.happenings.note,
    )


def make_transactions(broker: BrokerParts) -> TransactionCoordinator:
    """Create the transaction coordinator, whose log is `__transaction_state`."""
    return TransactionCoordinator(
        broker.configs.started_with.transactions,
        transaction_topic(broker),
        broker.cluster,
        broker.producer_ids,
        broker.transaction_markers,
        transaction_version=lambda: broker.transaction_version,
        offsets_partition=lambda group_id: (GROUP_METADATA_TOPIC, broker.groups.partition_for(group_id)),
        tell=Reminders(FENCED_TOLD_MAX).tell,
        note=broker.happenings.note,
        wall_clock=broker.environment.clock_ms,
    )


def make_transaction_markers(broker: BrokerParts) -> TransactionMarkers:
    """Create the sender that writes transaction markers to this broker's partitions and to other brokers."""
    return TransactionMarkers(broker, partial(write_markers, broker))


def make_share_coordinator(broker: BrokerParts) -> ShareCoordinator:
    """Create the share coordinator, whose log is `__share_group_state`."""
    config = broker.configs.started_with.share_coordinator
    return ShareCoordinator(config, share_state_topic(broker), broker.cluster, wall_clock=broker.environment.clock_ms)


class ClusterTopicImages:
    """Implementation of the port `TopicImages` for group coordinators: the metadata cache's topics as images.

    `version` rises only if an image changes; most changes (leaders, in-sync replicas) do not concern groups.
    """

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._seen: dict[str, TopicState] = dict(cluster.topics)
        self._images: dict[str, TopicImage] = {}  # of the topics that somebody has asked for
        self._racks: dict[int, str] = {}
        self.version = 0
        cluster.on_topic_change(self._on_topic_change)
        cluster.on_broker_change(self._on_broker_change)

    def image(self, name: str) -> TopicImage | None:
        known = self._images.get(name)
        if known is not None:
            return known
        topic = self._cluster.topics.get(name)
        if topic is None:
            return None
        # Partitions with the same replicas share one set.
        racks = {
            each.replicas: frozenset([self._racks[broker] for broker in each.replicas if broker in self._racks])
            for each in topic.partitions
        }
        made = TopicImage(name, topic.topic_id, tuple([racks[each.replicas] for each in topic.partitions]))
        self._images[name] = made
        return made

    def image_by_id(self, topic_id: bytes) -> TopicImage | None:
        topic = self._cluster.topic_by_id.get(topic_id)
        return None if topic is None else self.image(topic.name)

    def topic_names(self) -> Sequence[str]:
        return self._cluster.topic_names()

    def _on_topic_change(self, name: str) -> None:
        old, new = self._seen.get(name), self._cluster.topics.get(name)
        if new is None:
            self._seen.pop(name, None)
        else:
            self._seen[name] = new
        if not _looks_the_same(old, new):
            self._images.pop(name, None)
            self.version += 1

    def _on_broker_change(self) -> None:
        # A broker that is gone keeps its rack, as a registration does in Kafka. It will be back, and groups need not
        # rebalance for it.
        racks = {broker.node_id: broker.rack for broker in self._cluster.brokers.values()}
        changed = {broker for broker, rack in racks.items() if self._racks.get(broker) != rack}
        if not changed:
            return
        for broker in changed:
            self._racks.pop(broker, None)
            if (rack := racks[broker]) is not None:
                self._racks[broker] = rack
        self._images.clear()
        self.version += 1


def _looks_the_same(old: TopicState | None, new: TopicState | None) -> bool:
    """Tell whether `old` and `new` have equal images: topic id, partition count and replicas."""
    if old is None or new is None:
        return old is new
    if old.topic_id != new.topic_id or len(old.partitions) != len(new.partitions):
        return False
    return all(was.replicas == each.replicas for was, each in zip(old.partitions, new.partitions, strict=True))
