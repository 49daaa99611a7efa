"""Make the coordinators of a broker.

Importing this module imports their code, a third of all. That takes too long for the event loop, and most brokers never need it. So a
thread imports it, with the first handler that asks a coordinator, or before this broker leads a partition of an internal topic.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.groupcoord.service import GroupCoordinator, GroupTypes
from ottla.groupcoord.share.coordinator.service import ShareCoordinator
from ottla.groupcoord.transactions.service import TransactionCoordinator
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.reminders import Reminders
from ottla.server.api.produce.markers import write_markers
from ottla.server.coordinators.coordinator_log import offsets_topic, share_state_topic, transaction_topic
from ottla.server.coordinators.share_coordinators import LeadersEndOffsets, ShareCoordinators
from ottla.server.coordinators.topic_images import ClusterTopicImages
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


def groups_of(broker: BrokerParts) -> GroupCoordinator:
    """The group coordinator of a broker."""
    return broker.groups


def transactions_of(broker: BrokerParts) -> TransactionCoordinator:
    """The transaction coordinator of a broker."""
    return broker.transactions


def share_coordinator_of(broker: BrokerParts) -> ShareCoordinator:
    """The share coordinator of a broker."""
    return broker.share_coordinator


def share_partitions_of(broker: _SharePartitionLeader) -> SharePartitionManager:
    """The share partitions that a broker leads, whose state is asked of share coordinators."""
    return broker.share_groups


def make_groups(broker: BrokerParts) -> GroupCoordinator:
    """Make the coordinator that lives in `__consumer_offsets`."""
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
        run_in_thread=broker.environment.run_in_thread,
    )


def make_transactions(broker: BrokerParts) -> TransactionCoordinator:
    """Make the coordinator that lives in `__transaction_state`."""
    return TransactionCoordinator(
        broker.configs.started_with.transactions,
        transaction_topic(broker),
        broker.cluster,
        broker.producer_ids,
        broker.transaction_markers,
        transaction_version=lambda: broker.transaction_version,
        offsets_partition=lambda group_id: (GROUP_METADATA_TOPIC, broker.groups.partition_for(group_id)),
        tell=Reminders(FENCED_TOLD_MAX).tell,
    )


def make_transaction_markers(broker: BrokerParts) -> TransactionMarkers:
    """Make what writes the ends of transactions into partitions, here and at other brokers."""
    return TransactionMarkers(broker, partial(write_markers, broker))


def make_share_coordinator(broker: BrokerParts) -> ShareCoordinator:
    """Make the coordinator that lives in `__share_group_state`."""
    config = broker.configs.started_with.share_coordinator
    return ShareCoordinator(config, share_state_topic(broker), broker.cluster)
